"""The admission test of every registered slot: cheap cheats fail, the stock form passes, the reference is right."""

from __future__ import annotations

import json
import math
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from config.arena import known_arenas, load_arena
from config.errors import ConfigurationError
from config.target_catalog import load_catalog
from qualify.comparison import Rows, passes
from qualify.content import ALL_STYLES, NORMAL, Content, Source, Style
from qualify.dtypes import DTYPES
from qualify.group_memory import share
from qualify.slots.base import STOCK_ROOT, Argument, Dimensions, Slot, live_descriptor
from qualify.slots.registry import SLOTS, find_slot
from tests.qualify.thread_ranks import groups, on_every_rank

CONTENT = Content(bytes(32), "admission", dtype="float32", elements=1 << 21, words=1 << 10)
VECTORS = json.loads((Path(__file__).parents[1] / "golden" / "slot_vectors.json").read_text())


RANKS = 2  # of a collective


class Question(NamedTuple):
    """One call: the arguments of every rank in order, and what is among them by name; outputs are those of rank 0."""

    arguments: list[list[Any]]
    inputs: dict[str, torch.Tensor]
    outputs: dict[str, torch.Tensor]
    weights: dict[str, torch.Tensor]


def small(slot: Slot) -> Dimensions:
    """Return the public shape of the fewest elements that has more than one row."""
    sizes = {
        math.prod(dimensions.values()): dimensions
        for dimensions in slot.catalog_shapes
        if slot.shapes(dimensions)[slot.names("output")[0]][0] > 1
    }
    return sizes[min(sizes)]


def ask(slot: Slot, dtype: str, style: Style, dimensions: Dimensions) -> Question:
    """Draw one call, with outputs full of plausible values."""
    source = Source(CONTENT, CONTENT.generator("admission", sum(style.name.encode())))
    shapes, call = slot.shapes(dimensions), DTYPES[dtype]
    ranks = RANKS if slot.collective else 1

    def room(one: Argument) -> torch.Tensor:
        return torch.empty(slot.stacked(one.name, shapes[one.name], ranks), dtype=one.torch_dtype(call))

    weights = {one.name: room(one) for one in slot.weights}
    slot.draw_weights(weights, dimensions, source)
    inputs = {one.name: room(one) for one in slot.tensors() if one.role == "input"}
    slot.draw(inputs, dimensions, style, source)
    noise = torch.Generator().manual_seed(3)
    arguments, outputs = [], []
    for rank in range(ranks):
        outputs.append({})
        for one in slot.tensors():
            *rows, width = shapes[one.name]
            if one.role == "output":
                noisy = torch.randn(*rows, width + one.pad, generator=noise).to(one.torch_dtype(call))
                outputs[rank][one.name] = noisy[..., :width]
        known: dict[str, Any] = {**share(slot, inputs, rank), **outputs[rank], **slot.scalars(dimensions)}
        if slot.weights:
            known["prepared"] = stock(slot, slot.stock_prepare)(*share(slot, weights, rank).values())
        if slot.collective:
            known["group"] = groups(ranks)[rank]
        arguments.append([known[one.name] for one in slot.arguments])
    return Question(arguments, inputs, outputs[0], weights)


def stock(slot: Slot, name: str) -> Callable[..., Any]:
    """Return a function of a slot's stock file."""
    return runpy.run_path(str(STOCK_ROOT / slot.stock[0]))[name]  # type: ignore[no-any-return]


def verdicts(slot: Slot, dtype: str, question: Question, expected: dict[str, torch.Tensor]) -> list[bool]:
    """Return for each output whether it passes."""
    tolerance, comparator = slot.tolerance(dtype), slot.comparator
    return [
        passes(comparator.judge(output, comparator.expect(expected[name], tolerance)))
        for name, output in question.outputs.items()
    ]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("style", [NORMAL, *ALL_STYLES[1:]], ids=lambda style: style.name)
@pytest.mark.parametrize("slot", SLOTS.values(), ids=lambda slot: slot.id)
def test_stock_passes_its_own_reference(slot: Slot, style: Style, dtype: str) -> None:
    """The stock form is right on every distribution and dtype, with both precisions of the reference."""
    dimensions = small(slot)
    question = ask(slot, dtype, style, dimensions)
    on_every_rank(stock(slot, slot.stock[1]), question.arguments)
    for precision in (torch.float64, torch.float32):
        wanted = slot.reference({**question.inputs, **question.weights}, slot.scalars(dimensions), precision)
        assert all(value.dtype == torch.float32 for value in wanted.values())
        assert all(verdicts(slot, dtype, question, wanted))


Control = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]


