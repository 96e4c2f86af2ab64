"""Whether an arm that missed its deadline had the core at all.

A call that is late because the machine gave its core to somebody else is no fault of the candidate. Two readings have
to agree: the arm's threads were ready and waited for the core, and the core was neither idle nor running the arm (other
processes, interrupts, time stolen by the hypervisor). An arm that sleeps does not wait; threads of its own that crowd
each other are its own time.

The kernel adds up a thread's waiting only when it gets the core at last. A thread that is ready at both readings and
had no turn in between has therefore waited all the while, although its counter stands still.

A machine, or a container, that is suspended and goes on stops referee and arm alike while the clock runs. Nobody waits
for a core then; a wait of the referee that ends far too late is how it shows (`wait_for`).
"""

from __future__ import annotations

import os
import select
import time
from pathlib import Path
from typing import NamedTuple

FOREIGN_SHARE = 0.25  # of the time after a call became slow; an honest call is far shorter than its deadline
SUSPENDED_NS = 250_000_000  # a referee with a core of its own is not kept waiting for that long by load
_SLICE_NS = 50_000_000  # a wait is done in parts of this length, so that the part that ended too late is short
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_IDLE_FIELDS = (4, 5)  # idle and iowait of a `cpuN` line


class CoreUse(NamedTuple):
    """A reading, in ns: the monotonic clock, time an arm's threads ran and waited to run, time its core stood idle."""

    now: int
    ran: int
    waited: int
    idle: int
    ready: frozenset[tuple[str, int]] = frozenset()  # threads that could run at once, with the turns they have had


def read_use(pid: int, core: int) -> CoreUse:
    """Return the current reading; what cannot be read counts as zero."""
    ran, waited, ready = _threads(pid)
    return CoreUse(time.monotonic_ns(), ran, waited, _idle_ns(core), ready)


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


def _threads(pid: int) -> tuple[int, int, frozenset[tuple[str, int]]]:
    """Return the ns that all threads ran, the ns they waited, and those that are ready with their numbers of turns."""
    ran = waited = 0
    ready: set[tuple[str, int]] = set()
    for folder in Path(f"/proc/{pid}/task").glob("*"):
        try:
            first, second, turns = map(int, (folder / "schedstat").read_text(encoding="ascii").split())
            state = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
        except (OSError, ValueError, IndexError):
            continue
        ran, waited = ran + first, waited + second
        if state == "R":
            ready.add((folder.name, turns))
    return ran, waited, frozenset(ready)


def _idle_ns(core: int) -> int:
    try:
        lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
        fields = next(line.split() for line in lines if line.startswith(f"cpu{core} "))
        return sum(int(fields[index]) for index in _IDLE_FIELDS) * _TICK_NS
    except (OSError, ValueError, IndexError, StopIteration):
        return 0
