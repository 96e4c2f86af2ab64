"""The generated reference."""

from __future__ import annotations

from pathlib import Path

from config.errors import ExitCode
from node.cli.reference import EXIT_TEXT, document

DOCUMENT = Path(__file__).parents[3] / "docs" / "cli.md"


def test_the_reference_is_up_to_date() -> None:
    """docs/cli.md is what the command tree says; run `python -m node.cli.reference` to renew it."""
    assert DOCUMENT.read_text("utf-8") == document()


def test_every_exit_code_is_described() -> None:
    """No exit code lacks a meaning."""
    assert set(EXIT_TEXT) == set(ExitCode)
