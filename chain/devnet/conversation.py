"""One websocket connection: requests in, answers and notifications out, and the ways in which it can break.

Invariants
1. Answers and notifications leave in the order they were made; a notification never overtakes the answer that names
   its subscription. Only an answer held back by an injected delay may come later than a later one.
2. A severed conversation answers nothing more. A half-open one looks alive from outside: its socket stays open, what
   comes in is swallowed, not even a ping is answered.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Protocol

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from chain.devnet import rpc
from chain.devnet.faults import SeveredError
from chain.devnet.outbox import Outbox
from chain.devnet.subscriptions import Send
from config.errors import CacheonError


class Host(rpc.Node, Protocol):
    """What a conversation needs of the running node."""

    def seal_waiting(self) -> None:
        """Make a block when the node makes them at once and something waits for one."""


class _Deaf(asyncio.Protocol):
    """Swallows what a client sends; the connection behind it hears only that the socket was closed."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)


class Conversation:
    """Serves one connection until it ends."""

    def __init__(self, host: Host, connection: ServerConnection) -> None:
        self.half_open = False
        self._host = host
        self._connection = connection
        self._outbox = Outbox(connection)
        self._answering = False
        self._late: list[str] = []
        self._held: list[asyncio.TimerHandle] = []
        self._send: Send = self._notify  # one object, by which the hub knows this connection

    async def run(self) -> None:
        """Answer until the client leaves, the connection is severed or the node fails."""
        writer = asyncio.create_task(self._outbox.run())
        try:
            with contextlib.suppress(ConnectionClosed, CacheonError):  # a node that failed says why in `wait`
                async for message in self._connection:
                    await self._answer(message)
                    self._host.seal_waiting()
                    await self._outbox.has_room()
        except SeveredError as cut:
            self._host.hub.drop(self._send)
            writer.cancel()
            with contextlib.suppress(CacheonError):
                self._host.seal_waiting()  # what was carried out before the cut stays carried out
            await self._sever(half_open=cut.half_open)
        finally:
            self._host.hub.drop(self._send)
            for handle in self._held:
                handle.cancel()
            writer.cancel()

    def abort(self) -> None:
        """Close the socket without a word."""
        with contextlib.suppress(AttributeError):  # how asyncio says that a transport was closed long ago
            self._connection.transport.abort()

    async def _answer(self, message: str | bytes) -> None:
        # Notifications made while answering wait until the answer, which names their subscription, is queued.
        self._answering = True
        answer = rpc.answer(self._host, message, self._send)
        if answer.delay and answer.text is not None:
            if not self._late:
                self._hold(answer.text, answer.delay)
                answer = rpc.Answer()
            else:
                await asyncio.sleep(answer.delay)
        self._answering = False
        if answer.text is not None:
            self._late.insert(0, answer.text)
        self._flush()

    def _hold(self, text: str, seconds: float) -> None:
        self._held = [handle for handle in self._held if handle.when() > asyncio.get_running_loop().time()]
        self._held.append(asyncio.get_running_loop().call_later(seconds, self._outbox.put, text))

    def _notify(self, message: dict[str, Any]) -> None:
        self._late.append(rpc.encode(message))
        self._flush()

    def _flush(self) -> None:
        if self._answering:
            return
        for text in self._late:
            self._outbox.put(text)
        self._late.clear()

    async def _sever(self, *, half_open: bool) -> None:
        self.half_open = half_open
        if half_open:
            self._connection.transport.set_protocol(_Deaf(self._connection))
        else:
            self.abort()
        await self._connection.wait_closed()
