"""Samples on a line of text, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

WIDTH = 49


def strip_plot(samples: Sequence[tuple[str, float]], marks: Mapping[str, float], *, width: int = WIDTH) -> list[str]:
    """Return one line per (label, value) with a `*` where the value lies, and `marks` as columns through all lines.

    `marks` maps one character to a value; the scale holds every value and every mark. The last line is the scale.
    """
    values = [value for _, value in samples] + list(marks.values())
    if not samples:
        return []
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    columns = {mark: _column(value, low, span, width) for mark, value in marks.items()}
    wide = max(len(label) for label, _ in samples)
    lines = []
    for label, value in samples:
        cells = [" "] * width
        for mark, column in columns.items():
            cells[column] = mark
        cells[_column(value, low, span, width)] = "*"
        lines.append(f"{label:>{wide}}  {''.join(cells)}  {value:.3f}".rstrip())
    right = f"{high:.3f}"
    return [*lines, f"{'':{wide}}  {f'{low:.3f}':<{width - len(right)}}{right}"]


def _column(value: float, low: float, span: float, width: int) -> int:
    return round((value - low) / span * (width - 1))
