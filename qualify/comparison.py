"""Judging one output against the referee's own expectation.

Invariants
1. An element passes when |got - expected| <= absolute + relative * |expected|; a row passes when the norm of its
   error is at most `row` times the norm of the expected row plus `peak` times its largest
   element. The worse of the two decides.
2. The figure is in ppm of the bound: `AT_BOUND` still passes; NaN or infinity gives `NON_FINITE`.
3. Expectations stay in the referee; the output is read as it lies in shared memory, never through an arm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from qualify.slots.base import Tolerance
from scoring.attempt import AT_BOUND, NON_FINITE

_CHUNK_ELEMENTS = 1 << 18  # work in pieces that stay in a core's cache
_CEILING_PPM = 10**12


@dataclass(slots=True)
class Expectation:
    """What one output has to be: float32 rows (the last axis; all others flattened in front) and their bounds."""

    expected: torch.Tensor  # (rows, width)
    row_bound: torch.Tensor  # (rows,), positive
    tolerance: Tolerance


@dataclass(frozen=True, slots=True)
class WorstElement:
    """Where an output is furthest from its expectation, for people: an element, or a row as a whole."""

    row: int
    column: int
    expected: float
    got: float
    bound: float
    row_error: float = 0.0  # norm of the row's error, when the row is what failed
    row_bound: float = 0.0

    def __str__(self) -> str:
        place = f"row={self.row} column={self.column}"
        if self.row_error:
            place = f"row={self.row} row_error={self.row_error:.4g} row_bound={self.row_bound:.4g} column={self.column}"
        return f"{place} expected={self.expected:.7g} got={self.got:.7g} bound={self.bound:.3g}"


def expect(expected: torch.Tensor, tolerance: Tolerance, bounds: torch.Tensor | None = None) -> Expectation:
    """Return the expectation of one float32 output of any shape. `bounds` are its `row_bounds`, if they are known."""
    rows = expected.view(-1, expected.shape[-1])
    return Expectation(rows, row_bounds(rows, tolerance) if bounds is None else bounds, tolerance)


def row_bounds(expected: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
    """Return the bound of every row's error norm, (rows,), for float32 `expected` of any shape."""
    rows = expected.reshape(-1, expected.shape[-1])
    floor = tolerance.row_floor * math.sqrt(rows.shape[-1])
    # The largest element by amax: torch's infinity norm takes twenty times as long.
    peak: torch.Tensor = rows.abs().amax(dim=-1).mul_(tolerance.peak)
    bounds: torch.Tensor = torch.linalg.vector_norm(rows, dim=-1).mul_(tolerance.row)
    return bounds.add_(peak).add_(floor)


def judge(got: torch.Tensor, expectation: Expectation) -> int:
    """Return the worst error of `got` in ppm of its bound, or `NON_FINITE`."""
    rows = got.reshape(expectation.expected.shape)
    count, width = rows.shape
    step = max(1, min(count, _CHUNK_ELEMENTS // width))
    scratch = torch.empty(2, step, width)
    worst = 0.0
    for start in range(0, count, step):
        piece = slice(start, start + step)
        expected = expectation.expected[piece]
        error, bound = scratch[0, : len(expected)], scratch[1, : len(expected)]
        error.copy_(rows[piece]).sub_(expected)
        row = torch.linalg.vector_norm(error, dim=-1).div_(expectation.row_bound[piece]).max()
        _bound(expected, expectation.tolerance, bound)
        element = error.abs_().div_(bound).amax(dim=-1).max()
        ratio = float(torch.maximum(row, element))
        if not math.isfinite(ratio):
            return NON_FINITE
        worst = max(worst, ratio)
    return min(math.ceil(worst * AT_BOUND), _CEILING_PPM)


def passes(worst_ppm: int) -> bool:
    """Say whether a figure of `judge` is within bounds."""
    return 0 <= worst_ppm <= AT_BOUND


def locate_worst(got: torch.Tensor, expectation: Expectation) -> WorstElement:
    """Return the element that is furthest outside its bound (the first non-finite one if there is any).

    When every element is within its bound, the row that fails as a whole is named with its worst element.
    """
    rows = got.reshape(expectation.expected.shape).to(torch.float32)
    bound = _bound(expectation.expected, expectation.tolerance)
    error = rows - expectation.expected
    ratio = error.abs().div_(bound)
    ratio = torch.where(torch.isfinite(ratio), ratio, torch.inf)
    row, column = divmod(int(ratio.argmax()), rows.shape[-1])
    row_error = row_bound = 0.0
    if float(ratio[row, column]) <= 1.0:
        norms = torch.linalg.vector_norm(error, dim=-1)
        row = int((norms / expectation.row_bound).argmax())
        column = int(ratio[row].argmax())
        row_error, row_bound = float(norms[row]), float(expectation.row_bound[row])
    return WorstElement(
        row,
        column,
        float(expectation.expected[row, column]),
        float(rows[row, column]),
        float(bound[row, column]),
        row_error,
        row_bound,
    )


def _bound(expected: torch.Tensor, tolerance: Tolerance, out: torch.Tensor | None = None) -> torch.Tensor:
    return torch.abs(expected, out=out).mul_(tolerance.relative).add_(tolerance.absolute)
