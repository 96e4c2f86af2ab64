"""Judging an output whose weights may have been quantised: by direction, row by row and as a whole.

Invariants
1. The cosine between everything got and everything expected is at least `cosine`, in float64.
2. No row is off by more than `row` of its norm, and no row's norm by more than `norm` of it: a cosine of all alone
   would let small rows be anything, and says nothing of size.
3. NaN and infinity fail.
"""

from __future__ import annotations

import math

import torch

from qualify.comparison import Comparator, Expectation, Tolerance, WorstElement, in_ppm
from scoring.attempt import NON_FINITE


class Alignment(Comparator):
    """Outputs point where they have to, each row with its length."""

    def __init__(self, cosine: float, row: float, norm: float) -> None:
        self.cosine = cosine
        self.row = row
        self.norm = norm

    @property
    def promise(self) -> str:
        """What a right answer is."""
        return (
            f"direction. The cosine over all of an output is at least {self.cosine}, the error of a row at most "
            f"{self.row:.0%} of its norm, and the norm of a row off by at most {self.norm:.0%}; no output may be "
            "infinite or NaN. The bounds below only say what rounding of the smallest values may cost."
        )

    def row_bounds(self, expected: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
        """Return the norm of every row, with room for the smallest values the dtype has."""
        rows = expected.reshape(-1, expected.shape[-1])
        floor = tolerance.row_floor * math.sqrt(rows.shape[-1]) / self.norm
        bounds: torch.Tensor = torch.linalg.vector_norm(rows, dim=-1).add_(floor)
        return bounds

    def judge(self, got: torch.Tensor, expectation: Expectation) -> int:
        """Return the worst of the three figures in ppm of its bound, or `NON_FINITE`."""
        rows, expected = got.reshape(expectation.expected.shape).to(torch.float64), expectation.expected.double()
        if not bool(rows.isfinite().all()):
            return NON_FINITE
        norms = torch.linalg.vector_norm(rows), torch.linalg.vector_norm(expected)
        size = float(norms[0] * norms[1])
        cosine = float((rows * expected).sum()) / size if size > 0 else float(norms[0] == norms[1])
        error = torch.linalg.vector_norm(rows - expected, dim=-1)
        length = (torch.linalg.vector_norm(rows, dim=-1) - torch.linalg.vector_norm(expected, dim=-1)).abs()
        return in_ppm(
            max(
                max(0.0, 1.0 - cosine) / (1.0 - self.cosine),
                float((error / expectation.row_bound).max()) / self.row,
                float((length / expectation.row_bound).max()) / self.norm,
            )
        )

    def locate(self, got: torch.Tensor, expectation: Expectation) -> WorstElement:
        """Return the worst element of the row that is furthest off for its size."""
        rows, expected = got.reshape(expectation.expected.shape).to(torch.float32), expectation.expected
        error = (rows - expected).abs().nan_to_num(torch.inf)
        norms = torch.linalg.vector_norm(error, dim=-1) / expectation.row_bound
        row = int(norms.nan_to_num(torch.inf).argmax())
        column = int(error[row].argmax())
        bound = self.row * float(expectation.row_bound[row])
        return WorstElement(
            row, column, float(expected[row, column]), float(rows[row, column]), bound,
            float(torch.linalg.vector_norm(rows[row] - expected[row])), bound,
        )  # fmt: skip
