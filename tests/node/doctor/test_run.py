"""The runner: every check reports, whatever the others do, and only required ones block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable

import pytest

from config.errors import HostError
from config.settings import Settings
from node.doctor import worker
from node.doctor.check import Check, Finding, State, Subject, failed, passed, warned
from node.doctor.checks import CHECKS
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

    checks = [Check("hanging", hanging, 0.2, required=True), Check("good", good)]
    report = await run_checks(checks, Subject(), patience=1.5)
    release.set()
    assert states(report)[0] == ("hanging", State.FAIL, "CHECK_TIMEOUT", True)
    assert "no answer within 0.3 s" in report.lines[0].finding.seen
    assert "--patience" in report.lines[0].finding.fix
    assert states(report)[1][1] is State.PASS


async def test_who_waits_is_told_for_what_and_may_be_patient() -> None:
    """The checks that are still looking are named while they look; with patience, one past its deadline answers."""
    release = threading.Event()

    def slow(_: Subject) -> list[Finding]:
        release.wait(60)
        return [passed("slow", "there at last")]

    def waiting(names: tuple[str, ...]) -> None:
        if names == ("slow",):
            release.set()

    report = await run_checks([Check("slow", slow, 0.01), Check("good", good)], Subject(), waiting, patience=6000.0)
    assert release.is_set()
    assert states(report)[0] == ("slow", State.PASS, "", False)


async def test_an_answer_that_is_there_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the event loop comes so late that the deadline is over, what the check answered meanwhile is its answer."""

    async def late(answer: Awaitable[object], seconds: float) -> None:
        await answer
        raise TimeoutError(f"{seconds} s are over as well")

    monkeypatch.setattr(asyncio, "wait_for", late)
    report = await run_checks([Check("good", good)], Subject())
    assert [state for _, state, _, _ in states(report)] == [State.PASS, State.WARN]


def test_no_deadline_is_one_that_a_busy_machine_overruns() -> None:
    """A deadline is for what hangs: none is shorter than a minute, and the worker's own stays within its check's."""
    assert min(check.deadline_seconds for check in CHECKS) >= 60
    (worker_check,) = (check for check in CHECKS if check.name == "worker")
    assert worker_check.deadline_seconds > worker.START_SECONDS


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
