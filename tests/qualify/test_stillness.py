"""The processor time of a stopped process: at rest at once, and telling when it woke by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from qualify.stillness import Rest, cpu_ns, ran_since, settle, woke_since

SPIN = "import threading\nfor _ in range(3): threading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start()\n"


@pytest.fixture
def spinning() -> Iterator[int]:
    """A process of several busy threads, stopped."""
    with subprocess.Popen([sys.executable, "-c", SPIN]) as process:
        try:
            while cpu_ns(process.pid) < 50_000_000 or len(os.listdir(f"/proc/{process.pid}/task")) < 4:
                pass  # on a loaded machine the interpreter alone uses that much before its last thread is there
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            yield process.pid
        finally:
            process.kill()


def test_a_stopped_process_uses_no_time(spinning: int) -> None:
    """Once settled, it has not run."""
    rest = settle(spinning)
    assert rest.cpu_ns >= 50_000_000
    assert len(rest.arrivals) == 4
    assert not woke_since(spinning, rest)
    assert ran_since(spinning, rest) == 0


def test_a_process_that_woke_and_stopped_again_is_told(spinning: int) -> None:
    """It looks as stopped as before; its processor time does not."""
    rest = settle(spinning)
    os.kill(spinning, signal.SIGCONT)
    while not ran_since(spinning, rest):
        pass
    os.kill(spinning, signal.SIGSTOP)
    os.waitid(os.P_PID, spinning, os.WSTOPPED)
    assert ran_since(spinning, rest) > 0
    assert woke_since(spinning, rest)


def test_time_that_is_charged_without_a_run_is_no_run(spinning: int) -> None:
    """The kernel charges a thread that has left for finding the next one; nothing was put on a processor for it."""
    rest = settle(spinning)
    earlier = Rest(rest.cpu_ns - 5_000_000, rest.arrivals)
    assert ran_since(spinning, earlier) == 0
    assert ran_since(spinning, earlier._replace(arrivals=rest.arrivals[1:])) >= 5_000_000  # a thread came or went
    assert ran_since(spinning, earlier._replace(arrivals=())) >= 5_000_000  # a kernel that does not count


def test_a_process_that_is_gone_has_used_nothing() -> None:
    """What became of it is told elsewhere; here it just does not run."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert settle(process.pid) == Rest(0, ())
    rest = Rest(5, ((str(process.pid), 5),))
    assert ran_since(process.pid, rest) == 0
    assert not woke_since(process.pid, rest)
