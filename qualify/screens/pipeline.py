"""Screens one after the other; the first that does not pass ends the run.

A composition is a plain tuple of screens. There is no registry and no configuration: who wants other screens passes
another tuple.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from qualify.screens.base import Emit, Screen, ScreenReceipt

_Subject = TypeVar("_Subject")


def run_screens(screens: Iterable[Screen[_Subject]], subject: _Subject, progress: Emit) -> tuple[ScreenReceipt, ...]:
    """Run `screens` on `subject` in order and return the receipts, of which only the last can be one that ends the run.

    `progress` hears of every screen twice, as `{"event": "screen", "screen": ..., "outcome": ..., "code": ...}`: with
    `started`, and when it is done. Raises what a screen raises.
    """
    receipts: list[ScreenReceipt] = []
    for screen in screens:
        progress(_event(screen.name, "started"))
        receipt = screen.run(subject)
        receipts.append(receipt)
        progress(_event(screen.name, receipt.outcome, receipt.code))
        if receipt.ends:
            break
    return tuple(receipts)


def _event(screen: str, outcome: str, code: str = "") -> dict[str, object]:
    return {"event": "screen", "screen": screen, "outcome": outcome, "code": code}
