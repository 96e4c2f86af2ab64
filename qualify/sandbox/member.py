"""One confined process as the kernel shows it to the trusted side: stopped, running or gone.

Invariants
1. Everything goes by pidfd, or by a file that was opened while the process lived, so a pid that is reused by somebody
   else is never touched nor believed.
2. Nothing here needs an answer of the fork server or of the process itself.
"""

from __future__ import annotations

import os
import select
import signal
import time

_STAT_BYTES = 1024
_THREADS_FIELD = 17  # number of threads, counted from the state that follows the name (proc(5): fields 20 and 3)
_RESTING = (b"T", b"t", b"Z", b"X")


class Member:
    """One process: the only one of its sandbox, or one rank of a group. Not locked; its owner is."""

    def __init__(self, pid: int, pidfd: int) -> None:
        self.pid = pid
        self._pidfd = pidfd
        # Read again and again at offset 0. It stays bound to this process: once that is gone, reading says so.
        self._stat = _open_stat(pid)

    def send(self, number: signal.Signals) -> None:
        """Send a signal; one that has ended by itself gets none."""
        send_signal(self._pidfd, number)

    def is_stopped(self) -> bool:
        """Say whether no thread of the process can run: all are stopped, or gone."""
        try:
            fields = os.pread(self._stat, _STAT_BYTES, 0).rpartition(b") ")[2].split(b" ", _THREADS_FIELD + 1)
            if fields[_THREADS_FIELD] == b"1":  # read after the state, so no second thread is left out
                return fields[0] in _RESTING or readable_by(self._pidfd, 0.0)
            states = [_task_state(self.pid, task) for task in os.listdir(f"/proc/{self.pid}/task")]
        except (FileNotFoundError, ProcessLookupError, IndexError):
            return True
        # Looked at last: while this holds, the pid above was not yet anybody else's.
        return all(state in _RESTING for state in states) or readable_by(self._pidfd, 0.0)

    def close(self) -> None:
        """Let go of the descriptors, once."""
        for descriptor in (self._pidfd, self._stat):
            os.close(descriptor)


def readable_by(descriptor: int, until: float) -> bool:
    """Wait until monotonic time `until` for something to read; say whether there is."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0.0, until - time.monotonic()) * 1000))


def send_signal(pidfd: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have ended by itself: the outcome will say how."""
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return


def _open_stat(pid: int) -> int:
    try:
        return os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        return os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)  # gone already; what is read there says so, too


def _task_state(pid: int, task: str) -> bytes:
    try:
        with open(f"/proc/{pid}/task/{task}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1]
    except (FileNotFoundError, ProcessLookupError):
        return b"X"
