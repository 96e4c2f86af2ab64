"""Which cases a candidate is asked: hidden ones near public shapes, one far away, and edges where they show."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from qualify.content import ALL_STYLES, CROWDED, PADDED, RAGGED, SCALARS, Content, Source
from qualify.correctness import CorrectnessCase, plan_cases
from qualify.far_shapes import is_far
from qualify.slots.base import Dimensions, Slot
from qualify.slots.registry import SLOTS


def _content(seed: int) -> Content:
    return Content(seed.to_bytes(32, "big"), "plan", dtype="float32", elements=1, words=1)


def _plan(
    slot: Slot,
    seed: int = 0,
    workload: tuple[Dimensions, ...] = (),
    reaches: Callable[[Dimensions], bool] = lambda shape: True,
) -> list[CorrectnessCase]:
    return plan_cases(slot, _content(seed), workload, reaches)


def _edge(slot: Slot, cases: list[CorrectnessCase], name: str) -> Dimensions:
    assert name in {style.name for style in slot.edges}
    return next(case.dimensions for case in cases if case.style.name == name)


@pytest.mark.parametrize("slot", SLOTS.values(), ids=lambda slot: slot.id)
def test_every_attempt_asks_one_far_shape(slot: Slot) -> None:
    """It is another one for another seed, and the same for the same."""
    plans = [_plan(slot, seed) for seed in (0, 1, 0)]
    found = []
    for plan in plans:
        general = [case.dimensions for case in plan if case.style in ALL_STYLES]
        far = [shape for shape in general if is_far(shape, slot.catalog_shapes)]
        assert far
        found.append(far[-1])
    assert found[0] == found[2] != found[1]


@pytest.mark.parametrize("slot", SLOTS.values(), ids=lambda slot: slot.id)
@pytest.mark.parametrize("seed", range(8))
def test_every_edge_is_asked_where_it_shows(slot: Slot, seed: int) -> None:
    """No jitter takes its meaning away: padding is there, a crowd is one, a softmax has two keys."""
    plan = _plan(slot, seed)
    for style in slot.edges:
        shape = _edge(slot, plan, style.name)
        assert slot.shown(shape, style) == dict(shape), style.name


def test_padding_is_asked_for_where_no_shape_has_any() -> None:
    """A workload whose tokens fill their rows is asked with some more rows, if the domain allows it."""
    slot = SLOTS["collective.moe_finalize_ar_rmsnorm"]
    full = {"num_tokens": 8, "exp_tokens": 8, "topk": 2, "hidden": 64}
    open_plan = _plan(slot, 0, (full,), lambda shape: shape["num_tokens"] == 8 and shape["hidden"] == 64)
    asked = _edge(slot, open_plan, "padded")
    assert asked["exp_tokens"] > asked["num_tokens"] == 8
    narrow = _plan(slot, 0, (full,), lambda shape: dict(shape) == full)
    assert _edge(slot, narrow, "padded") == full


@pytest.mark.parametrize(
    ("slot", "style", "least"),
    [
        ("attention.sdpa", SCALARS, {"num_tokens": 2}),
        ("attention.decode", RAGGED, {"batch": 2}),
        ("attention.msa_block_score", RAGGED, {"batch": 2}),
        ("moe.fused_experts", CROWDED, {"num_tokens": 3}),
        ("collective.moe_finalize_ar_rmsnorm", PADDED, {"exp_tokens": 2}),
    ],
)
def test_an_edge_says_what_it_needs(slot: str, style: object, least: dict[str, int]) -> None:
    """The smallest legal call is enlarged just as far."""
    one = SLOTS[slot]
    smallest = one.legal(dict.fromkeys(one.dimensions, 1))
    shown = one.shown(smallest, style)  # type: ignore[arg-type]
    assert {name: shown[name] for name in least} == least


@pytest.mark.parametrize("slot", [slot for slot in SLOTS.values() if slot.free_scalars], ids=lambda slot: slot.id)
def test_free_scalars_are_drawn_where_they_matter_and_nowhere_else(slot: Slot) -> None:
    """A timed call has a model's scalars; the edge has others, anew in every call."""
    content = Content(bytes(32), "plan", dtype="float32", elements=64, words=1)
    shape = slot.catalog_shapes[0]
    usual = slot.scalars(shape)
    for style in ALL_STYLES:
        assert slot.draw_scalars(shape, style, Source(content, content.generator("a"))) == {}
    drawn = [slot.draw_scalars(shape, SCALARS, Source(content, content.generator("a", index))) for index in range(12)]
    for one in drawn:
        assert set(one) == set(slot.free_scalars)
        assert all(not 2 / 3 < one[name] / usual[name] < 3 / 2 for name in one)
    assert len({tuple(one.values()) for one in drawn}) == len(drawn)


def test_every_float_that_a_slot_takes_is_free_or_only_orders() -> None:
    """A new slot with a scalar has to say which it is."""
    fixed = {
        ("attention.msa_prefill_block_score", "scale"): "only the ranking is judged, which has no unit",
    }
    for slot in SLOTS.values():
        scalars = slot.scalars(slot.catalog_shapes[0])
        floats = {name for name, value in scalars.items() if isinstance(value, float)}
        assert floats - set(slot.free_scalars) == {name for owner, name in fixed if owner == slot.id}
