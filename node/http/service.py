"""The pages as a service of the node."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import structlog
from aiohttp import web

from config.settings import HttpSettings
from node.http.listener import Connection, own_names, url_of
from node.http.loop_lag import LoopLag
from node.http.pages import Pages
from node.store.layout import StateLayout


class HttpService:
    """Serves the pages on a socket that is bound already; the caller closes the socket.

    `store_works` is asked by `/readyz`: whether the node's last transaction was durable, None when that is unknown.
    """

    name = "http"

    def __init__(
        self, layout: StateLayout, settings: HttpSettings, listening: socket.socket,
        store_works: Callable[[], bool | None] = lambda: None,
    ) -> None:
        self._layout = layout
        self._settings = settings
        self._listening = listening
        self._store_works = store_works
        self._lag = LoopLag()

    async def run(self) -> None:
        """Serve until cancelled."""
        loop = asyncio.get_running_loop()
        is_own_name = own_names(self._settings, self._listening)
        pages = Pages(self._layout, is_own_name, self._store_works, self._lag)
        runner = web.AppRunner(pages.application(), access_log=None, handle_signals=False)
        measuring = asyncio.create_task(self._lag.run(), name="loop-lag")
        try:
            await runner.setup()
            server = runner.server
            assert server is not None
            own = self._listening.dup()  # closed with this run; a restarted service gets another
            listener = await loop.create_server(lambda: Connection(server, loop), sock=own)
            try:
                structlog.get_logger().info("http.serving", url=url_of(self._listening))
                await listener.serve_forever()
            finally:
                listener.close()
                await server.shutdown(1.0)
        finally:
            measuring.cancel()
            await runner.cleanup()
            pages.close()
