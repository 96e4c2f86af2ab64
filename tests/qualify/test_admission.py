"""Admission of slots: cheap cheats fail, the stock form passes, and a slot that does not tell them apart is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from config.errors import ConfigurationError
from qualify.comparison import Rows, Tolerance, passes
from qualify.content import ALL_STYLES, HEAVY, SMALL
from qualify.docket import open_docket
from qualify.dtypes import DTYPES
from qualify.ranking import TopK
from qualify.slots import admission
from qualify.slots.admission import Trial, admit, examine, table_of
from qualify.slots.base import Slot
from qualify.slots.mistakes import ANSWERINGS, EDGE_ANSWERINGS, FILLINGS, narrowed
from qualify.slots.registry import PROFILES, SLOTS
from qualify.slots.rehearsal import Ranks, on_every_rank
from qualify.slots.rmsnorm import RmsNorm
from scoring.attempt import AT_BOUND
from tests.qualify.support import EXAMPLES, describe_bundle, make_request

EVERY = [*SLOTS.values(), *PROFILES.values()]
COLLECTIVES = [slot for slot in SLOTS.values() if slot.collective]
REQUIRED = {"no-op", "zeros", "ones", "copied input", "mean", "swapped arguments", "stock", "reference in float32"}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Keep torch from splitting small tensors among threads: that takes longer than the work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def table(slot: Slot, dtype: str) -> tuple[Trial, ...]:
    """Return everything that is tried on a slot in one dtype."""
    return tuple(examine(slot, dtype, (*ALL_STYLES, *slot.edges)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("slot", EVERY, ids=lambda slot: slot.key)
def test_what_has_to_fail_fails_and_what_has_to_pass_passes(slot: Slot, dtype: str) -> None:
    """Every control goes as it has to, in every dtype and every distribution; the stock form has room left."""
    trials = table(slot, dtype)
    assert [str(trial) for trial in trials if not trial.kept] == []
    assert {trial.control for trial in trials} >= REQUIRED
    assert {trial.style for trial in trials} == {style.name for style in (*ALL_STYLES, *slot.edges)}
    assert max(trial.figure for trial in trials if trial.control == "stock") <= 0.75 * AT_BOUND


def test_the_controls_table(capsys: pytest.CaptureFixture[str]) -> None:
    """The table of all slots can be read: one line for each control, one column for each slot."""
    text = table_of(trial for slot in EVERY for dtype in DTYPES for trial in table(slot, dtype))
    with capsys.disabled():
        print(f"\nWorst case of each control over dtypes and distributions, in % of the bound (100 passes):\n{text}")
    names = [one.name for one in (*FILLINGS, *ANSWERINGS, *EDGE_ANSWERINGS)]
    for name in names:
        assert any(line.startswith(name) for line in text.splitlines()), name


# Rows of the catalogue of cheats (docs/cheats.md) that are about values, the controls that stand for them, and what a
# slot has to have for the row to concern it. Rows about memory, time and libraries are judged on real arms.
HOSTILE: dict[int, tuple[set[str], Callable[[Slot], bool]]] = {
    50: ({"no-op"}, lambda slot: True),
    51: ({"copied input"}, lambda slot: True),
    53: ({"zeros"}, lambda slot: True),
    54: ({"ones", "remembered answer"}, lambda slot: True),
    55: ({"copied input"}, lambda slot: True),
    56: ({"mean", "row mean"}, lambda slot: True),
    57: ({"skips the affine weight"}, lambda slot: "weight" in slot.names("input")),
    58: ({"softmax without its maximum"}, lambda slot: "v" in slot.names("input")),
    59: ({"lower precision", "three percent off"}, lambda slot: isinstance(slot.comparator, Rows)),
    60: ({"all but the last row", "left half of every row"}, lambda slot: True),
    61: ({"shuffled columns", "scores of other blocks"}, lambda slot: isinstance(slot.comparator, TopK)),
    68: ({"looks behind the end"}, lambda slot: "seq_lens" in slot.names("input")),
}


@pytest.mark.parametrize("row", HOSTILE)
def test_cheats_with_values_are_tried_on_every_slot_they_concern(row: int) -> None:
    """No slot that a row of the catalogue concerns is admitted without having found it out."""
    controls, concerns = HOSTILE[row]
    concerned = [slot for slot in EVERY if concerns(slot)]
    assert concerned
    for slot in concerned:
        found = {trial.control for trial in table(slot, "bfloat16") if not trial.wanted and trial.kept}
        assert controls <= found, slot.key


@pytest.mark.parametrize("ranks", [3, 4])
@pytest.mark.parametrize("slot", COLLECTIVES, ids=lambda slot: slot.id)
def test_what_ranks_do_wrong_together_is_wrong_for_more_of_them(slot: Slot, ranks: int) -> None:
    """Shortcuts fail on three and four ranks as on two, and the stock form leaves a third of every bound."""
    trials = tuple(examine(slot, "bfloat16", (SMALL, HEAVY), ranks))
    assert [str(trial) for trial in trials if not trial.kept] == []
    assert all(trial.figure < AT_BOUND * 2 // 3 for trial in trials if trial.control == "stock")


class Forgiving(RmsNorm):
    """A slot whose bounds accept everything."""

    def tolerance(self, dtype: str) -> Tolerance:
        return Tolerance(1e6, 1e6, 1e6, 1e6, 1e6)


class Strict(RmsNorm):
    """A slot whose bounds the stock form misses."""

    def tolerance(self, dtype: str) -> Tolerance:
        return Tolerance(1e-9, 0.0, 1e-9, 0.0, 1e-9)


class Mute(RmsNorm):
    """A slot whose inputs say nothing."""

    edges: ClassVar = ()

    def draw(self, inputs, dimensions, style, source) -> None:  # type: ignore[no-untyped-def]
        for tensor in inputs.values():
            tensor.zero_()


@pytest.mark.parametrize(
    ("slot", "words"),
    [(Forgiving(), "zeros passes"), (Strict(), "stock fails"), (Mute(), "zeros passes")],
    ids=["forgiving", "strict", "mute"],
)
def test_a_slot_that_cannot_tell_is_not_admitted(slot: Slot, words: str) -> None:
    """The refusal names controls that went the other way, with dtype, distribution and figure."""
    with pytest.raises(ConfigurationError) as caught:
        admit(slot, "bfloat16")
    assert caught.value.code == "SLOT_NOT_ADMITTED"
    assert words in caught.value.message


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let every slot be looked at anew, and fail."""
    admit.cache_clear()
    monkeypatch.setattr(admission, "_figures", lambda call: iter([("stock", True, 2 * AT_BOUND)]))
    yield
    admit.cache_clear()


