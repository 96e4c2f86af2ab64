"""One websocket to one endpoint, spoken to in JSON-RPC 2.0.

Invariants
1. A session lives as long as its socket. Nothing here reconnects or sends twice: whoever asks knows which endpoint
   answered, and decides what is asked again.
2. Every frame that leaves passes the throttle and is counted.
3. Every frame that arrives is a JSON-RPC object or a list of them; a peer that sends anything else is hung up on.
4. When the socket ends, every waiting request and every feed gets `SessionLostError`; later requests get it at once.
5. Nothing that a peer sends makes memory grow: frames are bounded in bytes and values, notices more so, feeds keep
   their newest ones, and the newest notice of an unknown subscription is kept for a moment (it may overtake the answer
   that names its subscription).
6. Closing leaves neither a socket nor a task behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import itertools
import sys
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec
from asyncio_throttle.throttler import Throttler

from chain.transport_errors import SessionLostError, ThrottledError, answer_error, host_of, plain, seconds_of

_FRAME_LIMIT = 2**24  # bytes; nodes themselves answer with 15 MiB at most, and JSON takes many times its length here
_NOTICE_LIMIT = 2**16  # bytes of a frame with notices; a header has some hundreds, an authority change some thousands
_PARTS_LIMIT = 2**18  # JSON values of a frame: as objects, small ones take thirty times their bytes
_LIBRARY = "websockets.asyncio.client"
_CLOSE_SECONDS = 2.0  # for a peer that no longer says good-bye
_NOTICES_KEPT = 64
_STRANGERS_KEPT = 16  # unknown subscriptions, each with its newest notice
_POLICY_VIOLATION = 1008  # websocket close code by which gateways end connections that ask too much


class _Frame(msgspec.Struct):
    """The parts of a frame that decide where it goes."""

    id: int | str | None = None
    params: Any = None
    result: Any = msgspec.UNSET
    error: Any = None


_FRAMES = msgspec.json.Decoder(_Frame | list[_Frame])


class Gate:
    """Lets frames out at a bounded rate, and counts them; one for all sessions of a process."""

    def __init__(self, per_second: int) -> None:
        self.sent = 0
        self._throttle = Throttler(rate_limit=per_second, period=1.0)

    async def pass_one(self) -> None:
        """Return when one more frame may leave."""
        async with self._throttle:
            self.sent += 1


class Feed:
    """Notices of one subscription; the oldest are dropped when nobody reads them."""

    def __init__(self, session: RpcSession, unsubscribe: str) -> None:
        self.session = session
        self.name: int | str = ""
        self.unsubscribe = unsubscribe
        self._notices: deque[Any] = deque(maxlen=_NOTICES_KEPT)
        self._ready = asyncio.Event()

    @property
    def has_notice(self) -> bool:
        """Whether a notice waits to be read."""
        return bool(self._notices)

    def put(self, notice: Any) -> None:
        """Add one notice."""
        self._notices.append(notice)
        self._ready.set()

    def end(self) -> None:
        """Wake the reader, which finds the session lost."""
        self._ready.set()

    async def next(self) -> Any:
        """Return the next notice. Raises `SessionLostError` once the session ended and all notices were read."""
        while not self._notices:
            self.session.require_open()
            self._ready.clear()
            await self._ready.wait()
        return self._notices.popleft()


class RpcSession:
    """An open connection; make one with `open`."""

    def __init__(self, url: str, socket: Any, gate: Gate) -> None:
        self.url = url
        self._socket = socket
        self._gate = gate
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[asyncio.Future[Any], Feed | None]] = {}
        self._feeds: dict[int | str, Feed] = {}
        self._strangers: dict[int | str, Any] = {}
        self._lost: Exception | None = None
        self._reader = asyncio.create_task(self._read(), name="chain-session")

    @classmethod
    async def open(cls, url: str, gate: Gate, seconds: float) -> RpcSession:
        """Dial `url` within `seconds`. Raises `SessionLostError`, and `ThrottledError` for HTTP 429 and 403."""
        if _LIBRARY not in sys.modules:  # imported late, and on a thread: neither commands nor the loop wait for it
            await asyncio.to_thread(importlib.import_module, _LIBRARY)
        library = importlib.import_module(_LIBRARY)
        try:
            async with asyncio.timeout(seconds):
                socket = await library.connect(
                    url, max_size=_FRAME_LIMIT, open_timeout=None, close_timeout=_CLOSE_SECONDS, ping_interval=None
                )
        except TimeoutError as error:
            raise SessionLostError(f"{host_of(url)} gave no answer within {seconds:g} s") from error
        except Exception as error:
            # The library's errors are of many families; those of a refused handshake carry the response.
            response = getattr(error, "response", None)
            if response is not None:
                raise _refused(url, response) from error
            raise SessionLostError(f"{host_of(url)}: {plain(error) or type(error).__name__}") from error
        return cls(url, socket, gate)

    @property
    def is_open(self) -> bool:
        """Whether the socket was alive when it was last heard of."""
        return self._lost is None

    def require_open(self) -> None:
        """Raise why the session ended, if it did."""
        if self._lost is not None:
            # A new one each time: an exception that is raised again and again collects tracebacks.
            raise type(self._lost)(*self._lost.args) from self._lost

    async def request(self, method: str, params: Sequence[object] = ()) -> Any:
        """Return the result of one request.

        Raises `SessionLostError`, `AnswerError`, `ThrottledError`. There is no deadline here; cancelling is safe.
        """
        return await self._ask(method, params, None)

    async def subscribe(self, method: str, unsubscribe: str) -> Feed:
        """Start a subscription. Raises like `request`."""
        feed = Feed(self, unsubscribe)
        name = await self._ask(method, (), feed)
        if feed.name != name:
            raise SessionLostError(f"{host_of(self.url)} does not name the subscription")
        return feed

    async def unsubscribe(self, feed: Feed) -> None:
        """End a subscription; raises nothing, because there is nothing to be done about it."""
        self._feeds.pop(feed.name, None)
        if self._lost is None:
            with contextlib.suppress(Exception):
                await self.request(feed.unsubscribe, [feed.name])

    async def close(self) -> None:
        """Say good-bye and close; waits two seconds at most for the peer."""
        self._end(SessionLostError("the connection was closed"))
        with contextlib.suppress(Exception):  # whatever a dying socket says is of no use to anyone
            await asyncio.wait_for(self._socket.close(), _CLOSE_SECONDS)
        await self.abort()

    async def abort(self) -> None:
        """Close at once, without a handshake."""
        self._end(SessionLostError("the connection was dropped"))
        with contextlib.suppress(AttributeError):  # how asyncio says that a transport was closed long ago
            self._socket.transport.abort()
        self._reader.cancel()
        await asyncio.wait([self._reader])

    async def _ask(self, method: str, params: Sequence[object], feed: Feed | None) -> Any:
        number = next(self._numbers)
        frame = msgspec.json.encode({"jsonrpc": "2.0", "id": number, "method": method, "params": list(params)})
        self.require_open()
        await self._gate.pass_one()
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (answer, feed)
        try:
            try:
                await self._socket.send(frame.decode())
            except Exception as error:
                raise self._closed(error) from error
            return await answer
        finally:
            self._waiting.pop(number, None)
            if answer.done() and not answer.cancelled():
                answer.exception()  # the caller may have been cancelled just when the answer came

    async def _read(self) -> None:
        try:
            while True:
                data = await self._socket.recv(decode=False)
                _require_few_parts(data)
                found = _FRAMES.decode(data)
                for frame in found if isinstance(found, list) else (found,):
                    if frame.id is None and len(data) > _NOTICE_LIMIT:
                        raise ValueError(f"a notice of {len(data)} bytes")
                    self._take(frame)
        except asyncio.CancelledError:
            raise
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            self._end(SessionLostError(f"{host_of(self.url)} sent a frame that is not JSON-RPC: {plain(error)}"))
        except Exception as error:  # noqa: BLE001 - whatever ends this task must end the session, or callers wait for ever
            self._end(self._closed(error))
        with contextlib.suppress(AttributeError):
            self._socket.transport.abort()

    def _closed(self, error: Exception) -> Exception:
        text = f"{host_of(self.url)} hung up: {plain(error) or type(error).__name__}"
        if getattr(getattr(error, "rcvd", None), "code", None) == _POLICY_VIOLATION:
            return ThrottledError(text)
        return SessionLostError(text)

    def _take(self, frame: _Frame) -> None:
        if frame.id is None:
            self._notify(frame.params)
            return
        answer, feed = self._waiting.get(frame.id, (None, None)) if isinstance(frame.id, int) else (None, None)
        if answer is None or answer.done():
            return  # late: nobody waits any more
        if frame.error is not None:
            answer.set_exception(answer_error(frame.error))
        elif frame.result is msgspec.UNSET:
            answer.set_exception(SessionLostError(f"{host_of(self.url)} sent an answer without a result"))
        else:
            if feed is not None and isinstance(frame.result, int | str):
                self._open_feed(feed, frame.result)
            answer.set_result(frame.result)

    def _open_feed(self, feed: Feed, name: int | str) -> None:
        feed.name = name
        self._feeds[name] = feed
        if name in self._strangers:
            feed.put(self._strangers.pop(name))

    def _notify(self, params: Any) -> None:
        name = params.get("subscription") if isinstance(params, dict) else None
        if not isinstance(name, int | str):
            return
        feed = self._feeds.get(name)
        if feed is not None:
            feed.put(params.get("result"))
            return
        if len(self._strangers) >= _STRANGERS_KEPT:
            del self._strangers[next(iter(self._strangers))]
        self._strangers[name] = params.get("result")

    def _end(self, why: Exception) -> None:
        if self._lost is not None:
            return
        self._lost = why
        for answer, _ in self._waiting.values():
            if not answer.done():
                answer.set_exception(type(why)(*why.args))
        for feed in self._feeds.values():
            feed.end()
        self._strangers.clear()


def _require_few_parts(data: bytes) -> None:
    """Raise `ValueError` for a frame of very many JSON values; what text may hold beside them counts as well."""
    if len(data) > _PARTS_LIMIT and sum(map(data.count, (b",", b"[", b"{"))) > _PARTS_LIMIT:
        raise ValueError(f"more than {_PARTS_LIMIT} values in one frame")


def _refused(url: str, response: Any) -> Exception:
    status, headers = response.status_code, response.headers
    body = plain(bytes(response.body or b"")[:1024].decode("utf-8", "replace"))
    text = f"{host_of(url)} refuses the connection with HTTP {status}{': ' + body if body else ''}"
    if status in (403, 429):
        waits = [seconds_of(value) for name in ("Retry-After", "X-RateLimit-Reset") for value in headers.get_all(name)]
        return ThrottledError(text, next((wait for wait in waits if wait is not None), None))
    return SessionLostError(text)
