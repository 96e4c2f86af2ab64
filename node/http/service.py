"""The pages as a service of the node."""

from __future__ import annotations

import asyncio
import socket

import structlog
from aiohttp import web

from config.settings import HttpSettings
from node.http.listener import Connection, own_names, url_of
from node.http.pages import Pages
from node.store.layout import StateLayout


class HttpService:
    """Serves the pages on a socket that is bound already; the caller closes the socket."""

    name = "http"

    def __init__(self, layout: StateLayout, settings: HttpSettings, listening: socket.socket) -> None:
        self._layout = layout
        self._settings = settings
        self._listening = listening

    async def run(self) -> None:
        """Serve until cancelled."""
        loop = asyncio.get_running_loop()
        pages = Pages(self._layout, own_names(self._settings, self._listening))
        runner = web.AppRunner(pages.application(), access_log=None, handle_signals=False)
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
            await runner.cleanup()
            pages.close()
