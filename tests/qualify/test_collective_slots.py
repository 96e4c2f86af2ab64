"""The admission test of the collectives: what ranks can do wrong together is wrong, and the stock forms have room."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from qualify.comparison import passes
from qualify.content import ALL_STYLES, HEAVY, SMALL, Content, Source, Style
from qualify.dtypes import DTYPES
from qualify.group_memory import share
from qualify.slots.base import Slot, Tensors
from qualify.slots.registry import SLOTS, find_slot
from scoring.attempt import AT_BOUND
from tests.qualify.test_slots import small, stock, tensor_of
from tests.qualify.thread_ranks import groups, on_every_rank

COLLECTIVES = [slot for slot in SLOTS.values() if slot.collective]
CONTENT = Content(bytes(32), "collectives", dtype="float32", elements=1 << 21, words=1 << 10)
VECTORS = json.loads((Path(__file__).parents[1] / "golden" / "slot_vectors.json").read_text())


class Call:
    """One call of all ranks: inputs and weights as they are drawn, and the outputs of every rank."""

    def __init__(self, slot: Slot, dtype: str, style: Style, ranks: int) -> None:
        self.slot, self.dtype, self.ranks, self.dimensions = slot, dtype, ranks, small(slot)
        source = Source(CONTENT, CONTENT.generator("admission", ranks, sum(style.name.encode())))
        self.shapes, call = slot.shapes(self.dimensions), DTYPES[dtype]
        drawn = {
            one.name: torch.empty(slot.stacked(one.name, self.shapes[one.name], ranks), dtype=one.torch_dtype(call))
            for one in (*slot.weights, *slot.tensors())
            if one.role != "output"
        }
        self.weights = {one.name: drawn[one.name] for one in slot.weights}
        self.inputs = {name: tensor for name, tensor in drawn.items() if name not in self.weights}
        slot.draw_weights(self.weights, self.dimensions, source)
        slot.draw(self.inputs, self.dimensions, style, source)
        self.outputs = [
            {name: torch.empty(self.shapes[name], dtype=call) for name in slot.names("output")} for _ in range(ranks)
        ]

    def expected(self, tensors: Tensors | None = None) -> dict[str, torch.Tensor]:
        """Return the reference's answer, of these inputs or of others."""
        everything = {**self.inputs, **self.weights, **(tensors or {})}
        return self.slot.reference(everything, self.slot.scalars(self.dimensions), torch.float64)

    def alone(self, rank: int) -> dict[str, torch.Tensor]:
        """Return what comes out when one rank takes its own part for the sum."""
        own = {name: one[rank : rank + 1] for name, one in (self.inputs | self.weights).items() if self.is_own(name)}
        return self.expected(own)

    def is_own(self, name: str) -> bool:
        """Say whether every rank has its own tensor of this name."""
        return name in self.slot.per_rank

    def run_stock(self) -> None:
        """Run the stock form on all ranks."""
        arguments = []
        for rank in range(self.ranks):
            known = {**share(self.slot, self.inputs, rank), **self.outputs[rank], "group": groups(self.ranks)[rank]}
            known |= self.slot.scalars(self.dimensions)
            if self.weights:
                own = share(self.slot, self.weights, rank).values()
                known["prepared"] = stock(self.slot, self.slot.stock_prepare)(*own)
            arguments.append([known[one.name] for one in self.slot.arguments])
        on_every_rank(stock(self.slot, self.slot.stock[1]), arguments)

    def worst(self, rank: int, expected: dict[str, torch.Tensor]) -> int:
        """Return the worst figure of one rank's outputs."""
        tolerance, comparator = self.slot.tolerance(self.dtype), self.slot.comparator
        figures = [
            comparator.judge(output, comparator.expect(expected[name], tolerance))
            for name, output in self.outputs[rank].items()
        ]
        return min(figures) if min(figures) < 0 else max(figures)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("slot", COLLECTIVES, ids=lambda slot: slot.id)
def test_stock_uses_less_than_half_of_every_bound(slot: Slot, dtype: str, ranks: int) -> None:
    """On two and four ranks and every distribution, the stock form leaves others as much room as it takes."""
    for style in ALL_STYLES:
        call = Call(slot, dtype, style, ranks)
        call.run_stock()
        expected = call.expected()
        for rank in range(ranks):
            assert 0 <= call.worst(rank, expected) < AT_BOUND // 2, style.name


def _unsummed(call: Call) -> dict[str, torch.Tensor]:
    return call.alone(0)


def _averaged(call: Call) -> dict[str, torch.Tensor]:
    own = {name: one / call.ranks for name, one in (call.inputs | call.weights).items() if call.is_own(name)}
    if "w2" in own:
        own["w13"] = call.weights["w13"]
    return call.expected(own)


