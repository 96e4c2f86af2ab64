"""How the demo tells what it is doing; who shows it, and how, is not its business."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec


class Progress(msgspec.Struct, frozen=True):
    """Where one miner's submission stands, in words."""

    miner: str
    what: str
    now: str


class Reporter(Protocol):
    """Receives the demo's progress."""

    def step(self, text: str) -> None:
        """Say what happens next."""

    def progress(self, rows: Sequence[Progress], note: str) -> None:
        """Show where every submission stands; called only when something changed."""


class Silent:
    """Tells nobody."""

    def step(self, text: str) -> None:
        """Ignore the text."""

    def progress(self, rows: Sequence[Progress], note: str) -> None:
        """Ignore the rows."""
