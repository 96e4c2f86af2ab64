"""Judging outputs: element bounds, row bounds, non-finite values."""

from __future__ import annotations

import math

import pytest
import torch

from qualify.comparison import ROWS, STANDARD_TOLERANCES, Tolerance, passes
from scoring.attempt import AT_BOUND, NON_FINITE

BF16 = STANDARD_TOLERANCES["bfloat16"]


def sample(rows: int = 300, width: int = 700) -> torch.Tensor:
    """Return a float32 expectation."""
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(1))


def test_a_rounded_copy_passes() -> None:
    """Rounding to the dtype of the call is far inside the bounds."""
    expected = sample()
    figure = ROWS.judge(expected.to(torch.bfloat16), ROWS.expect(expected, BF16))
    assert passes(figure)
    assert 0 < figure < AT_BOUND // 2


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_non_finite_element_fails(value: float) -> None:
    """NaN and infinity never hide in a maximum."""
    expected = sample()
    got = expected.clone()
    got[299, 699] = value
    figure = ROWS.judge(got, ROWS.expect(expected, BF16))
    assert figure == NON_FINITE
    assert not passes(figure)
    worst = ROWS.locate(got, ROWS.expect(expected, BF16))
    assert (worst.row, worst.column) == (299, 699)


def test_one_wrong_element_fails_and_is_named() -> None:
    """The worst element is found wherever it lies."""
    expected = sample()
    got = expected.clone()
    got[123, 45] += 0.5
    assert not passes(ROWS.judge(got, ROWS.expect(expected, BF16)))
    worst = ROWS.locate(got, ROWS.expect(expected, BF16))
    assert (worst.row, worst.column) == (123, 45)
    assert "row=123 column=45" in str(worst)


def test_the_tolerance_cannot_be_spent_on_every_element() -> None:
    """An error inside every element's bound still fails when a whole row has it."""
    expected = sample().abs() + 1
    got = expected * 1.015
    element = ((got - expected).abs() / (0.02 + 0.02 * expected)).max()
    assert element < 1
    assert not passes(ROWS.judge(got, ROWS.expect(expected, BF16)))
    assert "row_error=" in str(ROWS.locate(got, ROWS.expect(expected, BF16)))


def test_rows_of_small_values_are_not_swallowed_by_the_absolute_bound() -> None:
    """Zeros do not pass for outputs smaller than the absolute tolerance."""
    expected = sample() * 1e-4
    assert not passes(ROWS.judge(torch.zeros_like(expected), ROWS.expect(expected, BF16)))


def test_exact_zeros_are_expected_where_the_reference_is_zero() -> None:
    """A row of zeros passes only as zeros."""
    expected = torch.zeros(4, 16)
    assert ROWS.judge(torch.zeros(4, 16), ROWS.expect(expected, BF16)) == 0
    assert not passes(ROWS.judge(torch.full((4, 16), 1e-3), ROWS.expect(expected, BF16)))


def test_the_figure_is_one_million_at_the_bound() -> None:
    """ppm of the bound: slightly inside passes, slightly outside fails."""
    expected = torch.zeros(1, 4096)
    expected[0, 1:] = 100.0
    for error, good in ((0.0199, True), (0.0201, False)):
        got = expected.clone()
        got[0, 0] = error
        assert passes(ROWS.judge(got, ROWS.expect(expected, BF16))) is good


def test_the_whole_is_bounded_where_no_row_is() -> None:
    """One row may lose much; all rows together may not lose half as much each."""
    tolerance = Tolerance(1.0, 1.0, 0.05, 0.0, 1e-38, whole=0.01)
    expected = torch.ones(100, 64)
    expectation = ROWS.expect(expected, tolerance)
    one = expected.clone()
    one[3] *= 1.04
    assert passes(ROWS.judge(one, expectation))
    everywhere = expected * 1.02
    assert not passes(ROWS.judge(everywhere, expectation))
    assert "whole_error=1.6 whole_bound=0.8" in str(ROWS.locate(everywhere, expectation))
    assert "whole" not in str(ROWS.locate(one, expectation))
