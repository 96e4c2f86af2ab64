"""An endpoint between a client and a devnet that a test can bend: answers changed, withheld, or made up."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any

from websockets.asyncio.client import connect
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

Answer = dict[str, Any]


class Relay:
    """Passes everything on. `bend(request, answer)` returns the answer to send instead, None for silence."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._server: Server | None = None
        self.url = ""
        self.bend: Callable[[Answer, Answer], Answer | None] = lambda request, answer: answer
        self.bend_notice: Callable[[Answer], Answer] = lambda notice: notice
        self.mute_notices = False
        self.hang_up_after = ""  # method whose answer is the last thing that a connection gets
        self.asked: list[str] = []  # methods, in the order of arrival

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await serve(self._serve, "127.0.0.1", 0, compression=None, ping_interval=None, max_size=None)
        self.url = f"ws://127.0.0.1:{next(iter(self._server.sockets)).getsockname()[1]}"

    async def stop(self) -> None:
        """Close everything."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, client: ServerConnection) -> None:
        asked: dict[Any, Answer] = {}
        with contextlib.suppress(ConnectionClosed):
            async with connect(self._target, compression=None, ping_interval=None, max_size=None) as node:
                back = asyncio.create_task(self._answers(node, client, asked))
                try:
                    async for text in client:
                        request = json.loads(text)
                        self.asked.append(request["method"])
                        asked[request["id"]] = request
                        await node.send(text)
                finally:
                    back.cancel()
                    await asyncio.wait([back])

    async def _answers(self, node: Any, client: ServerConnection, asked: dict[Any, Answer]) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for text in node:
                answer = json.loads(text)
                if "id" not in answer:
                    if self.mute_notices:
                        continue
                    bent: Answer | None = self.bend_notice(answer)
                else:
                    request = asked.pop(answer["id"])
                    bent = self.bend(request, answer)
                    if request["method"] == self.hang_up_after:
                        await client.send(json.dumps(answer))
                        client.transport.close()
                        return
                if bent is not None:
                    await client.send(json.dumps(bent))
