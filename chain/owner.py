"""The one owner of the process's connection: dialling, failover, deadlines, and what is asked again.

Invariants
1. One owner holds at most one connection. Tasks of one event loop share it.
2. Every call has a deadline. A call that misses it drops the connection, because a half-dead socket answers nobody.
3. Dialling is one task that all callers wait for, however many wait and whichever of them give up meanwhile. It tries
   each endpoint that does not rest once, and then says why none can be used.
4. A question whose connection is lost, or whose answer another endpoint may improve on, is asked again within its
   deadline; a submission never is.
5. An endpoint that asks for a pause gets it: while it rests, nothing is sent to it, and a call that cannot wait that
   long fails with its reason instead.
6. Only errors of `config.errors` leave.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from chain.blocks import BlockRef
from chain.connection import ChainPin, Connection
from chain.endpoints import EndpointPool
from chain.runtimes import Runtimes
from chain.session import Gate
from chain.transport_errors import (
    ForeignChainError,
    ThrottledError,
    foreign,
    host_of,
    require_address,
    translate,
    unreachable,
)
from config.errors import CacheonError, NetworkError

T = TypeVar("T")
# Answers of one endpoint that the next one may improve on.
_ASK_ANOTHER = frozenset({
    "CHAIN_STATE_PRUNED", "CHAIN_BLOCK_UNKNOWN", "CHAIN_DECODE_FAILED", "CHAIN_FORKED", "CHAIN_ENDPOINT_LAGS",
})


class ConnectionOwner:
    """Owns the connection to one chain through any of several endpoints."""

    def __init__(
        self, endpoints: Sequence[str], *, request_timeout: float, rpc_per_second: int, runtime_cache_dir: Path | None,
        genesis_hash: str, final: BlockRef | None,
    ) -> None:
        if not endpoints:
            raise unreachable("because none is configured")
        for url in endpoints:
            require_address(url)
        self.request_timeout = request_timeout
        self.runtimes = Runtimes(runtime_cache_dir)
        self._pool = EndpointPool(endpoints)
        self._gate = Gate(rpc_per_second)
        self._pin = ChainPin(genesis_hash, final)
        self._connection: Connection | None = None
        self._dialling: asyncio.Task[Connection] | None = None

    @property
    def rpc_calls(self) -> int:
        """How many requests left so far."""
        return self._gate.sent

    @property
    def _endpoints(self) -> list[str]:
        return self._pool.urls

    async def close(self) -> None:
        """Disconnect; a later call connects again."""
        dialling, self._dialling = self._dialling, None
        if dialling is not None:
            dialling.cancel()
            await asyncio.wait([dialling])
        await self._disconnect()

    async def try_another(self) -> None:
        """Give up the connection: what it answered was no use, and the next call asks the next endpoint."""
        await self._drop(self._connection)

    async def _call(self, doing: str, ask: Callable[[Connection], Awaitable[T]], *, again: bool = True) -> T:
        """Return `ask(connection)`; `doing` is a gerund phrase for errors, `again` whether it may be asked twice."""
        asked: list[Connection] = []
        try:
            async with asyncio.timeout(self.request_timeout):
                return await self._ask(doing, ask, asked, again)
        except TimeoutError as error:
            late = NetworkError(
                "CHAIN_TIMEOUT",
                f"The chain endpoint gave no answer within {self.request_timeout:g} s while {doing}.",
                hint="The next call dials again; add a second endpoint to `chain.endpoints` if this one is often slow.",
            )
            if asked:
                await self._drop(asked[-1], late)
            raise late from error

    async def _ask(
        self, doing: str, ask: Callable[[Connection], Awaitable[T]], asked: list[Connection], again: bool
    ) -> T:
        deadline = asyncio.get_running_loop().time() + self.request_timeout
        while True:
            connection = await self._connected()
            asked.append(connection)
            await self._let_rest(connection, deadline)
            try:
                result = await ask(connection)
            except Exception as error:  # noqa: BLE001 - the edge of the room: codec, websocket and JSON raise what they like
                ours = translate(error, doing)
                useful = await self._judge(connection, ours, error)
                if not useful or not again or len(asked) > max(2, len(self._endpoints)):
                    raise ours from (error if ours is not error else ours.__cause__)
            else:
                self._pool.worked(connection.endpoint)
                return result

    async def _judge(self, connection: Connection, ours: CacheonError, error: Exception) -> bool:
        """Draw the consequences of a failed call; say whether asking again may help."""
        if ours.code == "CHAIN_RATE_LIMITED":
            wait = error.retry_after if isinstance(error, ThrottledError) else None
            self._pool.failed(connection.endpoint, ours, asked_seconds=wait)
            if len(self._endpoints) > 1 or not connection.session.is_open:
                await self._drop(connection)
            return True
        if not connection.session.is_open:
            await self._drop(connection, ours, lost=True)
            return True
        if ours.code == "CHAIN_UNREACHABLE" or (ours.code in _ASK_ANOTHER and len(self._endpoints) > 1):
            await self._drop(connection, ours)
            return True
        return False

    async def _let_rest(self, connection: Connection, deadline: float) -> None:
        rest = self._pool.rest_of(connection.endpoint)
        if rest <= 0:
            return
        reason = self._pool.reasons().get(connection.endpoint)
        if reason is not None and asyncio.get_running_loop().time() + rest >= deadline:
            raise _again(reason)
        await asyncio.sleep(rest)

    async def _connected(self) -> Connection:
        while self._connection is None or not self._connection.session.is_open:
            if self._connection is not None:
                await self._drop(self._connection, unreachable("because the connection was lost"), lost=True)
                continue
            if self._dialling is None:
                self._dialling = asyncio.create_task(self._dial(), name="chain-dial")
                self._dialling.add_done_callback(self._dialled)
            dialling = self._dialling
            await asyncio.wait([dialling])  # unlike awaiting it: a caller that gives up does not end it for the others
            if dialling.cancelled():
                raise unreachable("because the client was closed meanwhile")
            failure = dialling.exception()
            if failure is not None:
                raise _again(failure) if isinstance(failure, CacheonError) else failure
        return self._connection

    async def _dial(self) -> Connection:
        """Return a connection to the first endpoint that can be used.

        Raises the error of the last one tried, CHAIN_GENESIS_DIFFERS when all are of other chains.
        """
        strangers: list[str] = []
        last: CacheonError | None = None
        for url in await self._awake():
            try:
                async with asyncio.timeout(self.request_timeout / 2):
                    return await Connection.open(
                        url, self._gate, self.runtimes, self._pin, seconds=self.request_timeout / 2,
                        may_lag=len(self._endpoints) == 1,
                    )
            except TimeoutError:
                last = unreachable(f"while connecting: {host_of(url)} did not name its chain in time")
                self._pool.failed(url, last)
            except ForeignChainError as error:
                strangers.append(str(error))
                self._pool.failed(url, foreign(str(error)))
            except Exception as error:  # noqa: BLE001 - as in `_ask`
                last = translate(error, "connecting")
                wait = error.retry_after if isinstance(error, ThrottledError) else None
                self._pool.failed(url, last, asked_seconds=wait)
        if last is None:
            raise foreign("; ".join(strangers))
        raise last

    async def _awake(self) -> list[str]:
        """Return the endpoints to dial now, waiting a while when all of them rest."""
        usable = self._pool.usable()
        if not usable:
            rest, reason = self._pool.next_rest()
            if rest >= self.request_timeout and reason is not None:
                raise _again(reason)
            await asyncio.sleep(rest)
            usable = self._pool.usable() or self._pool.urls[:1]
        return usable

    def _dialled(self, task: asyncio.Task[Connection]) -> None:
        if self._dialling is task:
            self._dialling = None
        if not task.cancelled() and task.exception() is None:
            self._connection = task.result()

    async def _drop(
        self, connection: Connection | None, reason: CacheonError | None = None, *, lost: bool = False
    ) -> None:
        # Another task may have dropped this very connection and dialled again already: leave the new one alone.
        if connection is None or connection is not self._connection:
            return
        self._connection = None
        if reason is not None:
            self._pool.failed(connection.endpoint, reason, lost=lost)
        else:
            self._pool.last(connection.endpoint)
        await connection.session.abort()

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


def _again(reason: CacheonError) -> CacheonError:
    """Return a fresh error that says the same: one that is raised again and again would collect tracebacks."""
    return type(reason)(reason.code, reason.message, hint=reason.hint)
