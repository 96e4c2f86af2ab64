"""Whether the chain is there, told once when it goes and once when it comes back.

Invariants
1. However long the chain is away and however many calls fail meanwhile, each reason is one line of the log.
2. The state folder always shows the newest finalized block and, while the chain is away, why and since when.
3. Keeping that view never fails the node: a disk that cannot be written is a matter of the store.
"""

from __future__ import annotations

import asyncio
import random
import time

import msgspec
import structlog

from chain.heads import FinalizedHead
from config.errors import CacheonError
from node.store.chain_seen import ChainSeen, read_chain_seen, write_chain_seen
from node.store.layout import StateLayout

_PAUSE_CAP_SECONDS = 30.0


class ChainWatch:
    """Hears of every head and of every failure to get one."""

    def __init__(self, layout: StateLayout, pause_seconds: float) -> None:
        """Begin with what an earlier run saw; `pause_seconds` is the first pause after a failure."""
        self._layout = layout
        self._pause_seconds = pause_seconds
        self._failures = 0
        last = read_chain_seen(layout) or ChainSeen()
        self._view = msgspec.structs.replace(last, away_code="", away_reason="", away_ms=0)
        self.gone = asyncio.Event()  # set while the chain is away

    @property
    def view(self) -> ChainSeen:
        """What is known now."""
        return self._view

    async def away(self, error: CacheonError) -> None:
        """Hear that the chain could not be asked, and pause before the next attempt, longer each time."""
        self._failures += 1
        if error.code != self._view.away_code:
            structlog.get_logger().warning(
                "chain.away", code=error.code, error=error.message, hint=error.hint, block=self._view.block,
            )
        if (error.code, error.message) != (self._view.away_code, self._view.away_reason):
            since = self._view.away_ms or _now_ms()
            await self._keep(away_code=error.code, away_reason=error.message, away_ms=since)
        self.gone.set()
        await asyncio.sleep(pause_after(self._failures, self._pause_seconds))

    async def back(self) -> None:
        """Hear that the chain answered."""
        self._failures = 0
        self.gone.clear()
        if self._view.away_code:
            seconds = round((_now_ms() - self._view.away_ms) / 1000)
            structlog.get_logger().info("chain.back", seconds=seconds, was=self._view.away_code)
            await self._keep(away_code="", away_reason="", away_ms=0)

    async def heard(self, head: FinalizedHead) -> None:
        """Hear of a new finalized head."""
        await self.back()
        await self._keep(
            block=head.block.number, block_hash=head.block.hash, block_ms=head.timestamp_ms,
            spec_version=head.spec_version,
        )

    async def _keep(self, **changes: object) -> None:
        self._view = msgspec.structs.replace(self._view, **changes)
        try:
            await asyncio.to_thread(write_chain_seen, self._layout, self._view)
        except OSError as error:
            structlog.get_logger().warning("chain.view_unwritten", error=str(error))


def pause_after(failures: int, first_seconds: float) -> float:
    """Return the seconds to wait after so many failures in a row; drawn, so that nodes do not march in step."""
    longest = min(first_seconds * 2.0 ** min(failures, 32), _PAUSE_CAP_SECONDS)
    return random.uniform(longest / 2, longest)


def _now_ms() -> int:
    return int(time.time() * 1000)
