"""Whether an arm that missed its deadline had the core at all.

A call that is late because the machine gave its core to somebody else is no fault of the candidate. Two readings have
to agree: the arm's threads were ready and waited for the core, and the core was neither idle nor running the arm (other
processes, interrupts, time stolen by the hypervisor). An arm that sleeps does not wait; threads of its own that crowd
each other are its own time, also those that have ended by the time one looks: what an arm ran is the kernel's count
for the whole process.

The kernel adds up a thread's waiting only when it gets the core at last. A thread that is ready at both readings and
had no turn in between has therefore waited all the while, although its counter stands still.

A thread that sleeps in the kernel and cannot be woken, at both readings and with no turn in between, waits for what the
machine owes it: a page of a disk, memory. That counts only while no other thread of the arm runs: it could hold the
lock that the sleeper waits for.

A machine, or a container, that is suspended and goes on stops referee and arm alike while the clock runs. Nobody waits
for a core then; a wait of the referee that ends far too late is how it shows (`wait_for`).
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from qualify.stillness import cpu_ns

FOREIGN_SHARE = 0.25  # of the time after a call became slow; an honest call is far shorter than its deadline
STUCK_RAN_SHARE = 0.1  # of the time between two readings; an arm that runs for more than that is not stuck
SUSPENDED_NS = 250_000_000  # a referee with a core of its own is not kept waiting for that long by load
_SLICE_NS = 50_000_000  # a wait is done in parts of this length, so that the part that ended too late is short
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_IDLE_FIELDS = (4, 5)  # idle and iowait of a `cpuN` line


class CoreUse(NamedTuple):
    """A reading, in ns: the monotonic clock, time an arm ran, time its threads waited, time its core was idle."""

    now: int
    ran: int
    waited: int
    idle: int
    ready: frozenset[tuple[str, int]] = frozenset()  # threads that could run at once, with the turns they have had
    stuck: frozenset[tuple[str, int]] = frozenset()  # threads that sleep and cannot be woken, with their turns


def read_use(pid: int, core: int) -> CoreUse:
    """Return the current reading; what cannot be read counts as zero."""
    waited, ready, stuck = _threads(pid)
    return CoreUse(time.monotonic_ns(), cpu_ns(pid), waited, _idle_ns(core), ready, stuck)


def combined(uses: Sequence[CoreUse]) -> CoreUse:
    """Return one reading of several processes that are on the same core."""
    return uses[0]._replace(
        ran=sum(use.ran for use in uses),
        waited=sum(use.waited for use in uses),
        ready=frozenset().union(*(use.ready for use in uses)),
        stuck=frozenset().union(*(use.stuck for use in uses)),
    )


def hindrance(before: CoreUse, after: CoreUse) -> str:
    """Say what the machine did that kept an arm from going on between two readings; empty when nothing."""
    share = foreign_share(before, after)
    if share > FOREIGN_SHARE:
        return f"the core served others for {share:.0%} of the time"
    wall = after.now - before.now
    if before.stuck & after.stuck and after.ran - before.ran < STUCK_RAN_SHARE * wall:
        return f"a thread slept in the kernel for {wall // 1_000_000} ms and could not be woken"
    return ""


def foreign_share(before: CoreUse, after: CoreUse) -> float:
    """Return the share of the time between two readings that the arm waited for while the core served others."""
    wall = after.now - before.now
    if wall <= 0:
        return 0.0
    foreign = wall - max(0, after.ran - before.ran) - max(0, after.idle - before.idle)
    waited = wall if before.ready & after.ready else after.waited - before.waited
    return max(0, min(foreign, waited)) / wall


def wait_for(poll: select.poll, milliseconds: float, *, apart: bool) -> tuple[list[tuple[int, int]], int]:
    """Wait until `poll` has events; return them and for how many ns everything stood still meanwhile.

    That time is added to the wait. It is not looked for unless the referee is `apart`, on other cores than the arm: an
    arm could keep a referee on its own core from looking.
    """
    begin = time.monotonic_ns()
    until, stood = begin + round(milliseconds * 1e6), 0
    while True:
        part = max(0, min(until - begin, _SLICE_NS))
        events = poll.poll(part / 1e6)
        now = time.monotonic_ns()
        late = now - begin - part
        if apart and late > SUSPENDED_NS:
            stood += late
            until += late
        if events or now >= until:
            return events, stood
        begin = now


def _threads(pid: int) -> tuple[int, frozenset[tuple[str, int]], frozenset[tuple[str, int]]]:
    """Return the ns that all threads waited, and which of them are ready, and stuck, with their numbers of turns."""
    waited = 0
    states: dict[str, set[tuple[str, int]]] = {"R": set(), "D": set()}
    for folder in Path(f"/proc/{pid}/task").glob("*"):
        try:
            _, added, turns = map(int, (folder / "schedstat").read_text(encoding="ascii").split())
            state = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
        except (OSError, ValueError, IndexError):
            continue
        waited += added
        if state in states:
            states[state].add((folder.name, turns))
    return waited, frozenset(states["R"]), frozenset(states["D"])


def _idle_ns(core: int) -> int:
    try:
        lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
        fields = next(line.split() for line in lines if line.startswith(f"cpu{core} "))
        return sum(int(fields[index]) for index in _IDLE_FIELDS) * _TICK_NS
    except (OSError, ValueError, IndexError, StopIteration):
        return 0
