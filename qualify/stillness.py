"""Whether a frozen arm stood still.

Invariants
1. Being seen stopped twice proves nothing about the time between, since a process may have ways to wake itself and to
   stop again. The processor time of all its threads does prove it: it does not move while none of them runs.
2. A thread is shown as stopped before it has left the processor, and its last turn is accounted for when it leaves,
   which may be milliseconds later where a hypervisor took the processor away. So the time is noted only once every
   thread has left: the kernel waits for that before it answers what system call a thread is in.
3. Where we may not ask for that (an ordinary user may not), an arm gets the benefit of the doubt.
"""

from __future__ import annotations

import os
import time

TOLERANCE_NS = 100_000  # for a thread that was preempted on its way into the stop
DOUBT_NS = 20_000_000
_PROCESS_CLOCK = 2  # of clock_getcpuclockid(3): CPUCLOCK_SCHED, of a whole thread group
_ASKED_MAX = 100  # per thread; the kernel waits a while each time


def settled_ns(pid: int) -> int:
    """Return the processor time that a process which was just stopped may have used when it is looked at again.

    0 when it is gone.
    """
    certain = _all_off_processor(pid)
    return cpu_ns(pid) + (0 if certain else DOUBT_NS)


def ran_ns(pid: int, settled: int) -> int:
    """Return how long process `pid` has run since `settled_ns`; 0 when it is gone."""
    return max(0, cpu_ns(pid) - settled)


def cpu_ns(pid: int) -> int:
    """Return the processor time that all threads of a process have used so far, in ns; 0 when it is gone."""
    try:
        return time.clock_gettime_ns(~pid << 3 | _PROCESS_CLOCK)
    except OSError:
        return 0


def _all_off_processor(pid: int) -> bool:
    """Wait until no thread of a stopped process is on a processor; False when we may not ask."""
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            _wait_for(f"/proc/{pid}/task/{task}/syscall")
    except (FileNotFoundError, ProcessLookupError):
        return True  # it is gone, or a thread of it is
    except PermissionError:
        return False
    return True


def _wait_for(path: str) -> None:
    with open(path, "rb", buffering=0) as file:
        for _ in range(_ASKED_MAX):  # a thread that goes on running is told by its processor time
            if file.read(16) != b"running\n":
                return
            file.seek(0)
