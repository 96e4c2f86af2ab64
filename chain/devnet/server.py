"""The node: chain, subscriptions and the websocket server in one event loop.

Invariants
1. One event loop owns the chain; no lock is needed and no request sees a half-built block.
2. `faults` are the only disturbances; without one injected the node behaves.
3. A slow or dead client never holds up the chain: its queue is bounded and its connection is dropped.
4. Only programs of this machine are served: a handshake for another host name, or on behalf of a web page from
   elsewhere, is refused (403), because a browser would let any page reach a loopback port.
5. Whatever keeps a block from being made ends the node with a reason; it never lives on without its timer.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import http
import ipaddress
import math
import socket
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request, Response

from chain.devnet import rpc, rpc_author, rpc_chain, rpc_dev, rpc_faults, rpc_state
from chain.devnet.block import Block
from chain.devnet.chain import Chain
from chain.devnet.config import DevnetConfig
from chain.devnet.conversation import Conversation
from chain.devnet.fault_plan import FaultPlan
from chain.devnet.startup import open_chain
from chain.devnet.subscriptions import Hub
from config.errors import Blame, CacheonError, HostError, InternalError

# Imported for the methods they register; naming them keeps the imports honest.
RPC_MODULES = (rpc_author, rpc_chain, rpc_dev, rpc_faults, rpc_state)
_MESSAGE_LIMIT = 2**24  # bytes of one request; the public node takes 15 MB


class Devnet:
    """A running node: `async with Devnet(config) as node: ... node.url`."""

    def __init__(self, config: DevnetConfig) -> None:
        self.config = config
        self.faults = FaultPlan(rpc.method_names(dev=False))
        self.hub = Hub(self.faults)
        self.chain: Chain
        self._close_state = contextlib.ExitStack()
        self._server: Server | None = None
        self._timer: asyncio.Task[None] | None = None
        self._port = 0
        self._failure: asyncio.Future[None]
        self._conversations: set[Conversation] = set()

    @property
    def url(self) -> str:
        """The websocket address."""
        host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
        return f"ws://{host}:{self._port}"

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._port

    @property
    def dev_rpc(self) -> bool:
        """Whether the `dev_*` methods are offered."""
        return self.config.dev_rpc

    def produce_block(self) -> Block:
        """Make one block now."""
        return self.chain.build()

    async def start(self) -> None:
        """Open the state, listen and start the timer; raises `HostError` or `ConfigurationError`."""
        self._failure = asyncio.get_running_loop().create_future()
        self.chain = self._close_state.enter_context(open_chain(self.config))
        self.chain.observer = self.hub
        try:
            self._server = await serve(
                self._connection,
                self.config.host,
                self.config.port,
                max_size=_MESSAGE_LIMIT,
                process_request=self._admit,
                compression=None,
                ping_interval=None,
            )
        except OSError as error:
            self._close_state.close()
            raise _listen_error(error, self.config) from error
        self._port = next(iter(self._server.sockets)).getsockname()[1]
        if self.config.timed:
            self._timer = asyncio.create_task(self._tick())

    async def stop(self) -> None:
        """Stop the timer, close connections and release the state file."""
        if self._timer is not None:
            self._timer.cancel()
            with contextlib.suppress(asyncio.CancelledError, CacheonError):
                await self._timer
        if self._server is not None:
            for conversation in self._conversations:
                if conversation.half_open:  # it would not answer a polite close
                    conversation.abort()
            self._server.close()
            await self._server.wait_closed()
        if self._failure.done() and not self._failure.cancelled():
            self._failure.exception()  # whoever cared has waited for it; asyncio would complain about the others
        self._failure.cancel()
        self._close_state.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def fail(self, error: CacheonError) -> None:
        """Remember why no further block can be made; `wait` raises it."""
        if not self._failure.done():
            self._failure.set_exception(error)

    async def wait(self) -> None:
        """Wait for the node to fail and raise why; a healthy node waits for ever."""
        await asyncio.shield(self._failure)

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            # A late block does not make the next ones hurry beyond the schedule.
            due = max(due + self.config.block_time, loop.time())
            await asyncio.sleep(due - loop.time())
            self._build()

    def _build(self) -> None:
        try:
            self.chain.build()
        except CacheonError as error:
            self.fail(error)
            raise
        except Exception as error:
            # Storage written by `dev_setStorage` can break any hook; a node that went on would just stand still.
            failure = InternalError(
                "DEVNET_BLOCK_FAILED",
                f"block {self.chain.head.number + 1} cannot be made: {type(error).__name__}: {error}",
                hint="raw storage set by dev_setStorage is the usual cause; start a new chain",
                blame=Blame.OPERATOR,
            )
            self.fail(failure)
            raise failure from error

    def seal_waiting(self) -> None:
        """Make a block when the node makes them at once and something waits for one."""
        if self.config.instant and self.chain.has_ready():
            self._build()

    async def _connection(self, connection: ServerConnection) -> None:
        conversation = Conversation(self, connection)
        self._conversations.add(conversation)
        try:
            await conversation.run()
        finally:
            self._conversations.discard(conversation)

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        refusal = _refuse_strangers(connection, request)
        if refusal is not None:
            return refusal
        strike = self.faults.strike("", "http_429")
        if strike is None:
            return None
        response = connection.respond(http.HTTPStatus.TOO_MANY_REQUESTS, "Too many requests.\n")
        if strike.fault.seconds:
            response.headers["Retry-After"] = str(math.ceil(strike.fault.seconds))
        return response


def _refuse_strangers(connection: ServerConnection, request: Request) -> Response | None:
    hosts = [f"//{value}" for value in request.headers.get_all("Host")]
    if all(map(_is_loopback, hosts + request.headers.get_all("Origin"))):
        return None
    return connection.respond(http.HTTPStatus.FORBIDDEN, "This node serves programs on this machine only.\n")


def _is_loopback(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listen_error(error: OSError, config: DevnetConfig) -> HostError:
    if error.errno == errno.EADDRINUSE:
        return HostError(
            "PORT_IN_USE",
            f"port {config.port} on {config.host} is in use.",
            hint="stop the other process or choose another port with --port",
        )
    reason = error.strerror if not isinstance(error, socket.gaierror) else str(error)
    return HostError("PORT_UNUSABLE", f"cannot listen on {config.host}:{config.port}: {reason}.")


async def serve_devnet(config: DevnetConfig) -> None:
    """Run a node until it is cancelled."""
    async with Devnet(config) as node:
        await node.wait()


def run(config: DevnetConfig) -> None:
    """Run a node until the process is interrupted; raises `HostError` or `ConfigurationError`."""
    asyncio.run(serve_devnet(config))
