"""The shortest soak: the same code as `make soak`, a hundred blocks, every kind of fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from chain.devnet.fault_plan import Kind
from tests.soak.driver import Soak
from tests.soak.faults import GENERAL, SPECIAL
from tests.soak.plan import SHORT
from tests.soak.truth import TrueReveal
from tests.soak.verdict import differences, inversions, table


@pytest.mark.crash
@pytest.mark.timeout(900)  # a safety net: on an idle machine it takes half a minute
async def test_nothing_is_lost_doubled_or_reordered(tmp_path: Path) -> None:
    """A killed node on a chain that forks, restarts and answers wrongly records every reveal once, in order."""
    report = await Soak(SHORT, tmp_path).run()
    assert not report.problems, table(report) + (tmp_path / "node.log").read_text("utf-8")[-20_000:]
    assert report.reveals >= SHORT.reveals
    assert (report.lost, report.duplicated, report.reordered) == (0, 0, 0)
    assert report.confirmed + sum(report.excused.values()) == report.epochs
    assert report.events["node kills"] == SHORT.node_kills


def test_every_kind_of_fault_is_injected() -> None:
    """A new kind of the devnet is part of the soak as soon as it exists."""
    assert set(GENERAL) | set(SPECIAL) == set(Kind.__args__)


def test_a_loss_a_double_and_a_swap_are_told() -> None:
    """The comparison sees each of the three, and nothing in equal lists."""
    one, two, three = (TrueReveal(block, 0, 0, "5A", "d", 1) for block in (1, 2, 3))
    assert differences([one, two], [one, two]) == ([], [])
    assert differences([one, two], [two]) == ([one], [])
    assert differences([one, two], [one, two, two]) == ([], [two])
    assert differences([one], [three]) == ([one], [three])
    assert (inversions([one, two, three]), inversions([two, one, three])) == (0, 1)
