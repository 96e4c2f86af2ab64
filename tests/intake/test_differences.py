"""Deliberate differences from the reference are documented, and the document names nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from tests.intake import differences
from tests.intake.test_fingerprint import COPIES

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "bundle-identity.md"


def test_the_document_lists_exactly_our_differences() -> None:
    """Every row that a test treats as a difference stands in the table, and the other way round."""
    table = [line for line in DOCUMENT.read_text("utf-8").splitlines() if line.startswith("| ")]
    documented = {name for line in table for name in re.findall(r"`([^`]+)`", line.split("|")[2])}
    groups = (
        differences.CONTENT_HASH,
        differences.ARCHIVE,
        differences.MANIFEST,
        differences.TREE,
        differences.CLOSURE,
        differences.VALUES,
        differences.ADDRESSES,
        differences.RESOLUTION,
    )
    ours = {name for group in groups for name in group}
    assert documented - set(COPIES) == ours
    assert documented & set(COPIES) <= set(COPIES)
