"""The pages, and the guard around them.

Invariants
1. Only GET and HEAD, without a body; on a loopback address only under loopback's names or the configured ones, so that
   no web page of elsewhere can ask through a browser.
2. An error is the envelope with a code; what is unexpected is logged here and answered without a detail.
3. Reading happens on threads, at most `_READERS` at a time, each within `PAGE_SECONDS`; who comes when all are taken
   waits, and is told to come again when that takes too long.
4. `/readyz` and `/metrics` have a thread of their own: however many read the other pages, a node looks no less ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import metadata
from typing import TypeVar

import structlog
from aiohttp import web
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from config.errors import (
    Blame,
    CacheonError,
    ConfigurationError,
    ErrorDocument,
    HostError,
    InternalError,
    NetworkError,
    NotFoundError,
)
from node.envelope import failure_line, success_line
from node.http.documents import (
    GZIP,
    JSON,
    TOML,
    attempt_path,
    read_attempt_file,
    read_ledger_file,
    read_named_file,
    read_receipt_file,
)
from node.http.health import read_observed, read_snapshot, ready_view
from node.http.loop_lag import LoopLag
from node.http.metrics import CONTENT_TYPE, Scrape
from node.http.parameters import digest, no_query, page_query, receipt_query
from node.http.views import read_page, read_receipts, read_submission
from node.store.engine import reader_engine
from node.store.layout import StateLayout

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

PAGE_SECONDS = 10.0
_READERS = 4
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'",
    "Server": "cacheon",
    "X-Content-Type-Options": "nosniff",
}
_FOREVER = "public, max-age=31536000, immutable"
_STATUS: tuple[tuple[type[CacheonError], int], ...] = (
    (NotFoundError, 404), (ConfigurationError, 400), (HostError, 503), (NetworkError, 503),
)
_SCHEMAS = {
    "/api/v1/submissions": "api submissions", "/api/v1/ledger": "api ledger", "/api/v1/receipts": "api receipts",
    "/api/v1/attempts": "api attempts", "/api/v1/arenas": "api arenas", "/api/v1/targets": "api targets",
    "/livez": "livez", "/readyz": "readyz", "/metrics": "metrics",
}


class Pages:
    """The pages of one state folder. `is_own_name` says under which host names they may be asked for, `store_works`
    whether the node's last transaction was durable (None: nobody knows), `lag` how late its event loop is."""

    def __init__(
        self, layout: StateLayout, is_own_name: Callable[[str], bool],
        store_works: Callable[[], bool | None] = lambda: None, lag: LoopLag | None = None,
    ) -> None:
        self._layout = layout
        self._is_own_name = is_own_name
        self._store_works = store_works
        self._lag = lag or LoopLag()
        self._threads = ThreadPoolExecutor(_READERS, "http")
        self._health_thread = ThreadPoolExecutor(1, "http-health")
        self._engine: Engine = reader_engine(layout)

    def application(self) -> web.Application:
        """Return the application that serves them."""
        application = web.Application(middlewares=[self._guard], client_max_size=1)
        application.router.add_get("/livez", self._livez)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._metrics)
        application.router.add_get("/api/v1/submissions", self._submissions)
        application.router.add_get("/api/v1/submissions/{id}", self._submission)
        application.router.add_get("/api/v1/ledger/{digest}", self._ledger)
        application.router.add_get("/api/v1/receipts", self._receipts)
        application.router.add_get("/api/v1/receipts/{digest}", self._receipt)
        application.router.add_get("/api/v1/attempts/{digest}", self._attempt)
        application.router.add_get("/api/v1/arenas/{digest}", self._arena)
        application.router.add_get("/api/v1/targets/{digest}", self._target)
        return application

    def close(self) -> None:
        """Let go of the threads and of the database."""
        for threads in (self._threads, self._health_thread):
            threads.shutdown(wait=False, cancel_futures=True)
        self._engine.dispose()

    async def _livez(self, request: web.Request) -> web.Response:
        no_query(request.query)
        return _answer("livez", {"alive": True, "version": metadata.version("cacheon")})

    async def _readyz(self, request: web.Request) -> web.Response:
        no_query(request.query)
        view = ready_view(await self._look(read_observed), self._store_works())
        return _answer("readyz", view, status=200 if view.ready else 503)

    async def _metrics(self, request: web.Request) -> web.Response:
        no_query(request.query)
        scrape = Scrape(self._layout, self._lag, await self._look(read_snapshot), self._store_works())
        body = await self._in_thread(scrape.render, self._health_thread)
        return web.Response(body=body, headers=_HEADERS | {"Content-Type": CONTENT_TYPE})

    async def _look(self, work: Callable[[Connection, StateLayout], T]) -> T | None:
        """Return what `work` reads, None when the store cannot be read."""
        with suppress(HostError):
            return await self._read(work, self._layout, self._health_thread)
        return None

    async def _submissions(self, request: web.Request) -> web.Response:
        return _answer("api submissions", await self._read(read_page, page_query(request.query)))

    async def _submission(self, request: web.Request) -> web.Response:
        no_query(request.query)
        name = digest("id", request.match_info["id"])
        return _answer("api submissions", await self._read(read_submission, name))

    async def _ledger(self, request: web.Request) -> web.Response:
        name = _name(request)
        return await self._document(lambda: read_ledger_file(self._layout, name), JSON)

    async def _receipts(self, request: web.Request) -> web.Response:
        return _answer("api receipts", await self._read(read_receipts, receipt_query(request.query)))

    async def _receipt(self, request: web.Request) -> web.Response:
        name = _name(request)
        return await self._document(lambda: read_receipt_file(self._layout, name), JSON)

    async def _attempt(self, request: web.Request) -> web.Response:
        name = _name(request)
        path = await self._read(attempt_path, name)
        return await self._document(lambda: read_attempt_file(self._layout, path, name), GZIP)

    async def _arena(self, request: web.Request) -> web.Response:
        name = _name(request)
        return await self._document(
            lambda: read_named_file(self._layout.arenas, f"{name}.toml", "arena", name), TOML
        )

    async def _target(self, request: web.Request) -> web.Response:
        name = _name(request)
        return await self._document(
            lambda: read_named_file(self._layout.targets, f"{name}.json", "target", name), JSON
        )

    async def _document(self, work: Callable[[], bytes], kind: str) -> web.Response:
        body = await self._in_thread(work)
        return web.Response(body=body, content_type=kind, headers=_HEADERS | {"Cache-Control": _FOREVER})

    async def _read(
        self, work: Callable[[Connection, str], T] | Callable[..., T], argument: object,
        threads: ThreadPoolExecutor | None = None,
    ) -> T:
        def transaction() -> T:
            try:
                with self._engine.connect() as connection, connection.begin():
                    return work(connection, argument)  # type: ignore[arg-type]  # one argument of the page's own kind
            except SQLAlchemyError as error:
                structlog.get_logger().warning("http.store_unreadable", error=str(getattr(error, "orig", error)))
                raise HostError(
                    "STORE_UNUSABLE", "the node's database cannot be read just now", hint="ask again in a moment"
                ) from error

        return await self._in_thread(transaction, threads)

    async def _in_thread(self, work: Callable[[], T], threads: ThreadPoolExecutor | None = None) -> T:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(PAGE_SECONDS):
                return await loop.run_in_executor(threads or self._threads, work)
        except TimeoutError as error:
            raise NetworkError(
                "HTTP_BUSY", f"the node did not answer within {PAGE_SECONDS:g} s", hint="ask again in a while",
                blame=Blame.OPERATOR,
            ) from error

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if not self._is_own_name(request.host):
                raise ConfigurationError(
                    "HTTP_HOST_REFUSED", "this node does not answer under that host name",
                    hint="ask for 127.0.0.1 or localhost, or name the host in `http.hosts`",
                )
            if request.can_read_body:
                raise ConfigurationError("HTTP_PARAMETER_INVALID", "a request here has no body")
            return await handler(request)
        except CacheonError as error:
            return _refusal(request, error.to_document(), _status_of(error))
        except web.HTTPException as error:
            return _unserved(request, error)
        except Exception:  # noqa: BLE001 - the boundary: no traceback may reach a reader
            structlog.get_logger().exception("http.failed", path=request.path[:200])
            document = InternalError("HTTP_FAILED", "the node failed to answer; its log says why").to_document()
            return _refusal(request, document, 500)


