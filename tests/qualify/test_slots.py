"""Every registered slot: the reference is right, hidden shapes are legal, and calls are described in full."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from config.arena import known_arenas, load_arena
from config.errors import ConfigurationError
from config.target_catalog import load_catalog
from qualify.comparison import passes
from qualify.content import NORMAL, ROWS, SCALED, SHIFTED, Style
from qualify.dtypes import DTYPES
from qualify.slots.base import Slot, live_descriptor
from qualify.slots.registry import SLOTS, find_slot
from qualify.slots.rehearsal import Rehearsal, small, worst
from scoring.attempt import AT_BOUND

VECTORS = json.loads((Path(__file__).parents[1] / "golden" / "slot_vectors.json").read_text())


@pytest.mark.parametrize("slot", SLOTS.values(), ids=lambda slot: slot.id)
def test_rows_depend_on_row_inputs_alone(slot: Slot) -> None:
    """A reference computed in pieces of rows is the reference of the whole."""
    if not slot.row_inputs:
        pytest.skip("rows depend on each other")
    call = Rehearsal(slot, "float32", NORMAL)
    whole = call.expected()
    rows = whole[slot.names("output")[0]].shape[0]
    for start in range(rows):
        row = slice(start, start + 1)
        part = call.expected({name: slot.rows_of(name, tensor, row) for name, tensor in call.inputs.items()})
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
    call = Rehearsal(slot, "bfloat16", NORMAL, dimensions=probe)
    expected = call.expected()
    call.answer(expected)
    assert passes(worst(call.figures(expected)))
    call.answer(call.expected(scalars={"prefix_len": int(call.scalars["prefix_len"]) + 1}))
    assert not passes(worst(call.figures(expected)))


@pytest.mark.parametrize("name", known_arenas())
def test_every_target_an_arena_judges_has_a_slot(name: str) -> None:
    """A workload of a built-in arena can be measured: its slot, dimensions and dtype are known."""
    arena = load_arena(name)
    for workload in (part for load in arena.workloads for part in arena.parts(load.target)):
        slot = find_slot(workload.target)
        assert workload.dtype in DTYPES
        assert (workload.world_size > 1) is slot.collective
        for shape in workload.shapes:
            assert set(shape) == set(slot.dimensions)


LARGEST = (
    Style("scaled", SCALED.scale_high, SCALED.scale_high),
    Style("shifted", SHIFTED.scale_high, SHIFTED.scale_high, shift=SHIFTED.shift),
    Style("rows", ROWS.scale_low, ROWS.scale_high, per_row=True),
)


@pytest.mark.parametrize("style", LARGEST, ids=lambda style: style.name)
@pytest.mark.parametrize("target", [load.target for load in load_arena("cpu-small").workloads if load.shapes])
def test_stock_is_well_within_its_bounds_at_the_largest_scale(target: str, style: Style) -> None:
    """A seed may draw the end of its range in any of thousands of calls; honest rounding has to pass there, too."""
    workload = load_arena("cpu-small").workload(target)
    assert workload is not None
    dimensions, ranks = workload.shapes[0], workload.world_size
    call = Rehearsal(find_slot(target), workload.dtype, style, ranks=ranks, dimensions=dimensions)
    call.run_stock()
    expected = call.expected()
    assert all(0 <= worst(call.figures(expected, rank)) <= 0.75 * AT_BOUND for rank in range(ranks))


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
def test_whatever_is_asked_for_there_is_a_legal_call_near_it(slot: Slot) -> None:
    """The nearest legal extents are legal themselves, and a call with them can be drawn and has an answer."""
    for start, step in ((1, 0), (7, -1), (2, 1), (3, 3)):
        asked = {name: max(0, start + step * index) for index, name in enumerate(slot.dimensions)}
        legal = slot.legal(asked)
        assert slot.legal(legal) == legal
        call = Rehearsal(slot, "bfloat16", NORMAL, dimensions=legal)
        call.answer(call.expected())
        assert passes(worst(call.figures(call.expected()))), legal


@pytest.mark.parametrize("slot", SLOTS.values(), ids=lambda slot: slot.id)
def test_the_catalog_names_the_same_entry(slot: Slot) -> None:
    """Slots are the catalog's, called as their contract says."""
    target = load_catalog().find(slot.id)
    assert target is not None
    assert slot.stock[1] == target.contract.entry
