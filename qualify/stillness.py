"""Whether a frozen arm stood still.

Invariants
1. Being seen stopped twice proves nothing about the time between: a process may have ways to wake itself and to stop
   again. Its processor time tells, because it grows when one of its threads runs, and so does the count of how often
   its threads were put on a processor.
2. Both have to agree. The kernel may charge a thread that has left already for what it does to find the next one, a
   millisecond and more on a crowded machine; that is no run, and nothing was put on a processor for it.
3. Counts are compared thread by thread: the sum of them could be kept by a thread that ends.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

TOLERANCE_NS = 100_000  # a thread preempted on its way into the stop still has a few instructions to run
_PROCESS_CLOCK = 2  # of clock_getcpuclockid(3): CPUCLOCK_SCHED, of a whole thread group
_READINGS_MAX = 1000  # each takes about a microsecond, and a stopped thread leaves the core within a few


class Rest(NamedTuple):
    """A reading of a stopped process: its processor time, and how often its threads were put on a processor."""

    cpu_ns: int
    arrivals: tuple[tuple[str, int], ...]  # by thread; empty where the kernel does not count


def settle(pid: int) -> Rest:
    """Return the reading of a process that was just stopped, once its time no longer grows; zeros when it is gone."""
    last = cpu_ns(pid)
    for _ in range(_READINGS_MAX):
        now = cpu_ns(pid)
        if now == last:
            break
        last = now
    return Rest(last, _arrivals(pid))


def ran_since(pid: int, rest: Rest) -> int:
    """Return for how many ns process `pid` has run since `rest`; 0 when it is gone."""
    ran = max(0, cpu_ns(pid) - rest.cpu_ns)
    if ran <= TOLERANCE_NS or (rest.arrivals and _arrivals(pid) == rest.arrivals):
        return 0
    return ran


def woke_since(pid: int, rest: Rest) -> bool:
    """Say whether a thread of process `pid` was put on a processor since `rest`, however shortly."""
    return bool(rest.arrivals) and _arrivals(pid) not in (rest.arrivals, ())


def cpu_ns(pid: int) -> int:
    """Return the processor time that all threads of a process have used so far, in ns; 0 when it is gone."""
    try:
        return time.clock_gettime_ns(~pid << 3 | _PROCESS_CLOCK)
    except OSError:
        return 0


def _arrivals(pid: int) -> tuple[tuple[str, int], ...]:
    """Return the third field of every thread's schedstat (proc(5), sched-stats.rst)."""
    counts = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat", "rb") as file:
                counts.append((thread, int(file.read().split()[2])))
    except (OSError, IndexError, ValueError):
        return ()
    return tuple(counts)
