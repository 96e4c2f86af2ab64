"""Samples as text."""

from __future__ import annotations

from node.cli.plot import strip_plot


def test_every_sample_lies_between_the_marks_it_lies_between() -> None:
    """Columns grow with values; the scale is under the samples and values are beside them."""
    lines = strip_plot([("0", 1.2), ("10", 0.9)], {"|": 1.0}, width=31)
    assert lines == [
        " 0            |                   *  1.200",
        "10  *         |                      0.900",
        "    0.900                     1.200",
    ]


def test_equal_samples_are_one_column() -> None:
    """A scale without extent divides by nothing."""
    assert strip_plot([("0", 1.0)], {"|": 1.0}, width=11)[0] == "0  *            1.000"


def test_no_samples_are_no_lines() -> None:
    """An attempt that ended before its launches has nothing to draw."""
    assert strip_plot([], {"|": 1.0}) == []
