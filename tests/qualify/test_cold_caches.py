"""Where the caches are emptied, and that whoever empties them comes back."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from qualify.cold_caches import ColdCaches, eviction_bytes

MIB = 1 << 20


class _Memory:
    """Stands for the memory that is read; tells on which cores that is done."""

    def __init__(self, then: Callable[[], None]) -> None:
        self.seen: set[int] = set()
        self._then = then

    def sum(self) -> None:
        self.seen = os.sched_getaffinity(0)
        self._then()


@pytest.fixture(name="caches")
def _caches() -> ColdCaches:
    return ColdCaches()


def test_the_memory_has_pages_of_its_own(caches: ColdCaches) -> None:
    """Memory that was never written would be one page, which empties nothing."""
    memory: Any = caches._memory
    assert memory.nbytes == eviction_bytes() >= 64 * MIB
    assert memory.all()


def test_it_is_read_on_the_core_of_the_arm(caches: ColdCaches) -> None:
    """From another core the private caches of the arm's are out of reach."""
    home = os.sched_getaffinity(0)
    for core in home:
        caches._memory = memory = _Memory(lambda: None)  # type: ignore[assignment]
        caches.empty(core)
        assert memory.seen == {core}
        assert os.sched_getaffinity(0) == home


def test_a_core_outside_the_present_ones_is_visited_too(caches: ColdCaches) -> None:
    """The referee keeps off the core of the arms while it measures."""
    home = os.sched_getaffinity(0)
    if len(home) < 2:
        pytest.skip("needs two cores")
    first, *others = sorted(home)
    os.sched_setaffinity(0, others)
    try:
        caches._memory = memory = _Memory(lambda: None)  # type: ignore[assignment]
        caches.empty(first)
        assert memory.seen == {first}
        assert os.sched_getaffinity(0) == set(others)
    finally:
        os.sched_setaffinity(0, home)


def test_a_core_that_is_not_there_is_not_missed(caches: ColdCaches) -> None:
    """The memory is read all the same."""
    home = os.sched_getaffinity(0)
    caches._memory = memory = _Memory(lambda: None)  # type: ignore[assignment]
    caches.empty(1023)
    assert memory.seen == home == os.sched_getaffinity(0)


def test_who_is_interrupted_comes_back(caches: ColdCaches) -> None:
    """A signal that raises must not leave the referee on the core of the arms."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    home = os.sched_getaffinity(0)
    caches._memory = _Memory(interrupt)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        caches.empty(min(home))
    assert os.sched_getaffinity(0) == home
