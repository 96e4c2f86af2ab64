"""Judging one output against the referee's own expectation.

Invariants
1. `Rows`: an element is off by |got - expected| over absolute + relative * |expected|. At most `stray` of all elements
   are off by more than 1, none by more than `outlier`; a row passes when the norm of its error is at most `row` times
   the norm of the expected row plus `peak` times its largest element. Where `whole` is given, the norm of all errors
   is at most that times the norm of all that is expected. The worst of these decides.
2. The figure is in ppm of the bound: `AT_BOUND` still passes; NaN or infinity gives `NON_FINITE`.
3. Expectations stay in the referee; the output is read as it lies in shared memory, never through an arm.
4. A tolerance cannot be spent everywhere: the row bound is far tighter than the element bound.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from scoring.attempt import AT_BOUND, NON_FINITE

_CHUNK_ELEMENTS = 1 << 18  # work in pieces that stay in a core's cache
_CEILING_PPM = 10**12


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Bounds for one dtype; all relative figures are fractions of the expected value."""

    absolute: float  # element: |got - expected| <= absolute + relative * |expected|
    relative: float
    row: float  # row: ||got - expected|| <= row * ||expected|| + peak * max |expected| + row_floor * sqrt(row length)
    peak: float  # room for the roundings of a row that one element dominates
    row_floor: float  # what rounding of the smallest representable values may cost one element
    stray: float = 0.0  # part of all elements that may lie outside their bound ...
    outlier: float = 1.0  # ... by at most this factor
    spread: float = 0.0  # part of the error that the row bound allows on average, granted to every element besides:
    # where an element is a long sum, its rounding goes with its row's magnitude and not with its own
    whole: float = 0.0  # all rows together: ||got - expected|| <= whole * ||expected||; 0: not asked. A single row may
    # be a small difference of large parts and lose much; a narrower format loses the same in all of them


# Row bounds leave room for three roundings of the output, and for nothing else.
STANDARD_TOLERANCES: Mapping[str, Tolerance] = {
    "bfloat16": Tolerance(0.02, 0.02, 0.005, 0.008, 1e-38),
    "float16": Tolerance(0.01, 0.01, 0.0008, 0.0015, 6e-8),
    "float32": Tolerance(1e-5, 1e-5, 2e-6, 2e-6, 1e-38),
}

# For inputs whose outcome every dtype represents: there is nothing to round.
EXACT = Tolerance(1e-6, 0.0, 0.0, 0.0, 1e-6)


@dataclass(slots=True)
class Expectation:
    """What one output has to be: float32 rows (the last axis; all others flattened in front) and their bounds."""

    expected: torch.Tensor  # (rows, width)
    row_bound: torch.Tensor  # (rows,), positive; what `Comparator.row_bounds` returned
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
    whole_error: float = 0.0  # norm of all errors, when the output as a whole is what failed
    whole_bound: float = 0.0

    def __str__(self) -> str:
        place = f"row={self.row} column={self.column}"
        if self.row_error:
            place = f"row={self.row} row_error={self.row_error:.4g} row_bound={self.row_bound:.4g} column={self.column}"
        if self.whole_error:
            place = f"whole_error={self.whole_error:.4g} whole_bound={self.whole_bound:.4g} row={self.row}"
            place += f" column={self.column}"
        return f"{place} expected={self.expected:.7g} got={self.got:.7g} bound={self.bound:.3g}"


