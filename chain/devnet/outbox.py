"""What waits to be sent on one connection.

Invariants
1. Messages leave in the order in which they were put.
2. Bounded twice: a client that asks faster than it reads is not heard until it has read (`has_room`), and one that
   lets notifications pile up beyond the limits loses its connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

_MESSAGES_LIMIT = 100_000  # a call of `dev_newBlock` alone may make 20,000 of them
_BYTES_LIMIT = 2**28
_ROOM_BYTES = 2**24  # no further request is answered while more than this waits


class Outbox:
    """The queue of one connection; `run` sends it."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._waiting: deque[str] = deque()
        self._bytes = 0
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def put(self, text: str) -> None:
        """Queue one message; a client that is too far behind is cut off."""
        self._waiting.append(text)
        self._bytes += len(text)
        self._filled.set()
        if self._bytes > _ROOM_BYTES:
            self._room.clear()
        if self._bytes > _BYTES_LIMIT or len(self._waiting) > _MESSAGES_LIMIT:
            with contextlib.suppress(AttributeError):  # how asyncio says that a transport was closed long ago
                self._connection.transport.abort()

    async def has_room(self) -> None:
        """Wait until the client has read enough to be asked again, or is gone."""
        await self._room.wait()

    async def run(self) -> None:
        """Send until cancelled or until the client is gone."""
        try:
            with contextlib.suppress(ConnectionClosed):
                while True:
                    await self._filled.wait()
                    text = self._waiting[0]
                    await self._connection.send(text)
                    self._forget_first()
        finally:
            self._room.set()

    def _forget_first(self) -> None:
        self._bytes -= len(self._waiting.popleft())
        if not self._waiting:
            self._filled.clear()
        if self._bytes <= _ROOM_BYTES:
            self._room.set()
