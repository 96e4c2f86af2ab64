"""Far shapes: legal, inside the domain, far from what is public, small enough, and judged fairly."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from qualify.comparison import passes
from qualify.content import NORMAL, SHIFTED
from qualify.correctness import elements
from qualify.dtypes import DTYPES
from qualify.far_shapes import ELEMENTS_MAX, SPANS, far_shape, is_far
from qualify.slots.base import Dimensions, Slot
from qualify.slots.registry import PROFILES, SLOTS
from qualify.slots.rehearsal import Rehearsal, worst
from scoring.attempt import AT_BOUND

EVERY = [*SLOTS.values(), *PROFILES.values()]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Keep torch from splitting small tensors among threads: that takes longer than the work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def draw(slot: Slot, seed: int, **fixed: int) -> dict[str, int] | None:
    """Return a far shape of a domain in which some extents are fixed."""

    def reaches(shape: Dimensions) -> bool:
        return all(shape[name] == extent for name, extent in fixed.items())

    return far_shape(slot, np.random.default_rng(seed), reaches, lambda shape: elements(slot, shape))


@pytest.mark.parametrize("slot", SLOTS.values(), ids=lambda slot: slot.id)
def test_a_domain_without_limits_always_has_a_far_shape(slot: Slot) -> None:
    """It is legal, differs by more than a factor of two from all that is public, and differs from draw to draw."""
    assert set(slot.dimensions) <= set(SPANS) | slot.flags
    shapes = [draw(slot, seed) for seed in range(40)]
    for shape in shapes:
        assert shape is not None
        assert slot.legal(shape) == shape
        assert is_far(shape, slot.catalog_shapes)
        assert elements(slot, shape) <= ELEMENTS_MAX
    assert len({tuple((shape or {}).items()) for shape in shapes}) > 20


@pytest.mark.parametrize("slot", SLOTS.values(), ids=lambda slot: slot.id)
def test_what_an_arena_measures_is_public_too(slot: Slot) -> None:
    """A shape is far from the workload as well, where the domain holds one."""
    workload = [{**shape, **{name: 2 * shape[name] for name in slot.count_dimensions}} for shape in slot.catalog_shapes]
    for seed in range(20):
        shape = far_shape(
            slot, np.random.default_rng(seed), lambda _: True, lambda shape: elements(slot, shape), workload
        )
        assert shape is not None
        assert is_far(shape, workload)
        assert is_far(shape, slot.catalog_shapes)


def test_a_domain_that_fixes_widths_is_left_by_its_counts() -> None:
    """What the domain leaves open is drawn."""
    slot = SLOTS["norm.rmsnorm"]
    shapes = [draw(slot, seed, hidden_dim=1536) for seed in range(20)]
    assert all(shape is not None and shape["hidden_dim"] == 1536 for shape in shapes)


def test_a_domain_of_public_shapes_has_no_far_one() -> None:
    """Then nothing is added."""
    slot = SLOTS["norm.rmsnorm"]
    assert draw(slot, 0, num_tokens=8, hidden_dim=2880) is None


def test_near_is_a_factor_of_two_in_every_extent() -> None:
    """One extent that lies apart from those of all public shapes is enough."""
    public = [{"a": 8, "b": 100}, {"a": 64, "b": 100}]
    assert not is_far({"a": 16, "b": 200}, public)
    assert is_far({"a": 17, "b": 100}, public)
    assert is_far({"a": 8, "b": 49}, public)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("slot", EVERY, ids=lambda slot: slot.key)
def test_stock_is_right_far_away_too(slot: Slot, dtype: str) -> None:
    """Bounds that hold near public shapes hold there: nothing honest is refused for an extent."""
    for seed, style in ((0, NORMAL), (1, SHIFTED), (2, NORMAL), (3, SHIFTED)):
        shape = draw(slot, seed)
        assert shape is not None
        call = Rehearsal(slot, dtype, style, dimensions=shape)
        call.run_stock()
        figure = worst(call.figures(call.expected()))
        assert passes(figure), (shape, style.name, figure)
        assert figure <= 0.9 * AT_BOUND, (shape, style.name, figure)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("slot", EVERY, ids=lambda slot: slot.key)
def test_every_edge_shows_on_the_shape_it_is_asked_on(slot: Slot, dtype: str) -> None:
    """Whatever public shape an edge starts from, the shape it is asked on is legal and shows it."""
    for style in slot.edges:
        for public in slot.catalog_shapes:
            shape = slot.legal(slot.shown(public, style))
            assert slot.shown(shape, style) == shape
        call = Rehearsal(slot, dtype, style, dimensions=slot.legal(slot.shown(slot.catalog_shapes[0], style)))
        call.run_stock()
        assert passes(worst(call.figures(call.expected())))
