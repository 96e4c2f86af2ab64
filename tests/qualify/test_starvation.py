"""`qualify/starvation.py`: a late call is the machine's fault only when the arm waited and the core served others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from qualify.starvation import (
    FOREIGN_SHARE,
    SUSPENDED_NS,
    CoreUse,
    combined,
    foreign_share,
    hindrance,
    read_use,
    wait_for,
)

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


@pytest.mark.parametrize(
    ("ready", "ran", "idle", "share"),
    [
        ({("7", 4)}, 0, 0, 1.0),  # never got the core that others used
        ({("7", 4), ("8", 1)}, 100, 0, 0.9),  # one thread ran a little, this one did not
        ({("7", 4)}, 1000, 0, 0.0),  # it is the one that runs
        ({("7", 5)}, 0, 0, 0.0),  # had a turn, so its waiting is in the counter
        ({("7", 4)}, 0, 1000, 0.0),  # the core was free
        (set(), 0, 0, 0.0),
    ],
)
def test_a_thread_that_never_had_a_turn_has_waited_all_the_while(
    ready: set[tuple[str, int]], ran: int, idle: int, share: float
) -> None:
    """The kernel's counter of waiting stands still until the thread gets the core."""
    before = START._replace(ready=frozenset({("7", 4)}))
    assert foreign_share(before, CoreUse(1000, ran, 0, idle, frozenset(ready))) == share


@pytest.mark.quiet
def test_a_process_that_is_kept_from_its_core_is_seen_to_wait() -> None:
    """A real one, with a real competitor that is preferred; without the right to prefer it there is nothing to see."""
    core = max(os.sched_getaffinity(0))
    before = os.sched_getaffinity(0)
    children = []
    try:
        for policy in (os.SCHED_OTHER, os.SCHED_FIFO):
            child = os.fork()
            if child == 0:
                os.sched_setaffinity(0, {core})
                while True:
                    pass
            children.append(child)
            if policy == os.SCHED_FIFO:
                try:
                    os.sched_setscheduler(child, policy, os.sched_param(2))
                except PermissionError:
                    pytest.skip("needs the right to set scheduling classes")
        if len(before) == 1:
            pytest.skip("needs a core beside the contested one")
        time.sleep(0.05)
        first = read_use(children[0], core)
        time.sleep(0.2)
        assert foreign_share(first, read_use(children[0], core)) > FOREIGN_SHARE
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


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


def test_threads_that_have_ended_have_run_all_the_same() -> None:
    """Else an arm could let such threads use the core and say that others had it."""
    used: list[float] = []

    def spend() -> None:
        while time.thread_time() < 0.2:
            sum(range(1000))
        used.append(time.thread_time())

    first = read_use(os.getpid(), 0)
    thread = threading.Thread(target=spend)
    thread.start()
    thread.join()
    assert read_use(os.getpid(), 0).ran - first.ran >= used[0] * 0.9e9


def test_a_process_that_is_gone_reads_as_zero() -> None:
    """A vanished process is no error."""
    assert read_use(2**22 + 1, 0)[1:3] == (0, 0)


class Clockwork:
    """A poll that never has an event, and how late each of its waits ends."""

    def __init__(self, late_ns: list[int]) -> None:
        self.now = 0
        self.asked_ns = 0
        self._late_ns = late_ns

    def poll(self, milliseconds: float) -> list[tuple[int, int]]:
        asked = round(milliseconds * 1e6)
        self.asked_ns += asked
        self.now += asked + (self._late_ns.pop(0) if self._late_ns else 0)
        return []


@pytest.mark.parametrize(
    ("late_ns", "apart", "asked_ns", "stood_ns"),
    [
        ([], True, 200_000_000, 0),
        ([0, 10**10], True, 200_000_000, 10**10),  # suspended once: all of the wait is still waited
        ([SUSPENDED_NS], True, 50_000_000, 0),  # late, as under load: what is over is over
        ([10**10], False, 50_000_000, 0),  # an arm on the referee's core could do that itself
    ],
)
def test_time_of_a_suspended_machine_is_not_waited(
    monkeypatch: pytest.MonkeyPatch, late_ns: list[int], apart: bool, asked_ns: int, stood_ns: int
) -> None:
    """A wait that ends far too late was suspended with everything else, and is made up for."""
    poll: Any = Clockwork(late_ns)
    monkeypatch.setattr("qualify.starvation.time.monotonic_ns", lambda: poll.now)
    assert wait_for(poll, 200, apart=apart) == ([], stood_ns)
    assert poll.asked_ns == asked_ns


STUCK = frozenset({("7", 4)})


@pytest.mark.parametrize(
    ("after", "hindered"),
    [
        (CoreUse(1000, 0, 0, 1000, stuck=STUCK), True),
        (CoreUse(1000, 0, 0, 1000, stuck=frozenset({("7", 5)})), False),  # it had a turn: many short sleeps are its own
        (CoreUse(1000, 0, 0, 1000), False),  # it went on
        (CoreUse(1000, 900, 0, 100, stuck=STUCK), False),  # another of its threads runs, and may hold what it waits for
        (CoreUse(1000, 0, 900, 0), True),  # starved
    ],
)
def test_one_sleep_that_cannot_be_woken_is_the_machines(after: CoreUse, *, hindered: bool) -> None:
    """Nothing that an arm does keeps one of its threads in the kernel for so long while all of them are idle."""
    assert bool(hindrance(START._replace(stuck=STUCK), after)) == hindered


_SLEEPER = """
import ctypes, time
CLONE_VFORK, SIGCHLD = 0x4000, 17
if ctypes.CDLL(None).syscall(56, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0) == 0:
    time.sleep(600)
"""


def test_a_process_in_a_sleep_that_cannot_be_woken_is_seen() -> None:
    """A parent that waits for a child of vfork(2) is in one."""
    with subprocess.Popen([sys.executable, "-c", _SLEEPER], start_new_session=True) as sleeper:
        try:
            core, until = min(os.sched_getaffinity(0)), time.monotonic() + 120
            before = read_use(sleeper.pid, core)
            while not (before.stuck and before.stuck == read_use(sleeper.pid, core).stuck):
                assert time.monotonic() < until
                time.sleep(0.01)
                before = read_use(sleeper.pid, core)
            time.sleep(0.05)
            after = read_use(sleeper.pid, core)
            assert "could not be woken" in hindrance(before._replace(ready=frozenset()), after)
        finally:
            os.killpg(sleeper.pid, signal.SIGKILL)


def test_readings_of_ranks_add_up() -> None:
    """They share a core, so its idle time is counted once."""
    both = combined([START._replace(ran=1, waited=2, idle=3, stuck=STUCK), CoreUse(0, 10, 20, 3, STUCK)])
    assert (both.ran, both.waited, both.idle, both.ready, both.stuck) == (11, 22, 3, STUCK, STUCK)
