"""Which endpoint is asked next, and how long a failed one is left alone."""

from __future__ import annotations

import pytest

from chain.endpoints import EndpointPool
from config.errors import NetworkError

LOST = NetworkError("CHAIN_UNREACHABLE", "gone")
LIMITED = NetworkError("CHAIN_RATE_LIMITED", "too many")


class Clock:
    """A clock that the test moves."""

    now = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture(name="clock")
def _clock() -> Clock:
    return Clock()


def pool_of(clock: Clock, *urls: str) -> EndpointPool:
    """A pool whose rests are as long as they can be."""
    return EndpointPool(urls, clock=clock, draw=lambda shortest, longest: longest)


def test_failures_double_the_rest_up_to_half_a_minute(clock: Clock) -> None:
    """Retries of a dead endpoint become rare, and never rarer than every thirty seconds."""
    pool = pool_of(clock, "ws://a")
    rests = []
    for _ in range(12):
        pool.failed("ws://a", LOST)
        rests.append(pool.rest_of("ws://a"))
        clock.now += rests[-1]
    assert rests[:4] == [0.25, 0.5, 1.0, 2.0]
    assert rests[-1] == 30.0


def test_a_pause_that_is_asked_for_is_kept(clock: Clock) -> None:
    """A retry-after longer than our own rest counts, and an answer to another call meanwhile does not end it."""
    pool = pool_of(clock, "ws://a", "ws://b")
    pool.failed("ws://a", LIMITED, asked_seconds=40.0)
    pool.worked("ws://a")
    assert pool.rest_of("ws://a") == 40.0
    assert pool.usable() == ["ws://b"]
    clock.now += 40.0
    assert pool.usable() == ["ws://b", "ws://a"]
    pool.worked("ws://a")
    pool.failed("ws://a", LIMITED)
    assert pool.rest_of("ws://a") == 1.0


def test_a_lost_connection_is_dialled_again_at_once_the_first_time(clock: Clock) -> None:
    """Idle connections are cut every day; only one that is lost again and again is left alone."""
    pool = pool_of(clock, "ws://a")
    pool.failed("ws://a", LOST, lost=True)
    assert pool.usable() == ["ws://a"]
    pool.failed("ws://a", LOST, lost=True)
    assert pool.usable() == []
    assert pool.next_rest() == (0.5, LOST)


def test_calls_that_fail_together_are_one_failure(clock: Clock) -> None:
    """Twenty answers to questions asked at once do not make the rest of an endpoint twenty times as long."""
    pool = pool_of(clock, "ws://a")
    for _ in range(20):
        pool.failed("ws://a", LIMITED)
    assert pool.rest_of("ws://a") == 1.0


def test_rests_differ_between_nodes(clock: Clock) -> None:
    """The rest is drawn from the upper half of its length."""
    asked: list[tuple[float, float]] = []

    def draw(shortest: float, longest: float) -> float:
        asked.append((shortest, longest))
        return shortest

    pool = EndpointPool(["ws://a"], clock=clock, draw=draw)
    pool.failed("ws://a", LOST)
    assert asked == [(0.125, 0.25)]
    assert pool.rest_of("ws://a") == 0.125


def test_one_that_fails_goes_last_and_none_is_listed_twice(clock: Clock) -> None:
    """Order is that of the settings until something fails."""
    pool = pool_of(clock, "ws://a", "ws://b", "ws://a", "ws://c")
    assert pool.urls == ["ws://a", "ws://b", "ws://c"]
    pool.failed("ws://a", LOST, lost=True)
    assert pool.usable() == ["ws://b", "ws://c", "ws://a"]
    assert pool.reasons() == {"ws://a": LOST}
