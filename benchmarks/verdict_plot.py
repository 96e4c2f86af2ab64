"""Draws `docs/verdict-power.svg` from `benchmarks/results/verdict_power.json`: `python -m benchmarks.verdict_plot`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "benchmarks" / "results" / "verdict_power.json"
TARGET = ROOT / "docs" / "verdict-power.svg"
GAINS = ("0.005", "0.01", "0.02", "0.05")
COLOURS = ("#9ecae1", "#6baed6", "#3182bd", "#08519c")
LEFT, TOP, ROW, BAR, WIDTH = 230, 92, 54, 9, 300
SECOND = LEFT + WIDTH + 60  # left edge of the panel of launches


def rows_of(result: dict[str, Any]) -> list[tuple[str, dict[str, Any], dict[str, float]]]:
    """Return name, row under the registered policy, and the bracket rule's rates."""
    brackets = result["bracket_rule"]
    return [
        (noise, result["recorded"][noise][design], brackets.get(noise, {}))
        for noise, design in result["registered"].items()
    ]


def text(x: float, y: float, words: str, size: int = 12, anchor: str = "start", colour: str = "#222") -> str:
    """Return one line of text."""
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">{words}</text>'


def bar(x: float, y: float, width: float, colour: str) -> str:
    """Return one bar."""
    return f'<rect x="{x:.0f}" y="{y:.0f}" width="{max(width, 0.5):.1f}" height="{BAR}" fill="{colour}"/>'


def draw(result: dict[str, Any]) -> str:
    """Return the picture: power and launches per noise row, and how often what should not pass does."""
    rows = rows_of(result)
    height = TOP + ROW * len(rows) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1080 {height}" font-family="sans-serif">',
        f'<rect width="1080" height="{height}" fill="white"/>',
        text(20, 28, "Who passes one attempt, by true gain above the margin (alpha 0.5 %, at most 96 launches)", 16),
        text(LEFT, TOP - 14, "attempts that pass"), text(SECOND, TOP - 14, "median launches of those"),
        text(1060, TOP - 14, "what should not pass, and does", anchor="end"),
    ]  # fmt: skip
    for number, (gain, colour) in enumerate(zip(GAINS, COLOURS, strict=True)):
        parts += [bar(LEFT + 110 * number, 46, 20, colour), text(LEFT + 26 + 110 * number, 55, f"+{float(gain):.1%}")]
    for number, (noise, row, bracket) in enumerate(rows):
        top = TOP + ROW * number
        parts.append(text(LEFT - 10, top + 24, noise, anchor="end"))
        for place, (gain, colour) in enumerate(zip(GAINS, COLOURS, strict=True)):
            at, y = row["gains"][gain], top + place * (BAR + 2)
            parts.append(bar(LEFT, y, WIDTH * at["power"], colour))
            parts.append(text(LEFT + WIDTH * at["power"] + 4, y + BAR - 1, f"{at['power']:.0%}", 9, colour="#666"))
            if at["power"] >= 0.05:
                parts.append(bar(SECOND, y, 1.5 * at["median_launches"], colour))
                parts.append(
                    text(SECOND + 1.5 * at["median_launches"] + 4, y + BAR - 1, f"{at['median_launches']:.0f}", 9)
                )
        if "false_rate" in row:
            parts.append(text(1060, top + 16, f"{row['false_rate']:.2%} of code at exactly the margin", 11, "end"))
        if bracket:
            rule = f"{bracket['identical code']:.0%} of identical code, by baseline/candidate/baseline"
            parts.append(text(1060, top + 32, rule, 11, "end", "#b30000"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    """Draw it."""
    TARGET.write_text(draw(json.loads(SOURCE.read_text("utf-8"))), "utf-8")


if __name__ == "__main__":
    main()
