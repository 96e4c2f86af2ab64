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

_CHUNK_ELEMENTS = 1 << 17  # work in pieces that stay in a core's cache
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


def expect(expected: torch.Tensor, tolerance: Tolerance) -> Expectation:
    """Return the expectation of one float32 output of any shape."""
    rows = expected.view(-1, expected.shape[-1])
    floor = tolerance.row_floor * math.sqrt(rows.shape[-1])
    peak = torch.linalg.vector_norm(rows, ord=math.inf, dim=-1).mul_(tolerance.peak)
    row_bound = torch.linalg.vector_norm(rows, dim=-1).mul_(tolerance.row).add_(peak).add_(floor)
    return Expectation(rows, row_bound, tolerance)


def judge(got: torch.Tensor, expectation: Expectation) -> int:
    """Return the worst error of `got` in ppm of its bound, or `NON_FINITE`."""
    rows = got.reshape(expectation.expected.shape)
    step = max(1, _CHUNK_ELEMENTS // rows.shape[-1])
    worst = 0.0
    for start in range(0, rows.shape[0], step):
        piece = slice(start, start + step)
        expected = expectation.expected[piece]
        error = rows[piece].to(torch.float32, copy=True).sub_(expected)
        row = torch.linalg.vector_norm(error, dim=-1).div_(expectation.row_bound[piece]).max()
        element = error.abs_().div_(_bound(expected, expectation.tolerance)).max()
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


def _bound(expected: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
    return expected.abs().mul_(tolerance.relative).add_(tolerance.absolute)