def copied(out: torch.Tensor, x: torch.Tensor, expected: torch.Tensor) -> None:
    """Fill the output with the values of an input, repeated."""
    values = x.flatten()
    out.copy_(values.repeat(out.numel() // len(values) + 1)[: out.numel()].view(out.shape))


def shuffled(out: torch.Tensor, x: torch.Tensor, expected: torch.Tensor) -> None:
    """Write the right rows in the wrong order, as swapped arguments or a wrong index do."""
    out.copy_(expected.roll(1, dims=0))


CONTROLS: dict[str, Control] = {
    "no-op": lambda out, x, expected: None,
    "zeros": lambda out, x, expected: out.zero_(),
    "ones": lambda out, x, expected: out.fill_(1.0),
    "mean": lambda out, x, expected: out.fill_(float(expected[expected.isfinite()].mean())),
    "row mean": lambda out, x, expected: out.copy_(expected.mean(-1, keepdim=True).expand_as(out)),
    "copied input": copied,
    "shuffled rows": shuffled,
    "all but the last row": lambda out, x, expected: out[:-1].copy_(expected[:-1]),
}
# A ranking is the same for multiplied scores, and one wrong score is within its allowance: that is what it promises.
VALUE_CONTROLS: dict[str, Control] = {
    "all but one element": lambda out, x, expected: out.copy_(expected).view(-1)[7:8].add_(1e6),
    "three percent off": lambda out, x, expected: out.copy_(expected * 1.03),
    "one bit of mantissa too few": lambda out, x, expected: out.copy_(expected.to(torch.float8_e5m2).float()),
}


@pytest.mark.parametrize("control", [*CONTROLS, *VALUE_CONTROLS])
@pytest.mark.parametrize("style", ALL_STYLES, ids=lambda style: style.name)
@pytest.mark.parametrize("slot", SLOTS.values(), ids=lambda slot: slot.id)
def test_controls_fail(slot: Slot, style: Style, control: str) -> None:
    """What writes nothing, constants, averages, its input, or almost everything right, is wrong."""
    if control in VALUE_CONTROLS and not isinstance(slot.comparator, Rows):
        pytest.skip("only the ranking is judged")
    dimensions = small(slot)
    question = ask(slot, "bfloat16", style, dimensions)
    inputs = {**question.inputs, **question.weights}
    expected = slot.reference(inputs, slot.scalars(dimensions), torch.float64)
    for name, out in question.outputs.items():
        {**CONTROLS, **VALUE_CONTROLS}[control](out, next(iter(question.inputs.values())), expected[name])
    assert not any(verdicts(slot, "bfloat16", question, expected))


@pytest.mark.parametrize("style", ALL_STYLES, ids=lambda style: style.name)
@pytest.mark.parametrize("slot", SLOTS.values(), ids=lambda slot: slot.id)
def test_a_private_perturbation_changes_what_is_expected(slot: Slot, style: Style) -> None:
    """The answer to the unperturbed question is wrong for the perturbed one, so remembered answers are found out."""
    dimensions = small(slot)
    question = ask(slot, "bfloat16", style, dimensions)
    before = {name: tensor.clone() for name, tensor in question.inputs.items()}
    scalars = slot.scalars(dimensions)
    stale = slot.reference({**before, **question.weights}, scalars, torch.float64)
    slot.perturb(question.inputs, dimensions, Source(CONTENT, CONTENT.generator("perturbation", 1)))
    wanted = slot.reference({**question.inputs, **question.weights}, scalars, torch.float64)
    for name, out in question.outputs.items():
        out.copy_(stale[name])
    assert not all(verdicts(slot, "bfloat16", question, wanted))


@pytest.mark.parametrize("slot", SLOTS.values(), ids=lambda slot: slot.id)
def test_rows_depend_on_row_inputs_alone(slot: Slot) -> None:
    """A reference computed in pieces of rows is the reference of the whole."""
    if not slot.row_inputs:
        pytest.skip("rows depend on each other")
    dimensions = small(slot)
    question = ask(slot, "float32", NORMAL, dimensions)
    scalars = slot.scalars(dimensions)
    whole = slot.reference({**question.inputs, **question.weights}, scalars, torch.float64)
    rows = whole[slot.names("output")[0]].shape[0]
    for start in range(rows):
        row = slice(start, start + 1)
        piece = {name: slot.rows_of(name, tensor, row) for name, tensor in question.inputs.items()}
        part = slot.reference({**piece, **question.weights}, scalars, torch.float64)
        for name, value in part.items():
            assert torch.allclose(value, whole[name][start : start + 1], rtol=1e-6, atol=1e-9)


def tensor_of(value: Any) -> Any:
    """Return a recorded input: a tensor, or the scalar it is."""
    if not isinstance(value, dict):
        return value
    return torch.tensor(list(map(float, value["data"]))).to(getattr(torch, value["dtype"])).view(value["shape"])


@pytest.mark.parametrize(
    "case", [one for one in VECTORS["reference_cases"] if one["slot"] in SLOTS], ids=lambda one: one["case"]
)
def test_the_references_agree_with_recorded_values(case: dict[str, Any]) -> None:
    """Recorded results of the deployed references come out, to the precision they were recorded in."""
    slot = find_slot(case["slot"])
    values = {name: tensor_of(value) for name, value in case["inputs"].items()}
    tensors = {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
    tensors |= {name: tensors[name].unsqueeze(0) for name in slot.per_rank if name in tensors}
    scalars = {name: value for name, value in values.items() if name not in tensors}
    got = slot.reference(tensors, scalars, torch.float64)
    for name, recorded in zip(slot.names("output"), case["outputs"], strict=True):
        torch.testing.assert_close(got[name], tensor_of(recorded), rtol=2e-6, atol=2e-6)


def test_the_references_agree_with_values_worked_out_by_hand() -> None:
    """silu(1) * 2 and the norm of (3, 4) are what mathematics says."""
    silu = find_slot("activation.silu_and_mul")
    got = silu.reference({"x": torch.tensor([[1.0, 2.0]])}, {}, torch.float64)["out"]
    assert got.item() == pytest.approx(2 * 0.7310585786)
    norm = find_slot("norm.rmsnorm")
    inputs = {"x": torch.tensor([[3.0, 4.0]]), "weight": torch.tensor([1.0, 2.0])}
    got = norm.reference(inputs, {"eps": 0.0}, torch.float64)["out"]
    assert got.tolist()[0] == pytest.approx([3 / 12.5**0.5, 8 / 12.5**0.5])


def test_extreme_gates_do_not_break_the_reference() -> None:
    """The reference saturates instead of overflowing."""
    silu = find_slot("activation.silu_and_mul")
    x = torch.tensor([[-1e4, -80.0, 0.0, 80.0, 1e4, 1.0, 1.0, 1.0, 1.0, 1.0]])
    got = silu.reference({"x": x}, {}, torch.float32)["out"]
    assert torch.isfinite(got).all()
    assert got.tolist()[0][2:] == [0.0, 80.0, 1e4]


def test_the_causal_probe_catches_a_kernel_that_looks_one_key_too_far() -> None:
    """A mask that is off by one ranks the bait first."""
    slot = find_slot("attention.msa_prefill_block_score")
    probe = next(one for one in slot.catalog_shapes if one["causal_probe"])
    question = ask(slot, "bfloat16", NORMAL, probe)
    scalars = slot.scalars(probe)
    expected = slot.reference(question.inputs, scalars, torch.float64)
    shifted = slot.reference(question.inputs, {**scalars, "prefix_len": int(scalars["prefix_len"]) + 1}, torch.float64)
    question.outputs["out"].copy_(expected["out"])
    assert verdicts(slot, "bfloat16", question, expected) == [True]
    question.outputs["out"].copy_(shifted["out"])
    assert verdicts(slot, "bfloat16", question, expected) == [False]


@pytest.mark.parametrize("name", known_arenas())
def test_every_target_an_arena_judges_has_a_slot(name: str) -> None:
    """A workload of a built-in arena can be measured: its slot, dimensions and dtype are known."""
    for workload in load_arena(name).workloads:
        slot = find_slot(workload.target)
        assert workload.dtype in DTYPES
        for shape in workload.shapes:
            assert set(shape) == set(slot.dimensions)


def test_an_unknown_slot_is_refused_with_the_known_ones() -> None:
    """The hint lists what this build can measure."""
    with pytest.raises(ConfigurationError) as caught:
        find_slot("attention.nothing")
    assert caught.value.code == "SLOT_UNREGISTERED"
    assert "norm.rmsnorm" in caught.value.hint


@pytest.mark.parametrize("slot", SLOTS.values(), ids=lambda slot: slot.id)
def test_the_live_descriptor_names_every_extent(slot: Slot) -> None:
    """A bundle that limits num_tokens can be routed: the field is there."""
    dimensions = small(slot)
    descriptor = live_descriptor(slot, dimensions, "bfloat16", "cpu")
    assert descriptor["num_tokens"] == slot.shapes(dimensions)[slot.names("output")[0]][0]
    assert descriptor["dtype"] == "bfloat16"
    assert {"architecture", "last_dim", "graph_mode", "layout", "quant"} <= set(descriptor)


@pytest.mark.parametrize("slot", SLOTS.values(), ids=lambda slot: slot.id)
def test_hidden_shapes_are_legal(slot: Slot) -> None:
    """What jitter may change are extents of the slot, and public shapes are legal as they are."""
    for dimensions in slot.catalog_shapes:
        assert set(slot.jittered(dimensions)) <= set(slot.dimensions)
        assert slot.legal(dimensions) == dict(dimensions)


@pytest.mark.parametrize("slot", SLOTS.values(), ids=lambda slot: slot.id)
def test_the_catalog_names_the_same_entry(slot: Slot) -> None:
    """Slots are the catalog's, called as their contract says."""
    target = load_catalog().find(slot.id)
    assert target is not None
    assert slot.stock[1] == target.contract.entry
