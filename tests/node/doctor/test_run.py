"""The runner: every check reports, whatever the others do, and only required ones block."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import pytest

from config.errors import HostError
from config.settings import Settings
from node.doctor.check import Check, Finding, State, Subject, failed, passed, warned
from node.doctor.run import Report, run_checks

Look = Callable[[Subject], Iterable[Finding]]
MISSING = HostError("DISK_FULL", "no room", hint="make some")


def good(_: Subject) -> list[Finding]:
    """All is well."""
    return [passed("good", "fine"), warned("good.too", "so so", "try harder")]


def missing(_: Subject) -> list[Finding]:
    """Something is missing and the look says so."""
    return [failed("missing", MISSING)]


def refusing(_: Subject) -> list[Finding]:
    """Something is missing and the look raises it."""
    raise MISSING


def broken(_: Subject) -> list[Finding]:
    """A defect."""
    raise KeyError("what")


def states(report: Report) -> list[tuple[str, str, str, bool]]:
    """Return what can be compared of a report."""
    return [
        (line.finding.name, line.finding.state, line.finding.error.code if line.finding.error else "",
         line.blocks_qualification)
        for line in report.lines
    ]


async def test_all_checks_report_in_their_order() -> None:
    """A failing, a refusing and a broken check leave the others alone, and each is a line with a code."""
    looks: list[tuple[str, Look]] = [("broken", broken), ("good", good), ("refusing", refusing), ("missing", missing)]
    report = await run_checks([Check(name, look, required=True) for name, look in looks], Subject())
    assert states(report) == [
        ("broken", State.FAIL, "CHECK_FAILED", True), ("good", State.PASS, "", False),
        ("good.too", State.WARN, "", False), ("refusing", State.FAIL, "DISK_FULL", True),
        ("missing", State.FAIL, "DISK_FULL", True),
    ]
    assert not report.ready
    assert report.lines[3].finding.fix == "make some"
    with pytest.raises(HostError):
        Report(report.lines[3:]).raise_first()


async def test_only_required_checks_block() -> None:
    """The same failures of checks that the node does not need leave it ready."""
    report = await run_checks([Check("broken", broken), Check("missing", missing)], Subject())
    assert report.ready
    report.raise_first()
    assert [line.finding.state for line in report.lines] == [State.FAIL, State.FAIL]


async def test_a_hanging_check_is_left_behind() -> None:
    """A check that overruns its deadline fails with a code while others report, and nobody waits for its thread."""
    release = threading.Event()

    def hanging(_: Subject) -> list[Finding]:
        release.wait(60)
        return []

    told: list[tuple[str, ...]] = []
    report = await run_checks(
        [Check("hanging", hanging, 1.2, required=True), Check("good", good)], Subject(), told.append
    )
    assert states(report)[0] == ("hanging", State.FAIL, "CHECK_TIMEOUT", True)
    assert states(report)[1][1] is State.PASS
    assert told == [("hanging",)]
    release.set()


async def test_checks_of_a_node_are_skipped_without_its_settings() -> None:
    """Without settings the machine is looked at, and what needs settings says how to get it looked at."""
    check = Check("good", good, needs_settings=True, required=True)
    for subject, why in (
        (Subject(), "looked at with `-c FILE`"), (Subject(settings_error=MISSING), "its settings cannot be read")
    ):
        (line,) = (await run_checks([check], subject)).lines
        assert (line.finding.state, line.finding.seen, line.blocks_qualification) == (State.SKIP, why, False)
    assert len((await run_checks([check], Subject(Settings()))).lines) == 2


async def test_a_check_that_says_nothing_is_a_line() -> None:
    """No check disappears from the report."""
    (line,) = (await run_checks([Check("mute", lambda _: ())], Subject())).lines
    assert line.finding.state is State.SKIP
