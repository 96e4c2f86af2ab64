"""The processor time of a stopped process: at rest at once, and telling when it woke by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from qualify.stillness import TOLERANCE_NS, cpu_ns, ran_ns, settled_ns

SPIN = "import threading\nfor _ in range(3): threading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start()\n"


@pytest.fixture
def spinning() -> Iterator[int]:
    """A process of several busy threads, stopped."""
    with subprocess.Popen([sys.executable, "-c", SPIN]) as process:
        try:
            while cpu_ns(process.pid) < 50_000_000:
                pass
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            yield process.pid
        finally:
            process.kill()


def test_a_stopped_process_uses_no_time(spinning: int) -> None:
    """Once settled, the reading stays what it is, to the nanosecond."""
    settled = settled_ns(spinning)
    assert settled >= 50_000_000
    assert ran_ns(spinning, settled) <= TOLERANCE_NS


def test_a_process_that_woke_and_stopped_again_is_told(spinning: int) -> None:
    """It looks as stopped as before; its processor time does not."""
    settled = settled_ns(spinning)
    os.kill(spinning, signal.SIGCONT)
    while ran_ns(spinning, settled) <= 2 * TOLERANCE_NS:
        pass
    os.kill(spinning, signal.SIGSTOP)
    os.waitid(os.P_PID, spinning, os.WSTOPPED)
    assert ran_ns(spinning, settled) > TOLERANCE_NS


def test_a_process_that_is_gone_has_used_nothing() -> None:
    """What became of it is told elsewhere; here it just does not run."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert settled_ns(process.pid) == 0
    assert ran_ns(process.pid, 5) == 0
