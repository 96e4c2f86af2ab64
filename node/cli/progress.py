"""Progress of a run on standard error: one line that changes on a terminal, plain lines elsewhere, silence with --json.

Nothing here starts a thread: while a bundle is measured, the machine belongs to the measurement.
"""

from __future__ import annotations

import sys


class ScreenProgress:
    """Shows the progress events of screens; call it with each."""

    def __init__(self, *, silent: bool) -> None:
        self._silent = silent
        self._live = not silent and sys.stderr.isatty()
        self._screen = ""

    def __call__(self, event: dict[str, object]) -> None:
        """Show one event."""
        if self._silent:
            return
        match event.get("event"):
            case "waiting":
                self._update("waiting for the core that measures ...")
            case "screen" if event["outcome"] == "started":
                self._screen = str(event["screen"])
                self._update(f"{self._screen} ...")
            case "screen":
                self._line(f"{event['screen']}: {str(event['outcome']).replace('_', ' ')}")
            case "stage":
                self._update(f"{self._screen}: case {_of(event, 'count')}")
            case "launch":
                text = f"{self._screen}: launch {_of(event, 'launches_max')}, {_bounds(event)}"
                self._update(text)
                self._line(text)

    def clear(self) -> None:
        """Take the changing line off the terminal."""
        if self._live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _update(self, text: str) -> None:
        if self._live:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()

    def _line(self, text: str) -> None:
        if not self._live:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()


def _of(event: dict[str, object], total: str) -> str:
    index = event["index"]
    return f"{index + 1 if isinstance(index, int) else index} of {event[total]}"


def _bounds(event: dict[str, object]) -> str:
    lower = event["lower_ppm"]
    return f"at least {lower / 1e6:.2f}x so far" if isinstance(lower, int) and lower > 0 else "nothing proved yet"
