"""What counts as everybody's."""

from __future__ import annotations

from pathlib import Path

from intake.content_hash import read_tree
from intake.public_code import public_code
from intake.screen import screen_files


def test_examples_and_new_bundles_are_public() -> None:
    """The pieces of every example are public, and so are those of the bundles that `init` writes."""
    report = screen_files(read_tree(Path(__file__).parents[2] / "examples" / "silu_fast"), served=None).report
    known = public_code()
    assert set(report.pieces) <= known.pieces
    assert {part.digest for part in report.parts} <= known.parts
    assert len(known.pieces) > 6
