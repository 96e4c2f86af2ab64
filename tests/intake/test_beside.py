"""Work shared with forks: every piece has its answer, in order, whatever happens to a helper; nobody is left behind."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from intake import beside
from intake.beside import spare_processors, spread


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the processes that are forked, in order."""
    found: list[int] = []
    fork = os.fork

    def noted() -> int:
        process = fork()
        found.append(process)
        return process

    monkeypatch.setattr(os, "fork", noted)
    return found


def _are_gone(children: list[int]) -> bool:
    for child in children:
        with pytest.raises(ChildProcessError):
            os.waitpid(child, os.WNOHANG)
    return True


def _double(number: int) -> int:
    return 2 * number


def _waiting_for_helpers(pieces: int, helpers: int, there: Callable[[int], Any]) -> tuple[list[Any], bool]:
    """Share pieces so that each process, this one included, surely takes one; and whether helpers had answers."""
    mine = os.getpid()
    source, target = os.pipe()
    waited = False

    def here(number: int) -> Any:
        nonlocal waited
        if not waited:
            for _ in range(helpers):
                os.read(source, 1)  # every helper has begun a piece
            waited = True
        return number, os.getpid()

    def begun(number: int) -> Any:
        os.write(target, b"x")
        return there(number)

    try:
        answers = spread(here, begun, pieces, helpers)
    finally:
        os.close(source)
        os.close(target)
    return [number for number, _ in answers], any(process != mine for _, process in answers)


@pytest.mark.parametrize("helpers", [0, 1, 3, 7])
@pytest.mark.parametrize("pieces", [0, 1, 2, 50, 5000])
def test_answers_are_in_order(helpers: int, pieces: int) -> None:
    """However many take part, and of however many pieces."""
    assert spread(_double, _double, pieces, helpers) == [2 * number for number in range(pieces)]


@pytest.mark.parametrize("helpers", [1, 3])
def test_helpers_take_part(children: list[int], helpers: int) -> None:
    """The queue is shared: what a helper answered is not done again here."""
    answers, helped = _waiting_for_helpers(20, helpers, lambda number: (number, os.getpid()))
    assert answers == list(range(20))
    assert helped
    assert len(children) == helpers
    assert _are_gone(children)


@pytest.mark.parametrize(
    "end", [lambda _: os._exit(3), lambda _: os.kill(os.getpid(), signal.SIGKILL), lambda _: 1 / 0, lambda _: object()]
)
def test_a_helper_that_ends_badly_has_no_answers(children: list[int], end: Callable[[int], Any]) -> None:
    """One that leaves, is killed, fails or answers what cannot be told: its pieces are done here."""
    answers, helped = _waiting_for_helpers(20, 2, end)
    assert answers == list(range(20))
    assert not helped
    assert _are_gone(children)


def test_one_of_several_dies() -> None:
    """The pieces of the others are kept, those of the dead one done here."""

    def there(number: int) -> Any:
        if number == 1:
            os._exit(1)
        return number, os.getpid()

    answers, _ = _waiting_for_helpers(30, 3, there)
    assert answers == list(range(30))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_at_a_fork_ends_all(
    number: signal.Signals, children: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody but the parent goes on, whoever is interrupted right after the fork, and no helper is left behind."""
    mine, fork = os.getpid(), os.fork
    source, target = os.pipe()

    def interrupted() -> int:
        process = fork()
        signal.pthread_kill(threading.get_ident(), number)
        return process

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def share() -> None:
        try:
            spread(_double, _double, 50, 3)
        finally:
            if os.getpid() != mine:
                os.write(target, b"x")
                os._exit(1)

    monkeypatch.setattr(os, "fork", interrupted)
    before = signal.signal(number, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            share()
    finally:
        signal.signal(number, before)
        os.close(target)
    with os.fdopen(source, "rb") as file:
        assert file.read() == b""  # at its end once all forks are gone
    assert len(children) == 1
    assert _are_gone(children)


def test_an_answer_may_be_larger_than_a_pipe() -> None:
    """Helpers may tell more than fits into a pipe while nobody reads."""
    large = b"x" * 3_000_000
    assert spread(lambda _: large, lambda _: large, 6, 2) == [large] * 6


def test_nobody_is_left_behind_by_an_error(children: list[int]) -> None:
    """What is raised here ends the helpers, which would never end themselves."""

    def fail(_: int) -> int:
        raise KeyError

    with pytest.raises(KeyError):
        spread(fail, lambda _: signal.pause(), 9, 3)
    assert len(children) == 3
    assert _are_gone(children)


def test_a_helper_without_a_parent_takes_no_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose parent is gone ends at once."""
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert spread(_double, lambda _: -1, 9, 3) == [2 * number for number in range(9)]


@pytest.mark.parametrize("begun", [0, 1])
def test_without_processes_all_is_done_here(monkeypatch: pytest.MonkeyPatch, begun: int) -> None:
    """Where no process, or no further one, is to be had, those that there are do the work."""
    fork = os.fork
    left = [begun]

    def refuse() -> int:
        left[0] -= 1
        if left[0] < 0:
            raise BlockingIOError
        return fork()

    monkeypatch.setattr(os, "fork", refuse)
    assert spread(_double, _double, 9, 3) == [2 * number for number in range(9)]


def test_without_descriptors_all_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no pipe is to be had, this process does everything."""

    def refuse(_: int) -> tuple[int, int]:
        raise OSError

    monkeypatch.setattr(os, "pipe2", refuse)
    assert spread(_double, _double, 9, 3) == [2 * number for number in range(9)]


def test_no_descriptor_is_left_open() -> None:
    """Neither when all is well nor when a helper dies."""
    before = len(os.listdir("/proc/self/fd"))
    spread(_double, _double, 9, 3)
    spread(_double, lambda _: os._exit(1), 9, 3)
    assert len(os.listdir("/proc/self/fd")) == before


def test_one_processor_is_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processors that count are those this process may run on."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    assert spare_processors() == 0
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 3, 5})
    assert spare_processors() == 2


def test_a_process_with_threads_is_not_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork has none of the other threads, and all of their locks."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 3, 5})
    monkeypatch.setattr(beside.threading, "active_count", lambda: 2)
    assert spare_processors() == 0
