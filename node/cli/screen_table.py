"""How receipts of screens are shown, and which exit code they mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from config.errors import ExitCode
from node.cli.output import table

if TYPE_CHECKING:
    from rich.console import Console

    from qualify.screens.base import ScreenReceipt

_WORDS = {"passed": "PASS", "failed": "FAIL", "not_applicable": "n.a.", "undecided": "RETRY"}


def exit_code_of(receipts: Sequence[ScreenReceipt]) -> int:
    """Return 0 when nothing stands against the bundle, 3 when it is rejected, 7 when this machine could not tell."""
    outcomes = {receipt.outcome for receipt in receipts}
    if "failed" in outcomes:
        return int(ExitCode.REJECTED)
    return int(ExitCode.NOT_FOUND if "undecided" in outcomes else ExitCode.OK)


def show_screens(console: Console, receipts: Sequence[ScreenReceipt]) -> None:
    """Print one row per screen, then what has to be mended, with place and hint."""
    rows = [
        (receipt.screen, _word(receipt), f"{receipt.elapsed_ns / 1e9:.2f} s", receipt.code or receipt.message)
        for receipt in receipts
    ]
    console.print(table(("screen", "", "took", "says"), rows, whole=("screen", "")))
    for receipt in receipts:
        if not receipt.code:
            continue
        _say(console, receipt.code, receipt.message, receipt.hint, receipt.location)
        for finding in receipt.further:
            _say(console, finding.code, finding.message, finding.hint, finding.location)


def _word(receipt: ScreenReceipt) -> str:
    if receipt.outcome == "passed" and receipt.facts.get("decision") == "undecided":
        return "open"  # too few launches to prove anything, which stands against nobody
    return _WORDS[receipt.outcome]


def _say(console: Console, code: str, message: str, hint: str, location: str) -> None:
    where = f"{location}: " if location else ""
    console.print(f"{where}{message} [{code}]", markup=False, soft_wrap=True)
    if hint:
        console.print(f"  hint: {hint}", markup=False, soft_wrap=True)