def _name(request: web.Request) -> str:
    no_query(request.query)
    return digest("digest", request.match_info["digest"])


def _unserved(request: web.Request, error: web.HTTPException) -> web.Response:
    if error.status == 405:
        refused: CacheonError = ConfigurationError("HTTP_READ_ONLY", "these pages can only be read (GET and HEAD)")
    elif error.status == 404:
        refused = NotFoundError("HTTP_PAGE_UNKNOWN", "there is no such page", hint="docs/operator.md lists them")
    else:
        refused = ConfigurationError("HTTP_PARAMETER_INVALID", f"the request cannot be served ({error.status})")
    return _refusal(request, refused.to_document(), error.status)


def _status_of(error: CacheonError) -> int:
    if error.code == "HTTP_HOST_REFUSED":
        return 421
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def _answer(name: str, data: object, status: int = 200) -> web.Response:
    return web.Response(
        body=success_line(name, data), status=status, content_type="application/json", headers=_HEADERS
    )


def _refusal(request: web.Request, error: ErrorDocument, status: int) -> web.Response:
    name = next((name for path, name in _SCHEMAS.items() if request.path.startswith(path)), "")
    response = web.Response(
        body=failure_line(name, error), status=status, content_type="application/json", headers=_HEADERS
    )
    if status == 405:
        response.headers["Allow"] = "GET, HEAD"
    if request.can_read_body:
        response.force_close()
    return response
