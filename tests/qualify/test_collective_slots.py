"""The collectives: every rank is judged, and the references are those of the deployed ones. See also test_admission."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from qualify.comparison import passes
from qualify.content import NORMAL, Source
from qualify.slots.base import Slot
from qualify.slots.registry import SLOTS, find_slot
from qualify.slots.rehearsal import Rehearsal, worst
from tests.qualify.test_slots import tensor_of

COLLECTIVES = [slot for slot in SLOTS.values() if slot.collective]
VECTORS = json.loads((Path(__file__).parents[1] / "golden" / "slot_vectors.json").read_text())


@pytest.mark.parametrize("slot", COLLECTIVES, ids=lambda slot: slot.id)
def test_a_stale_rank_is_found_beside_a_right_one(slot: Slot) -> None:
    """Rank 0 answers this call and rank 1 the one before, of which a few values differ: rank 1 is wrong."""
    call = Rehearsal(slot, "float32", NORMAL)
    stale = call.expected()
    slot.perturb(call.inputs, call.dimensions, Source(call.content, call.content.generator("perturbation", 1)))
    expected = call.expected()
    for rank, values in enumerate((expected, stale)):
        call.answer(values, rank)
    assert passes(worst(call.figures(expected, 0)))
    assert not passes(worst(call.figures(expected, 1)))


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
    call = Rehearsal(slot, "float32", NORMAL, ranks=4)
    turned = {name: one.roll(1, dims=0) for name, one in call.own.items()}
    expected = call.expected()
    for name, value in call.expected(turned).items():
        torch.testing.assert_close(value, expected[name])