def test_no_attempt_opens_with_a_slot_that_is_not_admitted(refused: None, arena: str, tmp_path: Path) -> None:
    """The gate stands where an attempt is opened, before anything is drawn or started."""
    reference = describe_bundle(EXAMPLES / "silu_fast", tmp_path / "report.json")
    with pytest.raises(ConfigurationError) as caught:
        open_docket(make_request(reference, arena))
    assert caught.value.code == "SLOT_NOT_ADMITTED"


def test_a_slot_is_admitted_once_for_each_process() -> None:
    """The second question costs nothing."""
    slot = SLOTS["norm.rmsnorm"]
    assert admit(slot, "bfloat16") is admit(slot, "bfloat16")


def test_narrowing_keeps_so_many_bits() -> None:
    """Eight bits hold 255 and not 257; infinities stay what they are."""
    values = torch.tensor([255.0, 257.0, -3.0, 0.0, -torch.inf])
    assert narrowed(values, 8).tolist() == [255.0, 256.0, -3.0, 0.0, -torch.inf]


def test_threads_sum_as_ranks_do() -> None:
    """Every rank gets the sum; a rank that fails does not leave the others waiting."""
    groups = Ranks(3).groups
    tensors = [torch.full((2,), float(rank)) for rank in range(3)]

    def entry(tensor: torch.Tensor, group: object) -> None:
        torch.distributed.all_reduce(tensor, group=group)  # type: ignore[arg-type]

    on_every_rank(entry, [list(pair) for pair in zip(tensors, groups, strict=True)])
    assert [tensor.tolist() for tensor in tensors] == [[3.0, 3.0]] * 3
    with pytest.raises(TypeError):
        on_every_rank(entry, [[tensors[0], groups[0]], [tensors[1]], [tensors[2], groups[2], groups[2]]])


def test_passing_is_what_the_comparator_says() -> None:
    """A figure at the bound passes, one above or none at all does not."""
    trial = Trial("norm.rmsnorm", "float32", "normal", "stock", True, AT_BOUND)
    assert trial.kept
    assert passes(AT_BOUND)
    assert "stock passes for normal inputs in float32 (100 % of the bound)" in str(trial)
