"""Pieces of work done by several processes beside each other, this one among them.

Invariants
1. A helper is a fork that takes one piece after the other from a queue that all share, so that one slow piece holds up
   nobody else; at the end it writes its answers into a pipe of its own and ends. It runs no exit handlers.
2. Whatever goes wrong in a helper, its pieces are done here: every piece has its answer, whoever dies.
3. Nothing is left behind: whatever happens here, all helpers are ended and waited for, and all pipes closed. A helper
   whose parent is gone takes no further piece.
4. Only a process with one thread is forked, since a lock that another thread holds would stay held for ever.
"""

from __future__ import annotations

import marshal
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

_CHUNK = 1 << 20
_NUMBER = 2  # bytes of one piece's number; a pipe hands them over whole
_INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM)
_PIECES = 2048  # numbers that fit into any pipe: one page


def spare_processors() -> int:
    """Return on how many processors, beside the one it uses, this process may run forks; 0 when it must not fork."""
    return len(os.sched_getaffinity(0)) - 1 if threading.active_count() == 1 else 0


def spread(here: Callable[[int], Any], there: Callable[[int], Any], pieces: int, helpers: int) -> list[Any]:
    """Return the answers to the pieces 0, 1 ... in their order: of `here` in this process, of `there` in a helper.

    Pieces are begun in their order. Both have to answer alike, with what `marshal` can write. What `here` raises is
    raised; a helper in which `there` raises has no answers. At most 2048 pieces can be shared; of more, this process
    does all.
    """
    if pieces > _PIECES or helpers < 1:
        return [here(number) for number in range(pieces)]
    answers: dict[int, Any] = {}
    try:
        queue = _queue(pieces)
    except OSError:  # no descriptor to be had
        return [here(number) for number in range(pieces)]
    running: list[_Helper] = []
    try:
        with suppress(OSError):  # no descriptor or no process to be had: then they are fewer
            while len(running) < helpers:
                with _undisturbed():
                    running.append(_Helper(there, queue))
        for number in _numbers(queue):
            answers[number] = here(number)
        for helper in running:
            answers.update(helper.answers())
    finally:
        with _undisturbed():
            os.close(queue)
            for helper in running:
                helper.end()
    return [answers[number] if number in answers else here(number) for number in range(pieces)]


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Put off what may raise anywhere: a fork that left its block would do its parent's work, and one that was not
    noted would be left behind."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTIONS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _queue(pieces: int) -> int:
    """Return the end of a pipe from which each piece's number can be read once."""
    source, target = os.pipe2(os.O_CLOEXEC)
    with os.fdopen(target, "wb") as file:
        file.write(b"".join(number.to_bytes(_NUMBER, "big") for number in range(pieces)))
    return source


def _numbers(queue: int) -> Iterator[int]:
    while number := os.read(queue, _NUMBER):
        yield int.from_bytes(number, "big")


class _Helper:
    """One fork, as its parent sees it."""

    def __init__(self, work: Callable[[int], Any], queue: int) -> None:
        self._source, target = os.pipe2(os.O_CLOEXEC)
        self._is_running = False
        parent = os.getpid()
        try:
            self._process = os.fork()
            if self._process == 0:
                os.close(self._source)
                _help(work, queue, target, parent)
            self._is_running = True
        finally:
            os.close(target)
            if not self._is_running:
                os.close(self._source)

    def answers(self) -> dict[int, Any]:
        """Wait for the end of the helper and return its answers; none when it did not end well."""
        told = b"".join(iter(lambda: os.read(self._source, _CHUNK), b""))
        with _undisturbed():
            is_whole = _ended_well(self._process)
            self._is_running = False
        answers: dict[int, Any] = marshal.loads(told) if is_whole else {}  # our own fork wrote it
        return answers

    def end(self) -> None:
        """End the helper, if it is running yet; called once."""
        os.close(self._source)
        if self._is_running:
            os.kill(self._process, signal.SIGKILL)
            _ended_well(self._process)


def _ended_well(process: int) -> bool:
    try:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    except ChildProcessError:  # whoever started us has children reaped unseen
        return False


def _help(work: Callable[[int], Any], queue: int, target: int, parent: int) -> None:
    """Be a helper."""
    status = 1
    try:  # nothing leaves this block, so that no line of the parent's runs twice
        # An interruption is the parent's business, which ends its helpers; whoever ends all processes means this one.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        answers: dict[int, Any] = {}
        for number in _numbers(queue):
            if os.getppid() != parent:
                return
            answers[number] = work(number)
        view = memoryview(marshal.dumps(answers))
        while view:
            view = view[os.write(target, view) :]
        status = 0
    finally:
        os._exit(status)
