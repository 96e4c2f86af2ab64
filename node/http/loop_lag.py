"""How late the event loop is: what every service of the node waits for.

Invariants
1. Measuring costs one timer every `PERIOD_SECONDS` and no thread.
2. What is counted is only ever added to, in buckets that never change.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from itertools import accumulate

PERIOD_SECONDS = 0.5
BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class LoopLag:
    """A histogram of seconds by which a timer of the loop came too late."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BUCKETS) + 1)
        self.seconds = 0.0

    def observe(self, seconds: float) -> None:
        """Count one delay."""
        self._counts[bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """Pairs of upper bound and how many delays were at most that long; the last bound is "+Inf"."""
        bounds = [*map(str, BUCKETS), "+Inf"]
        return [(bound, float(count)) for bound, count in zip(bounds, accumulate(self._counts), strict=True)]

    async def run(self) -> None:
        """Measure until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + PERIOD_SECONDS
            await asyncio.sleep(PERIOD_SECONDS)
            self.observe(max(0.0, loop.time() - due))
