"""The pages of a store, served on a free loopback port."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, NamedTuple

import aiohttp
import pytest

from config.settings import HttpSettings
from node.http.listener import bind, url_of
from node.http.service import HttpService
from node.store.engine import Store


class Answer(NamedTuple):
    """One answer: status, headers and the decoded envelope."""

    status: int
    headers: Any
    document: dict[str, Any]


class Site:
    """A running service and a client of it."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url
        self.session = session

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2])

    async def get(self, path: str, **more: Any) -> Answer:
        """GET a page and decode it."""
        async with self.session.get(self.url + path, **more) as response:
            return Answer(response.status, response.headers, json.loads(await response.read()))

    async def text(self, path: str) -> str:
        """GET a page that is no envelope."""
        async with self.session.get(self.url + path) as response:
            assert response.status == 200
            return await response.text()


Serve = Callable[..., AbstractAsyncContextManager[Site]]


@asynccontextmanager
async def served(
    store: Store, settings: HttpSettings | None = None, store_works: Callable[[], bool | None] = lambda: None
) -> AsyncIterator[Site]:
    """Serve the pages of `store` until the block ends."""
    settings = settings or HttpSettings(listen="127.0.0.1:0")
    listening = bind(settings.listen)
    service = HttpService(store.layout, settings, listening, store_works)
    running = asyncio.create_task(service.run())
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60)) as session:
            yield Site(url_of(listening), session)
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        listening.close()


@pytest.fixture
async def site(store: Store) -> AsyncIterator[Site]:
    """The pages of an empty store."""
    async with served(store) as running:
        yield running
