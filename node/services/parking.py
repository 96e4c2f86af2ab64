"""Brings parked jobs back.

Invariants
1. A parked job returns at start when the arena or worker build changed, and in any case after its rest, with a fresh
   fault budget: a spell of bad luck (an overloaded machine, a broken disk) never leaves work for a person.
2. A job that waits for another submission's bundle returns as soon as that is whole (`node.services.restoring`).
"""

from __future__ import annotations

import asyncio

import structlog

from node.services.context import NodeContext
from node.services.restoring import Restorer
from node.store.job_rows import unpark_all

_EVERY_SECONDS = 60.0


class ParkingService:
    """The parking service."""

    name = "parking"

    def __init__(self, context: NodeContext, restorer: Restorer) -> None:
        self._context = context
        self._restorer = restorer

    async def run(self) -> None:
        """Look at the parked jobs once a minute until cancelled."""
        while True:
            back = await self._context.store.write(unpark_all, self._context.worker)
            for job in [*back, *await self._restorer.look()]:
                structlog.get_logger().info("job.unparked", submission=job.submission_id, state=job.state.value)
                self._context.wake.notify()
            await asyncio.sleep(_EVERY_SECONDS)
