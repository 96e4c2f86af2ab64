"""`qualify/starvation.py`: a late call is the machine's fault only when the arm waited and the core served others."""

from __future__ import annotations

import os

import pytest

from qualify.starvation import CoreUse, foreign_share, read_use

START = CoreUse(now=0, ran=0, waited=0, idle=0)


@pytest.mark.parametrize(
    ("after", "share"),
    [
        (CoreUse(1000, ran=1000, waited=0, idle=0), 0.0),  # spins
        (CoreUse(1000, ran=0, waited=0, idle=1000), 0.0),  # sleeps on an idle core
        (CoreUse(1000, ran=0, waited=0, idle=0), 0.0),  # sleeps while others use the core
        (CoreUse(1000, ran=1000, waited=5000, idle=0), 0.0),  # its own threads crowd each other
        (CoreUse(1000, ran=200, waited=800, idle=0), 0.8),  # ready, but others ran
        (CoreUse(1000, ran=200, waited=900, idle=500), 0.3),
        (CoreUse(0, ran=0, waited=0, idle=0), 0.0),
    ],
)
def test_both_readings_have_to_agree(after: CoreUse, share: float) -> None:
    """Waiting alone, or a busy core alone, is no starvation."""
    assert foreign_share(START, after) == share


def test_a_reading_of_a_live_process_moves_forward() -> None:
    """The kernel's counters of this process are read and never fall."""
    first = read_use(os.getpid(), 0)
    second = first
    for _ in range(10_000):  # the counters of a running process move with the scheduler's ticks
        second = read_use(os.getpid(), 0)
        if second.ran > first.ran:
            break
    assert second.ran > first.ran
    assert second.now > first.now
    assert second.idle >= first.idle


def test_a_process_that_is_gone_reads_as_zero() -> None:
    """A vanished process is no error."""
    assert read_use(2**22 + 1, 0)[1:3] == (0, 0)
