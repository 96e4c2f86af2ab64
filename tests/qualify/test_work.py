"""The least work of a call is below what any right answer does."""

from __future__ import annotations

from math import prod

import pytest

from config.arena import load_arena
from qualify.dtypes import DTYPES
from qualify.slots.base import Slot
from qualify.slots.registry import PROFILES, SLOTS, find_slot
from qualify.slots.work import has_rule, least_work

ALL = [*SLOTS.values(), *PROFILES.values()]


@pytest.mark.parametrize("slot", ALL, ids=lambda slot: slot.key)
def test_every_slot_has_a_rule_between_its_outputs_and_all_it_touches(slot: Slot) -> None:
    """More than writing the outputs, and at most every byte of every argument, once for each rank."""
    assert has_rule(slot)
    for shape in slot.catalog_shapes:
        shapes = slot.shapes(shape)
        sizes = {
            one.name: prod(shapes[one.name]) * one.torch_dtype(DTYPES["bfloat16"]).itemsize
            for one in (*slot.tensors(), *slot.weights)
        }
        written = sum(sizes[name] for name in slot.names("output"))
        for ranks in (1, 4):
            work = least_work(slot, shape, "bfloat16", ranks)
            assert ranks * written < work.least_bytes <= ranks * sum(sizes.values())
            assert work.least_operations >= 0


def test_known_figures() -> None:
    """Work that can be counted by hand."""
    silu = least_work(find_slot("activation.silu_and_mul"), {"num_tokens": 512, "d": 4096}, "bfloat16")
    assert silu == (3 * 512 * 4096 * 2, 2 * 512 * 4096)
    full = {"num_tokens": 4, "num_q_heads": 2, "num_kv_heads": 1, "head_dim": 8, "causal": 0}
    assert least_work(find_slot("attention.sdpa"), full, "float32").least_operations == 4 * 4 * 2 * 2 * 8
    causal = least_work(find_slot("attention.sdpa"), {**full, "causal": 1}, "float32")
    assert causal.least_operations == 10 * 2 * 2 * 8
    experts = {"num_tokens": 64, "num_experts": 8, "hidden": 512, "inter": 256, "topk": 2}
    assert least_work(find_slot("moe.fused_experts"), experts, "bfloat16").least_operations == 64 * 2 * 3 * 512 * 256


def test_a_profile_with_room_for_packed_weights_moves_fewer_bytes() -> None:
    """Weights of four bits are a quarter of those of sixteen."""
    shape = find_slot("moe.fused_experts").catalog_shapes[0]
    plain = least_work(find_slot("moe.fused_experts"), shape, "bfloat16").least_bytes
    packed = least_work(find_slot("moe.fused_experts", "MiniMax-M3-NVFP4"), shape, "bfloat16").least_bytes
    assert packed < plain


def test_the_built_in_arena_has_a_floor_for_every_case_and_none_that_a_call_could_meet() -> None:
    """At the registered peaks every case takes more than nothing, and far less than a deadline."""
    arena = load_arena("cpu-small")
    assert arena.peak_bytes_per_second > 0
    for load in arena.workloads:
        for shape in load.shapes:
            work = least_work(find_slot(load.target, load.profile), shape, load.dtype, load.world_size)
            floor_ns = max(
                work.least_bytes * 10**9 // arena.peak_bytes_per_second,
                work.least_operations * 10**9 // arena.peak_operations_per_second,
            )
            assert 100 < floor_ns < 200_000
