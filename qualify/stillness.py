"""Whether a frozen arm stood still.

Invariant: being seen stopped twice proves nothing about the time between, since a process may have ways to wake itself
and to stop again; the processor time of all its threads does, because it never moves while none of them runs.
"""

from __future__ import annotations

import time

TOLERANCE_NS = 100_000  # a thread preempted on its way into the stop still has a few instructions to run
_PROCESS_CLOCK = 2  # of clock_getcpuclockid(3): CPUCLOCK_SCHED, of a whole thread group
_READINGS_MAX = 1000  # each takes about a microsecond, and a stopped thread leaves the core within a few


def settled_ns(pid: int) -> int:
    """Return the processor time of a process that was just stopped, once it no longer grows; 0 when it is gone.

    The kernel accounts for a running thread at every reading, so two equal readings in a row mean that none runs.
    """
    last = cpu_ns(pid)
    for _ in range(_READINGS_MAX):
        now = cpu_ns(pid)
        if now == last:
            break
        last = now
    return last


def ran_ns(pid: int, settled: int) -> int:
    """Return how long process `pid` has run since `settled_ns`; 0 when it is gone."""
    return max(0, cpu_ns(pid) - settled)


def cpu_ns(pid: int) -> int:
    """Return the processor time that all threads of a process have used so far, in ns; 0 when it is gone."""
    try:
        return time.clock_gettime_ns(~pid << 3 | _PROCESS_CLOCK)
    except OSError:
        return 0
