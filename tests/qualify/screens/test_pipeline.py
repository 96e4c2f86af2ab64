"""Screens in a row."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from qualify.screens.base import Examined, Matter, Outcome, ScreenReceipt, make_receipt
from qualify.screens.pipeline import run_screens


@dataclass(frozen=True)
class Fixed:
    """A screen whose outcome stands before it runs; it writes its name on its subject."""

    name: str
    outcome: Outcome

    def run(self, subject: list[str], /) -> ScreenReceipt:
        """Note the visit and answer."""
        subject.append(self.name)
        return make_receipt(self.name, Examined(self.outcome, "as told"), Matter(), 1)


def test_all_screens_run_in_order_while_nothing_fails() -> None:
    """What does not apply stops nothing."""
    visits: list[str] = []
    screens = (Fixed("static", "passed"), Fixed("build", "not_applicable"), Fixed("abi", "passed"))
    receipts = run_screens(screens, visits, lambda event: None)
    assert visits == [receipt.screen for receipt in receipts] == ["static", "build", "abi"]


@pytest.mark.parametrize("outcome", ["failed", "undecided"])
def test_the_first_that_does_not_pass_is_the_last_that_runs(outcome: Outcome) -> None:
    """Its receipt is the last one; later screens never see the subject."""
    visits: list[str] = []
    screens = (Fixed("static", "passed"), Fixed("abi", outcome), Fixed("correctness", "passed"))
    receipts = run_screens(screens, visits, lambda event: None)
    assert visits == ["static", "abi"]
    assert receipts[-1].outcome == outcome


def test_progress_hears_of_every_screen_twice() -> None:
    """Once when it begins and once with its outcome."""
    events: list[dict[str, object]] = []
    run_screens((Fixed("graph", "not_applicable"),), [], events.append)
    assert [(event["event"], event["screen"], event["outcome"]) for event in events] == [
        ("screen", "graph", "started"),
        ("screen", "graph", "not_applicable"),
    ]


def test_no_screens_give_no_receipts() -> None:
    """An empty tuple is a composition too."""
    assert run_screens((), [], lambda event: None) == ()
