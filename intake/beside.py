"""Half of a piece of work done in a second process beside this one.

Invariants
1. The second process is a fork that computes, writes one answer into a pipe and ends; it runs no exit handlers.
2. Whatever goes wrong over there is an answer of None, on which the caller does that half itself.
3. Nothing is left behind: leaving the `with` block closes the pipe and waits for the process.
4. Only a process with one thread is forked, since a lock that another thread holds would stay held for ever.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_CHUNK = 1 << 20


def spare_processor() -> bool:
    """Say whether this process may fork, and has a second processor to run the fork on."""
    return threading.active_count() == 1 and len(os.sched_getaffinity(0)) > 1


@contextmanager
def beside(work: Callable[[], bytes]) -> Iterator[Callable[[], bytes | None]]:
    """Run `work` in a fork; give what waits for its answer, which is None when there is none."""
    try:
        source, target = os.pipe2(os.O_CLOEXEC)
        try:
            child = os.fork()
        except OSError:
            os.close(source)
            os.close(target)
            raise
    except OSError:  # no descriptor or no process to be had
        yield lambda: None
        return
    if child == 0:
        _work(work, source, target)
    os.close(target)
    finished = False

    def answer() -> bytes | None:
        nonlocal finished
        parts = list(iter(lambda: os.read(source, _CHUNK), b""))
        finished = True
        return b"".join(parts) if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 else None

    try:
        yield answer
    finally:
        os.close(source)
        if not finished:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _work(work: Callable[[], bytes], source: int, target: int) -> None:
    """Be the second process."""
    status = 1
    try:
        os.close(source)
        view = memoryview(work())
        while view:
            view = view[os.write(target, view) :]
        status = 0
    finally:
        os._exit(status)
