"""Runs checks: all of them, side by side, each on a thread of its own with a deadline.

Invariants
1. Every check gives at least one line, in the order of the list, whatever the others do.
2. A check that raises or overruns its deadline is one FAIL line under the check's own name, in place of all of its
   lines, with a code that nothing else has (CHECK_FAILED, CHECK_TIMEOUT). A late one is left behind on a daemon thread,
   which keeps neither this function nor the end of the process waiting.
3. A deadline tells what hangs from what works. An answer that is there when it is looked at counts, however late the
   event loop itself came to look; whoever knows that the machine is slow multiplies all deadlines (`patience`).
4. `Line.blocks_qualification` is true exactly for the FAIL lines of required checks.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from config.errors import CacheonError, HostError, InternalError
from node.doctor.check import Check, Finding, State, Subject, failed, skipped

Waiting = Callable[[tuple[str, ...]], None]

_WAIT_SECONDS = 1.0  # how often somebody who waits is told for what


@dataclass(frozen=True, slots=True)
class Line:
    """One finding as it is reported; `milliseconds` is how long its whole check took."""

    finding: Finding
    blocks_qualification: bool
    milliseconds: int


@dataclass(frozen=True, slots=True)
class Report:
    """All lines of one run, in the order of the checks."""

    lines: tuple[Line, ...]

    @property
    def blocking(self) -> tuple[Line, ...]:
        """The lines because of which a node would refuse to work."""
        return tuple(line for line in self.lines if line.blocks_qualification)

    @property
    def ready(self) -> bool:
        """Whether nothing blocks."""
        return not self.blocking

    def raise_first(self) -> None:
        """Raise the error of the first blocking line, if there is one."""
        for line in self.blocking:
            if line.finding.error is not None:
                raise line.finding.error


async def run_checks(
    checks: Sequence[Check], subject: Subject, waiting: Waiting | None = None, *, patience: float = 1.0
) -> Report:
    """Run `checks`, each for at most `patience` times its deadline, and report.

    `waiting` is told every second which of them are still looking.
    """
    tasks = [asyncio.create_task(_run(check, subject, patience), name=check.name) for check in checks]
    try:
        pending = set(tasks)
        while pending:
            _, pending = await asyncio.wait(pending, timeout=_WAIT_SECONDS)
            if pending and waiting is not None:
                waiting(tuple(task.get_name() for task in tasks if task in pending))
    finally:
        for task in tasks:
            task.cancel()
    return Report(tuple(line for task in tasks for line in task.result()))


async def _run(check: Check, subject: Subject, patience: float) -> tuple[Line, ...]:
    begun = time.monotonic()
    findings = await _findings(check, subject, check.deadline_seconds * patience)
    milliseconds = int((time.monotonic() - begun) * 1000)
    return tuple(
        Line(finding, check.required and finding.state is State.FAIL, milliseconds) for finding in findings
    )


async def _findings(check: Check, subject: Subject, seconds: float) -> tuple[Finding, ...]:
    if check.needs_settings and subject.settings is None:
        why = "its settings cannot be read" if subject.settings_error else "looked at with `-c FILE`"
        return (skipped(check.name, why),)
    loop = asyncio.get_running_loop()
    found: list[tuple[Finding, ...]] = []
    told = asyncio.Event()

    def work() -> None:
        found.append(_look(check, subject))
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(told.set)

    threading.Thread(target=work, name=f"check-{check.name}", daemon=True).start()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(told.wait(), seconds)
    return found[0] if found else (failed(check.name, timed_out(check.name, seconds)),)


def _look(check: Check, subject: Subject) -> tuple[Finding, ...]:
    try:
        return tuple(check.look(subject)) or (skipped(check.name, "nothing to look at"),)
    except CacheonError as error:
        return (failed(check.name, error),)
    except Exception as error:  # noqa: BLE001 - the boundary of a check: it must not take the others along
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        return (failed(check.name, InternalError("CHECK_FAILED", f"the check itself failed: {reason}")),)


def timed_out(name: str, seconds: float) -> HostError:
    """Return the error of a check that did not end."""
    return HostError(
        "CHECK_TIMEOUT", f"the check `{name}` gave no answer within {seconds:g} s",
        hint="look for a hanging disk, mount, device or network on this machine; if it is only busy, look again with "
        "`cacheon doctor --patience 5`",
    )
