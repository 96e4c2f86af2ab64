"""How one service tells the others that there may be work for them.

Invariants
1. A call of `notify` between two waits of a service is never lost.
2. A wait also ends by itself after its time-out, so that no service depends on being told.
"""

from __future__ import annotations

import asyncio
import contextlib


class Wake:
    """A broadcast bell: `notify` ends the present or next wait of every listener."""

    def __init__(self) -> None:
        self._bells: list[asyncio.Event] = []

    def listen(self) -> Listener:
        """Return a new listener; keep one per service."""
        bell = asyncio.Event()
        self._bells.append(bell)
        return Listener(bell)

    def notify(self) -> None:
        """Wake every listener."""
        for bell in self._bells:
            bell.set()


class Listener:
    """One service's ear."""

    def __init__(self, bell: asyncio.Event) -> None:
        self._bell = bell

    async def wait(self, timeout_seconds: float) -> None:
        """Return when notified since the last wait, or after `timeout_seconds`."""
        with contextlib.suppress(TimeoutError):
            # Not wait_for: on Python 3.11 it can swallow a cancellation that arrives together with the bell.
            async with asyncio.timeout(timeout_seconds):
                await self._bell.wait()
        self._bell.clear()
