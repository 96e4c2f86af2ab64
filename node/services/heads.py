"""The newest finalized block that the node knows of, shared by the services that follow the chain.

Invariants
1. It only moves forward.
2. `wait_beyond` never misses a head: it compares numbers, not signals.
3. It is followed by a service of its own: whatever keeps reveals from being read keeps nobody else from going on.
4. A chain that is away, or whose runtime became one that this release cannot read, ends nothing: heads stop, the reason
   is told (`node.services.chain_watch`), and they go on by themselves.
"""

from __future__ import annotations

import asyncio

from chain.blocks import BlockRef
from chain.client import ChainClient
from config.errors import ChainError, NetworkError
from node.services.chain_watch import ChainWatch


class HeadWatch:
    """Announces finalized heads."""

    def __init__(self) -> None:
        self._latest: BlockRef | None = None
        self._moved = asyncio.Condition()

    @property
    def latest(self) -> BlockRef | None:
        """The newest finalized block seen so far."""
        return self._latest

    async def announce(self, head: BlockRef) -> None:
        """Make `head` known; an older one changes nothing."""
        if self._latest is not None and head.number <= self._latest.number:
            return
        async with self._moved:
            self._latest = head
            self._moved.notify_all()

    async def wait_beyond(self, number: int) -> BlockRef:
        """Return the newest head as soon as it is above `number`."""
        async with self._moved:
            while self._latest is None or self._latest.number <= number:
                await self._moved.wait()
            return self._latest


class HeadsService:
    """The service that follows the finalized head."""

    name = "heads"

    def __init__(self, client: ChainClient, heads: HeadWatch, watch: ChainWatch) -> None:
        self._client = client
        self._heads = heads
        self._watch = watch

    async def run(self) -> None:
        """Announce every new head until cancelled, waiting as long as it takes while there is none."""
        while True:
            try:
                head = await self._client.next_finalized()
            except (NetworkError, ChainError) as error:
                await self._watch.away(error)
                continue
            await self._watch.heard(head)
            await self._heads.announce(head.block)
