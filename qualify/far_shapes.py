"""Shapes far from the public ones: a kernel that is right near what is written down only is not right.

Invariants
1. What is drawn is legal for the slot, reaches the candidate, and has an extent that differs from every public shape's
   by more than a factor of two.
2. Widths are multiples of what vector instructions take; a kernel may count on that, and on nothing else.
3. A domain may be so narrow that there is nothing far in it. Then there is no far shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qualify.slots.base import Dimensions, Slot

ELEMENTS_MAX = 1 << 20  # of all tensors of one call
_FACTOR = 2.0
_EVERY_DRAWS, _SOME_DRAWS, _COUNT_DRAWS = 200, 100, 200


@dataclass(frozen=True, slots=True)
class Span:
    """What an extent may be: from `low` to `high`, all magnitudes alike, in steps of `step`."""

    low: int
    high: int
    step: int = 1

    def draw(self, generator: np.random.Generator) -> int:
        """Return one extent."""
        value = math.exp(generator.uniform(math.log(self.low), math.log(self.high + self.step)))
        return min(self.high, max(self.low, int(value) // self.step * self.step))


_WIDTH = Span(64, 8192, 64)
SPANS: Mapping[str, Span] = {
    "num_tokens": Span(1, 1024),
    "exp_tokens": Span(1, 1024),
    "batch": Span(1, 64),
    "q_len": Span(2, 512),
    "ctx": Span(1, 4096),
    "prefix_blocks": Span(12, 64),
    "block_size": Span(32, 256, 32),
    "d": _WIDTH,
    "hidden": _WIDTH,
    "hidden_dim": _WIDTH,
    "inter": Span(64, 1024, 64),
    "head_dim": Span(32, 256, 32),
    "num_q_heads": Span(1, 32),
    "num_kv_heads": Span(1, 16),
    "num_experts": Span(2, 64),
    "topk": Span(1, 8),
}


def far_shape(
    slot: Slot,
    generator: np.random.Generator,
    reaches: Callable[[Dimensions], bool],
    size: Callable[[Dimensions], int],
    workload: Sequence[Dimensions] = (),
) -> dict[str, int] | None:
    """Return a shape of the candidate's domain that is far from all public ones; None where none was found.

    Public are the shapes of the slot and those of the arena's `workload`. Where nothing is far from both, what is far
    from the slot's will do. All extents are drawn anew first, then some of them around a public shape, then counts
    only: a domain may fix the rest. `size` says how many elements a call has.
    """
    for public in ([*slot.catalog_shapes, *workload], slot.catalog_shapes):
        found = _far_from(public, slot, generator, reaches, size)
        if found is not None:
            return found
    return None


def _far_from(
    known: Sequence[Dimensions],
    slot: Slot,
    generator: np.random.Generator,
    reaches: Callable[[Dimensions], bool],
    size: Callable[[Dimensions], int],
) -> dict[str, int] | None:
    counted = set(slot.count_dimensions)
    free = [one for one in slot.catalog_shapes if slot.jittered(one) == slot.count_dimensions]  # the others are built
    changeable = [name for name in slot.dimensions if name not in slot.flags]
    for number in range(_EVERY_DRAWS + _SOME_DRAWS + _COUNT_DRAWS):
        public = free[int(generator.integers(len(free)))]
        if number < _EVERY_DRAWS:
            drawn = changeable
        elif number < _EVERY_DRAWS + _SOME_DRAWS:
            drawn = [name for name in changeable if name in counted or generator.integers(2)]
        else:
            drawn = [name for name in changeable if name in counted]
        shape = slot.legal({**public, **{name: SPANS[name].draw(generator) for name in drawn}})
        if is_far(shape, known) and size(shape) <= ELEMENTS_MAX and reaches(shape):
            return shape
    return None


def is_far(shape: Dimensions, public: Sequence[Dimensions]) -> bool:
    """Say whether some extent differs from that of every public shape by more than a factor of two."""
    return any(all(_apart(extent, one[name]) for one in public) for name, extent in shape.items())


def _apart(one: int, other: int) -> bool:
    return max(one, other) > _FACTOR * max(1, min(one, other))
