"""Clocks: the kernel's answers judged, and this kernel asked."""

from __future__ import annotations

import pytest

from node.doctor.check import Finding, State, Subject
from node.doctor.clock import STA_UNSYNC, TIME_ERROR, judge_source, judge_sync, look_clock


@pytest.mark.parametrize(
    ("finding", "state"),
    [
        (judge_sync(0, 0x2001, 12_000), State.PASS),
        (judge_sync(0, 0x2001, 4_000_000), State.WARN),
        (judge_sync(0, STA_UNSYNC, 100), State.WARN),
        (judge_sync(TIME_ERROR, 0, 100), State.WARN),
        (judge_sync(-1, 0, 0), State.SKIP),
        (judge_source("tsc", "tsc hpet", 25.0), State.PASS),
        (judge_source("kvm-clock", "kvm-clock", 40.0), State.PASS),
        (judge_source("hpet", "tsc hpet", 900.0), State.WARN),
        (judge_source("tsc", "tsc", 2500.0), State.WARN),
        (judge_source("", "", 30.0), State.PASS),
    ],
)
def test_values(finding: Finding, state: State) -> None:
    """An unkept clock, a wide error bound and a clock that is slow to read warn."""
    assert finding.state is state
    assert bool(finding.fix) == (state is State.WARN)


def test_this_kernel() -> None:
    """The real kernel is asked without changing anything."""
    names = [finding.name for finding in look_clock(Subject())]
    assert names == ["clock.sync", "clock.source"]
