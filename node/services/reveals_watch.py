"""Whether reveals can be read on from where the node stands, told once when they cannot and once when they can again.

Invariants
1. However long it lasts, each reason is one line of the log; the pause between two attempts grows to half a minute.
2. While reveals are held up the state folder shows why, so that a node that follows its chain and yet reads no reveal
   is not taken for a healthy one.
"""

from __future__ import annotations

import asyncio
import time

import structlog

from config.errors import CacheonError
from node.services.chain_watch import pause_after
from node.store.chain_seen import RevealsHeld, read_reveals_held, write_reveals_held
from node.store.layout import StateLayout


class RevealsWatch:
    """Hears of every pass."""

    def __init__(self, layout: StateLayout, pause_seconds: float) -> None:
        """Begin with what an earlier run left; `pause_seconds` is the first pause after a failure."""
        self._layout = layout
        self._pause_seconds = pause_seconds
        self._failures = 0
        self._told = ""
        self._view = read_reveals_held(layout) or RevealsHeld()

    async def held(self, error: CacheonError) -> None:
        """Hear that a pass failed, and pause before the next one, longer each time."""
        self._failures += 1
        if error.code != self._told:
            self._told = error.code
            structlog.get_logger().warning("reveals.held", code=error.code, error=error.message, hint=error.hint)
        if (error.code, error.message) != (self._view.code, self._view.reason):
            await self._keep(RevealsHeld(error.code, error.message, self._view.since_ms or int(time.time() * 1000)))
        await asyncio.sleep(pause_after(self._failures, self._pause_seconds))

    async def passed(self) -> None:
        """Hear that a pass succeeded."""
        self._failures = 0
        if self._told:
            structlog.get_logger().info("reveals.go_on", was=self._told)
            self._told = ""
        if self._view.code:
            await self._keep(RevealsHeld())

    async def _keep(self, view: RevealsHeld) -> None:
        self._view = view
        try:
            await asyncio.to_thread(write_reveals_held, self._layout, view)
        except OSError as error:
            structlog.get_logger().warning("chain.view_unwritten", error=str(error))
