"""The loopback host that serves the miners' archives, honest or not.

Invariants
1. `/<content hash>.tar.gz` serves the archive of that name; nothing else in the folder is reachable.
2. A broken archive is answered with one 503, counted on disk before it is sent, then with a decoy for ever.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from config.errors import HostError

_NAME = re.compile(r"[0-9a-f]{64}")


class ArchiveHost:
    """Serves `folder`. `broken` maps a content hash to the hash of the decoy that is served in its place."""

    def __init__(self, folder: Path, broken: dict[str, str]) -> None:
        self._folder = folder
        self._broken = broken

    def url(self, port: int, content_hash: str) -> str:
        """Return the URL under which `content_hash` is offered."""
        return f"http://127.0.0.1:{port}/{content_hash}.tar.gz"

    @asynccontextmanager
    async def serving(self, port: int) -> AsyncIterator[None]:
        """Serve until the block is left. Raises `HostError` (PORT_IN_USE)."""
        application = web.Application()
        application.router.add_get("/{name}.tar.gz", self._get)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, "127.0.0.1", port).start()
            except OSError as error:
                raise HostError(
                    "PORT_IN_USE", f"port {port} is in use", hint="start again; another port is chosen when it can be"
                ) from error
            yield
        finally:
            await runner.cleanup()

    async def _get(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if not _NAME.fullmatch(name):
            raise web.HTTPNotFound
        decoy = self._broken.get(name)
        if decoy is not None:
            if self._first_time(name):
                raise web.HTTPServiceUnavailable(text="try again later")
            name = decoy
        path = self._folder / f"{name}.tar.gz"
        if not path.is_file():
            raise web.HTTPNotFound
        return web.Response(body=path.read_bytes(), content_type="application/gzip")

    def _first_time(self, name: str) -> bool:
        mark = self._folder / f"{name}.refused-once"
        if mark.exists():
            return False
        mark.touch()
        return True