class Comparator(ABC):
    """How outputs of a slot are judged. Stateless. `promise` says it in a sentence, with what may not be finite."""

    @property
    @abstractmethod
    def promise(self) -> str:
        """What a right answer is."""

    @abstractmethod
    def row_bounds(self, expected: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
        """Return one number for every row of float32 `expected` (any shape), (rows,)."""

    @abstractmethod
    def judge(self, got: torch.Tensor, expectation: Expectation) -> int:
        """Return the worst error of `got` in ppm of its bound, or `NON_FINITE`."""

    @abstractmethod
    def locate(self, got: torch.Tensor, expectation: Expectation) -> WorstElement:
        """Return where `got` is furthest from its expectation."""

    def expect(self, expected: torch.Tensor, tolerance: Tolerance, bounds: torch.Tensor | None = None) -> Expectation:
        """Return the expectation of one float32 output. `bounds` are its `row_bounds`, if they are known."""
        rows = expected.view(-1, expected.shape[-1])
        return Expectation(rows, self.row_bounds(rows, tolerance) if bounds is None else bounds, tolerance)


class Rows(Comparator):
    """Every element and every row within its bound."""

    @property
    def promise(self) -> str:
        """What a right answer is."""
        return "every element and every row within the bounds below; no output may be infinite or NaN."

    def row_bounds(self, expected: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
        """Return the bound of every row's error norm."""
        rows = expected.reshape(-1, expected.shape[-1])
        floor = tolerance.row_floor * math.sqrt(rows.shape[-1])
        # The largest element by amax: torch's infinity norm takes twenty times as long.
        peak: torch.Tensor = rows.abs().amax(dim=-1).mul_(tolerance.peak)
        bounds: torch.Tensor = torch.linalg.vector_norm(rows, dim=-1).mul_(tolerance.row)
        return bounds.add_(peak).add_(floor)

    def judge(self, got: torch.Tensor, expectation: Expectation) -> int:
        """Return the worst error of `got` in ppm of its bound, or `NON_FINITE`."""
        rows, tolerance = got.reshape(expectation.expected.shape), expectation.tolerance
        count, width = rows.shape
        step = max(1, min(count, _CHUNK_ELEMENTS // width))
        scratch = torch.empty(2, step, width)
        worst, strays = 0.0, 0
        errors = norms = 0.0  # squared
        for start in range(0, count, step):
            piece = slice(start, start + step)
            expected = expectation.expected[piece]
            error, bound = scratch[0, : len(expected)], scratch[1, : len(expected)]
            error.copy_(rows[piece]).sub_(expected)
            lengths = torch.linalg.vector_norm(error, dim=-1)
            if tolerance.whole:
                errors += float(lengths.double().square_().sum())
                norms += float(torch.linalg.vector_norm(expected, dtype=torch.float64).square_())
            row = lengths.div_(expectation.row_bound[piece]).max()
            _bound(expected, expectation.row_bound[piece], tolerance, bound)
            ratios = error.abs_().div_(bound)
            element = ratios.amax(dim=-1).max().div_(tolerance.outlier)
            ratio = float(torch.maximum(row, element))
            if not math.isfinite(ratio):
                return NON_FINITE
            worst = max(worst, ratio)
            if tolerance.stray:
                strays += int((ratios > 1.0).sum())
        if tolerance.stray:
            worst = max(worst, strays / (tolerance.stray * count * width))
        if tolerance.whole:
            worst = max(worst, math.sqrt(errors) / _whole_bound(tolerance, math.sqrt(norms), count * width))
        return in_ppm(worst)

    def locate(self, got: torch.Tensor, expectation: Expectation) -> WorstElement:
        """Return the element that is furthest outside its bound (the first non-finite one if there is any).

        When every element is within its bound, the row that fails as a whole is named with its worst element.
        """
        rows = got.reshape(expectation.expected.shape).to(torch.float32)
        bound = _bound(expectation.expected, expectation.row_bound, expectation.tolerance)
        error = rows - expectation.expected
        ratio = error.abs().div_(bound)
        ratio = torch.where(torch.isfinite(ratio), ratio, torch.inf)
        row, column = divmod(int(ratio.argmax()), rows.shape[-1])
        row_error = row_bound = 0.0
        if float(ratio[row, column]) <= expectation.tolerance.outlier:
            norms = torch.linalg.vector_norm(error, dim=-1)
            row = int((norms / expectation.row_bound).argmax())
            column = int(ratio[row].argmax())
            row_error, row_bound = float(norms[row]), float(expectation.row_bound[row])
        whole_error = whole_bound = 0.0
        if expectation.tolerance.whole and row_error <= row_bound:
            length = float(torch.linalg.vector_norm(expectation.expected, dtype=torch.float64))
            whole_bound = _whole_bound(expectation.tolerance, length, rows.numel())
            whole_error = float(torch.linalg.vector_norm(error, dtype=torch.float64))
            if whole_error <= whole_bound or not row_error:
                whole_error = whole_bound = 0.0
            else:
                row_error = row_bound = 0.0
        return WorstElement(
            row,
            column,
            float(expectation.expected[row, column]),
            float(rows[row, column]),
            float(bound[row, column]),
            row_error,
            row_bound,
            whole_error,
            whole_bound,
        )


ROWS = Rows()


def in_ppm(worst: float) -> int:
    """Return a share of a bound as whole ppm, rounded up and capped."""
    return min(math.ceil(worst * AT_BOUND), _CEILING_PPM)


def passes(worst_ppm: int) -> bool:
    """Say whether a figure of `judge` is within bounds."""
    return 0 <= worst_ppm <= AT_BOUND


def _whole_bound(tolerance: Tolerance, length: float, elements: int) -> float:
    """Return what the norm of all errors may be where the norm of all that is expected is `length`."""
    return tolerance.whole * length + tolerance.row_floor * math.sqrt(elements)


def _bound(
    expected: torch.Tensor, row_bound: torch.Tensor, tolerance: Tolerance, out: torch.Tensor | None = None
) -> torch.Tensor:
    bound: torch.Tensor = torch.abs(expected, out=out).mul_(tolerance.relative).add_(tolerance.absolute)
    if tolerance.spread:
        bound.add_(row_bound[:, None], alpha=tolerance.spread / math.sqrt(expected.shape[-1]))
    return bound
