"""The endpoints of one chain: which to ask next, and how long one that failed is left alone.

Invariants
1. The first of `urls` is the one to ask. An endpoint that fails goes to the end of the list.
2. Failures in a row double an endpoint's rest, up to a cap; what it asks for itself (a retry-after) is at least kept.
3. Rests are drawn at random from the upper half of their length, so that many nodes do not come back together.
4. Calls that fail while their endpoint rests already count as one failure.
5. An endpoint whose open connection was lost rests for nothing the first time: idle connections are cut every day.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from config.errors import CacheonError

_BASE_SECONDS = 0.25
_CAP_SECONDS = 30.0
_THROTTLED_BASE_SECONDS = 1.0


class _Health:
    """How one endpoint did lately."""

    __slots__ = ("failures", "reason", "rests_until")

    def __init__(self) -> None:
        self.failures = 0
        self.rests_until = 0.0
        self.reason: CacheonError | None = None


class EndpointPool:
    """An ordered list of endpoints with their rests; times are seconds of `clock`."""

    def __init__(
        self, urls: Sequence[str], *, clock: Callable[[], float] = time.monotonic,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.urls = list(dict.fromkeys(urls))
        self._clock = clock
        self._draw = draw
        self._health: dict[str, _Health] = {}

    def usable(self) -> list[str]:
        """Return those that may be dialled now, the preferred one first."""
        now = self._clock()
        return [url for url in self.urls if self._of(url).rests_until <= now]

    def next_rest(self) -> tuple[float, CacheonError | None]:
        """Return in how many seconds the first of them may be asked again, and why it rests."""
        health = min((self._of(url) for url in self.urls), key=lambda one: one.rests_until)
        return max(0.0, health.rests_until - self._clock()), health.reason

    def rest_of(self, url: str) -> float:
        """Return for how many more seconds an endpoint wants to be left alone."""
        return max(0.0, self._of(url).rests_until - self._clock())

    def reasons(self) -> dict[str, CacheonError]:
        """Return why endpoints failed lately, by address."""
        found = {url: self._of(url).reason for url in self.urls}
        return {url: reason for url, reason in found.items() if reason is not None}

    def worked(self, url: str) -> None:
        """Note an answer that was of use; a rest that was asked for meanwhile stays."""
        if self.rest_of(url) <= 0:
            self._health.pop(url, None)

    def failed(self, url: str, reason: CacheonError, *, asked_seconds: float | None = None, lost: bool = False) -> None:
        """Note a failure. `asked_seconds` is the endpoint's own wish; `lost` a connection that had worked."""
        health = self._health.setdefault(url, _Health())
        if health.rests_until <= self._clock():  # calls that fail together are one failure
            health.failures += 1
        health.reason = reason
        base = _THROTTLED_BASE_SECONDS if reason.code == "CHAIN_RATE_LIMITED" else _BASE_SECONDS
        longest = min(base * 2.0 ** (health.failures - 1), _CAP_SECONDS)
        rest = 0.0 if lost and health.failures == 1 else self._draw(longest / 2, longest)
        health.rests_until = max(health.rests_until, self._clock() + max(rest, asked_seconds or 0.0))
        self.last(url)

    def last(self, url: str) -> None:
        """Ask `url` after all others."""
        if url in self.urls:
            self.urls.remove(url)
            self.urls.append(url)

    def _of(self, url: str) -> _Health:
        return self._health.get(url) or _Health()
