"""Judging an output of which only the ranking inside each row is used: scores of blocks to be selected.

Invariants
1. A score that is expected to be minus infinity (nothing in the block is visible) has to be minus infinity, and no
   other may be; NaN or plus infinity fail. A kernel that looks at what is masked is wrong whatever it ranks first.
2. Of the `k` blocks a row would select, the mean overlap over rows is at least `mean`, and no row's is below `row`. A
   block whose expected score ties with the last expected one counts as selected: which of equals is taken is free.
3. The scores of every row correlate with the expected ones by at least `_CORRELATION`: where most blocks are selected,
   overlap alone would often accept a row of noise. Scores in other units correlate all the same.
"""

from __future__ import annotations

import torch

from qualify.comparison import Comparator, Expectation, Tolerance, WorstElement, in_ppm
from scoring.attempt import NON_FINITE

_CORRELATION = 0.9
_BLOCKS_MIN = 3  # visible blocks from which on a correlation says anything


class TopK(Comparator):
    """The `k` largest scores of every row are the right ones."""

    def __init__(self, k: int, mean: float, row: float) -> None:
        self.k = k
        self.mean = mean
        self.row = row

    @property
    def promise(self) -> str:
        """What a right answer is."""
        return (
            f"the ranking inside each row. Of its {self.k} best at least {self.mean:.1%} are the right ones over all "
            f"rows and {self.row:.0%} in each, ties are free, and the scores of a row correlate with the expected ones "
            f"by {_CORRELATION}. A score is minus infinity exactly where nothing is visible, never NaN or plus "
            "infinity. Of the bounds, `Row` says how near to the last of the best a score counts as one of them."
        )

    def row_bounds(self, expected: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
        """Return the lowest score of every row that still is among its `k` best, less what rounding may move it."""
        rows = expected.reshape(-1, expected.shape[-1])
        last = rows.topk(min(self.k, rows.shape[-1]), dim=-1).values[:, -1]
        return last - tolerance.row * torch.where(last.isfinite(), last.abs(), 0.0)

    def judge(self, got: torch.Tensor, expectation: Expectation) -> int:
        """Return how much of the allowed misses was used, in ppm, or `NON_FINITE`."""
        rows, expected = got.reshape(expectation.expected.shape).to(torch.float32), expectation.expected
        if bool((rows.isnan() | (rows == torch.inf)).any()) or not torch.equal(rows.isneginf(), expected.isneginf()):
            return NON_FINITE
        overlap = self._overlap(rows, expectation)
        mean = (1.0 - float(overlap.mean())) / (1.0 - self.mean)
        row = (1.0 - float(overlap.min())) / (1.0 - self.row)
        strange = (1.0 - float(_correlations(rows, expected).min())) / (1.0 - _CORRELATION)
        return in_ppm(max(mean, row, strange))

    def locate(self, got: torch.Tensor, expectation: Expectation) -> WorstElement:
        """Return the first score that breaks rule 1, else the worst choice of the worst row."""
        rows, expected = got.reshape(expectation.expected.shape).to(torch.float32), expectation.expected
        odd = rows.isnan() | (rows == torch.inf) | (rows.isneginf() != expected.isneginf())
        if bool(odd.any()):
            row, column = divmod(int(odd.view(-1).to(torch.uint8).argmax()), rows.shape[-1])
        else:
            row = int(torch.minimum(self._overlap(rows, expectation), _correlations(rows, expected)).argmin())
            chosen = rows[row].topk(min(self.k, rows.shape[-1])).indices
            column = int(chosen[expected[row, chosen].argmin()])
        bound = float(expectation.row_bound[row])
        return WorstElement(row, column, float(expected[row, column]), float(rows[row, column]), bound)

    def _overlap(self, rows: torch.Tensor, expectation: Expectation) -> torch.Tensor:
        chosen = rows.topk(min(self.k, rows.shape[-1]), dim=-1).indices
        right = expectation.expected.gather(-1, chosen) >= expectation.row_bound[:, None]
        return right.to(torch.float32).mean(dim=-1)


def _correlations(rows: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Return the correlation of every row over its visible blocks, 1 where it says nothing."""
    visible = expected.isfinite()
    count = visible.sum(dim=-1, keepdim=True)
    deviations = []
    for scores in (rows, expected):
        finite = torch.where(visible, scores, 0.0).to(torch.float64)
        deviations.append(torch.where(visible, finite - finite.sum(dim=-1, keepdim=True) / count.clamp(min=1), 0.0))
    got, wanted = deviations
    spread = torch.linalg.vector_norm(wanted, dim=-1)
    norms = torch.linalg.vector_norm(got, dim=-1) * spread
    correlation = torch.where(norms > 0, (got * wanted).sum(dim=-1) / norms.clamp(min=1e-300), 0.0)
    silent = (count[:, 0] < _BLOCKS_MIN) | (spread == 0)
    return torch.where(silent, 1.0, correlation)
