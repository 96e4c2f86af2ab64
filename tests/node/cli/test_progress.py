"""Progress of a run on standard error."""

from __future__ import annotations

import sys

import pytest

from node.cli.progress import ScreenProgress

EVENTS: tuple[dict[str, object], ...] = (
    {"event": "waiting"},
    {"event": "sealed", "commitment": "00"},
    {"event": "screen", "screen": "speed", "outcome": "started", "code": ""},
    {"event": "stage", "index": 0, "count": 3},
    {"event": "launch", "index": 1, "launches_max": 10, "lower_ppm": 1_210_000, "upper_ppm": 1_400_000},
    {"event": "screen", "screen": "speed", "outcome": "not_applicable", "code": ""},
)


def shown(*, silent: bool) -> None:
    """Show all events."""
    progress = ScreenProgress(silent=silent)
    for event in EVENTS:
        progress(event)
    progress.clear()


def test_a_log_gets_whole_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """One line per launch and per screen that is done; no control characters."""
    shown(silent=False)
    assert capsys.readouterr() == ("", "speed: launch 2 of 10, at least 1.21x so far\nspeed: not applicable\n")


def test_a_terminal_gets_one_line_that_goes_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every state overwrites the one before; nothing is left when the result is printed."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    shown(silent=False)
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 0)
    for text in ("waiting for the core", "speed ...", "case 1 of 3", "launch 2 of 10"):
        assert text in err
    assert err.endswith("\r\x1b[K")


def test_json_has_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    """Standard error stays empty."""
    shown(silent=True)
    assert capsys.readouterr() == ("", "")