def _own_twice(call: Call) -> dict[str, torch.Tensor]:
    own = {name: one[:1].expand_as(one) for name, one in (call.inputs | call.weights).items() if call.is_own(name)}
    return call.expected(own)


def _one_too_few(call: Call) -> dict[str, torch.Tensor]:
    return call.expected({name: one[:-1] for name, one in (call.inputs | call.weights).items() if call.is_own(name)})


def _residual_on_every_rank(call: Call) -> dict[str, torch.Tensor]:
    return call.expected({"residual": call.inputs["residual"] * call.ranks})


def _without_residual(call: Call) -> dict[str, torch.Tensor]:
    return call.expected({"residual": torch.zeros_like(call.inputs["residual"])})


def _without_weight(call: Call) -> dict[str, torch.Tensor]:
    return call.expected({"weight": torch.ones_like(call.inputs["weight"])})


def _unmapped(call: Call) -> dict[str, torch.Tensor]:
    return call.expected({"row_map": torch.arange(call.inputs["row_map"].numel(), dtype=torch.int32)})


def _unscaled(call: Call) -> dict[str, torch.Tensor]:
    return call.expected({"scales": torch.full_like(call.inputs["scales"], 0.5)})


CONTROLS: dict[str, tuple[str, Callable[[Call], dict[str, torch.Tensor]]]] = {
    "forgets to reduce": ("", _unsummed),
    "averages": ("", _averaged),
    "sums its own part": ("", _own_twice),
    "leaves out the last rank": ("", _one_too_few),
    "adds the residual on every rank": ("residual", _residual_on_every_rank),
    "reduces but skips the residual": ("residual", _without_residual),
    "skips the affine weight": ("weight", _without_weight),
    "ignores the row map": ("row_map", _unmapped),
    "ignores the scales": ("scales", _unscaled),
}


@pytest.mark.parametrize(
    ("slot", "control"),
    [
        (slot, name)
        for slot in COLLECTIVES
        for name, (needs, _) in CONTROLS.items()
        if needs in ("", *slot.names("input"))
    ],
    ids=lambda value: value if isinstance(value, str) else value.id,
)
def test_controls_fail(slot: Slot, control: str) -> None:
    """Each shortcut is wrong in the widest dtype of tolerances, on small values as on heavy tails."""
    for style in (SMALL, HEAVY):
        call = Call(slot, "bfloat16", style, 3)
        for name, value in CONTROLS[control][1](call).items():
            call.outputs[0][name].copy_(value)
        assert not passes(call.worst(0, call.expected())), style.name


@pytest.mark.parametrize("slot", COLLECTIVES, ids=lambda slot: slot.id)
def test_a_stale_rank_is_found_beside_a_right_one(slot: Slot) -> None:
    """Rank 0 answers this call and rank 1 the one before, of which a few values differ: rank 1 is wrong."""
    call = Call(slot, "float32", ALL_STYLES[0], 2)
    stale = call.expected()
    slot.perturb(call.inputs, call.dimensions, Source(CONTENT, CONTENT.generator("perturbation", 1)))
    expected = call.expected()
    for rank, values in enumerate((expected, stale)):
        for name, value in values.items():
            call.outputs[rank][name].copy_(value)
    assert passes(call.worst(0, expected))
    assert not passes(call.worst(1, expected))


@pytest.mark.parametrize(
    "case", [one for one in VECTORS["reference_cases"] if "two_rank" in one], ids=lambda one: one["case"]
)
def test_the_references_agree_with_recorded_values_of_two_ranks(case: dict[str, Any]) -> None:
    """Recorded results of the deployed references come out, for two ranks as for one."""
    slot = find_slot(str(case["slot"]))
    values = {name: tensor_of(value) for name, value in case["inputs"].items()}
    second = {name: tensor_of(value) for name, value in case["two_rank"]["rank1_input"].items()}
    tensors = {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
    tensors |= {name: torch.stack([values[name], second[name]]) for name in slot.per_rank}
    scalars = {name: value for name, value in values.items() if name not in tensors}
    got = slot.reference(tensors, scalars, torch.float64)
    for name, recorded in zip(slot.names("output"), case["two_rank"]["outputs"], strict=True):
        torch.testing.assert_close(got[name], tensor_of(recorded), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("slot", COLLECTIVES, ids=lambda slot: slot.id)
def test_the_oracle_is_independent_of_how_ranks_are_ordered(slot: Slot) -> None:
    """A sum does not know which rank held which part."""
    call = Call(slot, "float32", ALL_STYLES[0], 4)
    turned = {name: one.roll(1, dims=0) for name, one in (call.inputs | call.weights).items() if call.is_own(name)}
    expected = call.expected()
    for name, value in call.expected(turned).items():
        torch.testing.assert_close(value, expected[name])
