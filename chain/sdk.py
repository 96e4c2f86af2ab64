"""The SDK's transport, opened and asked; the only module that touches SDK internals.

Invariants
1. One websocket per `SdkConnection`. The SDK multiplexes requests over it, re-sends plain requests after a reconnect
   and never re-sends a submitted extrinsic.
2. Every frame that leaves passes the throttle and is counted. Every frame that arrives is a JSON-RPC object or a list
   of them; a peer that sends anything else is hung up on, because the SDK's receive loop would die of it in silence.
3. A websocket is used only after its peer named the genesis that this process began with: an endpoint of another chain
   is never spoken to, neither at start nor when the SDK falls back to it in the middle of work.
4. Closing leaves no socket behind, whatever state the SDK's session is in.
5. Errors of the SDK become ours in `translate`, by who has to act: unreachable or refused traffic is a `NetworkError`,
   an answer that cannot be used is a `ChainError`.
6. The SDK is imported when a connection is opened, not before. Its version is pinned by the distribution; the few
   private attributes used here were read from that version.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec
from asyncio_throttle.throttler import Throttler

from config.errors import CacheonError, ChainError, NetworkError

_PRUNED_HINT = "Add an archive endpoint of the same chain to `chain.endpoints`."
_LOST = ("Connection dropped", "Connection lost", "RPC session closed", "closed during connect")
_UNKNOWN_BLOCK = ("UnknownBlock", "Header was not found", "unknown Block")


class GenesisPin:
    """The genesis hash that all endpoints of one client must share; the first one that answers sets it."""

    def __init__(self) -> None:
        self.hash = ""


class ForeignChainError(Exception):
    """An endpoint serves another chain; never leaves this module."""


class SdkConnection:
    """One open connection; create it with `SdkConnection.open`."""

    def __init__(self, transport: Any, frames: _FrameGate) -> None:
        self._transport = transport
        self._frames = frames

    @classmethod
    async def open(
        cls, endpoints: Sequence[str], *, rpc_per_second: int, response_timeout: float, pin: GenesisPin
    ) -> SdkConnection:
        """Dial the first endpoint that answers, in order; raises what the SDK raises (see `translate`).

        Raises `ChainError` (CHAIN_GENESIS_DIFFERS) when no endpoint can be used and one of them is of another chain.
        """
        # The first import takes most of a second; the event loop serves others meanwhile.
        rpc, interface = await asyncio.to_thread(_import_transport)
        gate = _FrameGate(rpc_per_second, rpc._default_connect, pin, response_timeout / 2)  # noqa: SLF001 - keeps the SDK's handshake errors
        transport = interface.SubstrateConnection(
            endpoints[0],
            fallback_urls=list(endpoints[1:]),
            max_retries=2,
            response_timeout=response_timeout,
            connect_factory=gate.connect,
        )
        connection = cls(transport, gate)
        try:
            await transport.initialize()
        except BaseException as error:
            await connection.close()
            if gate.foreign and isinstance(error, Exception):
                raise _foreign(gate.foreign) from error
            raise
        return connection

    @property
    def frames_sent(self) -> int:
        """How many requests left on this connection."""
        return self._frames.sent

    @property
    def endpoint(self) -> str:
        """The endpoint in use."""
        return str(self._transport.current_endpoint)

    async def close(self) -> None:
        """Close the websocket; never raises and never waits long."""
        try:
            await _close_quietly(self._transport)
        finally:
            self._frames.abort_all()

    async def request(self, method: str, params: Sequence[object] = ()) -> Any:
        """Send one JSON-RPC request and return its result."""
        return await self._transport.rpc_request(method, list(params))

    async def codec(self, block_hash: str | None) -> Any:
        """Return the SDK codec of the runtime that wrote `block_hash` (None = the head's)."""
        # The facade has no way to a raw storage key or a raw value; both are needed to isolate odd rows.
        return await self._transport._runtimes.codec_at(block_hash)  # noqa: SLF001

    async def genesis_hash(self) -> str:
        """Return the hash of block 0."""
        return str(await self._transport.genesis_hash())

    async def sign(self, call: Any, signer: Any, *, nonce: int, period: int, current: int) -> tuple[bytes, str]:
        """Sign a composed call for the mortal era of `period` blocks that holds block `current`.

        Returns the extrinsic's bytes and 0x-hex hash. Nothing is submitted and no nonce is remembered.
        """
        signed = await self._transport.sign_without_nonce_tracking(
            call, signer, nonce=nonce, era={"period": period, "current": current}
        )
        return bytes(signed.data), str(signed.extrinsic_hash)


class _FrameGate:
    """Opens websockets to endpoints of one chain; throttles and counts what they send, checks what they receive."""

    def __init__(
        self, per_second: int, connect: Callable[[str], Awaitable[Any]], pin: GenesisPin, answer_seconds: float
    ) -> None:
        self.sent = 0
        self.foreign = ""  # why an endpoint was turned away
        self._throttle = Throttler(rate_limit=per_second, period=1.0)
        self._connect = connect
        self._pin = pin
        self._answer_seconds = answer_seconds
        self._open: set[_GatedSocket] = set()

    async def connect(self, url: str) -> _GatedSocket:
        # Half of a call's time: an endpoint that takes the connection and stays silent leaves the rest to the next.
        try:
            return await asyncio.wait_for(self._connect_checked(url), self._answer_seconds)
        except TimeoutError as error:
            raise TimeoutError(f"{_host_of(url)} gave no answer within {self._answer_seconds:g} s") from error

    async def _connect_checked(self, url: str) -> _GatedSocket:
        socket = _GatedSocket(await self._connect(url), self)
        self._open.add(socket)
        try:
            await self._check_chain(url, socket)
        except BaseException:
            socket.abort()
            raise
        return socket

    async def _check_chain(self, url: str, socket: _GatedSocket) -> None:
        await socket.send(_GENESIS_QUESTION)
        answer = json.loads(await socket.recv())
        genesis = answer.get("result") if isinstance(answer, dict) else None
        if not isinstance(genesis, str) or not _HASH.fullmatch(genesis):
            raise ConnectionError(f"{_host_of(url)} does not name its genesis block")
        if self._pin.hash and genesis != self._pin.hash:
            self.foreign = f"{_host_of(url)} has genesis {genesis}, and this process began on {self._pin.hash}"
            raise ForeignChainError(self.foreign)
        self._pin.hash = genesis

    async def pass_one(self) -> None:
        async with self._throttle:
            self.sent += 1

    def forget(self, socket: _GatedSocket) -> None:
        self._open.discard(socket)

    def abort_all(self) -> None:
        for socket in list(self._open):
            socket.abort()


class _GatedSocket:
    def __init__(self, socket: Any, gate: _FrameGate) -> None:
        self._socket = socket
        self._gate = gate

    async def send(self, message: str) -> None:
        await self._gate.pass_one()
        await self._socket.send(message)

    async def recv(self) -> str:
        data: str | bytes = await self._socket.recv()
        try:
            text = data if isinstance(data, str) else data.decode()
            _FRAMES.decode(text)
        except (UnicodeDecodeError, msgspec.MsgspecError, RecursionError) as error:
            raise ConnectionError(f"the endpoint sent a frame that is not JSON-RPC: {error}") from error
        return text

    async def close(self) -> None:
        await self._socket.close()
        self._gate.forget(self)

    def abort(self) -> None:
        """Close the socket at once, without a handshake."""
        with contextlib.suppress(AttributeError):  # how asyncio says that a transport was closed long ago
            self._socket.transport.abort()
        self._gate.forget(self)


class _Frame(msgspec.Struct):
    """The part of a frame by which the SDK routes it."""

    id: int | str | None = None


_HASH = re.compile("0x[0-9a-f]{64}")
_FRAMES = msgspec.json.Decoder(_Frame | list[_Frame])
_GENESIS_QUESTION = json.dumps({"jsonrpc": "2.0", "id": "genesis", "method": "chain_getBlockHash", "params": [0]})


def _host_of(url: str) -> str:
    """Return an endpoint's host and port: paths and queries of paid endpoints hold secrets."""
    return urlsplit(url).netloc.rpartition("@")[2] or "the endpoint"


def _import_transport() -> tuple[Any, Any]:
    rpc = importlib.import_module("bittensor._transport.rpc")
    return rpc, importlib.import_module("bittensor._transport.interface")


async def _close_quietly(transport: Any) -> None:
    # A peer that no longer answers must not keep us from leaving: the close handshake gets two seconds.
    with contextlib.suppress(Exception):  # whatever a dying socket says is of no use to anyone
        await asyncio.wait_for(transport.close(), 2.0)


def translate(error: BaseException, doing: str) -> CacheonError:
    """Return our error for one the SDK raised while `doing` something (a gerund phrase)."""
    if isinstance(error, CacheonError):
        return error
    errors = importlib.import_module("bittensor._transport.errors")
    text = " ".join(str(error).split())[:300] or type(error).__name__
    if isinstance(error, errors.RpcPolicyRejection) or "rate limit" in text.lower():
        return NetworkError(
            "CHAIN_RATE_LIMITED",
            f"The chain endpoint refuses more requests while {doing}: {text}.",
            hint="Lower `chain.rpc_per_second`, or use an endpoint of your own.",
        )
    if isinstance(error, errors.StateDiscardedError):
        return ChainError(
            "CHAIN_STATE_PRUNED", f"The endpoint no longer has the state needed while {doing}.", hint=_PRUNED_HINT
        )
    if isinstance(error, errors.BlockNotFound) or any(mark in text for mark in _UNKNOWN_BLOCK):
        return NetworkError("CHAIN_BLOCK_UNKNOWN", f"The endpoint does not know the block asked for while {doing}.")
    if isinstance(error, errors.StorageFunctionNotFound):
        return ChainError("CHAIN_ABI_MISSING", f"The runtime lacks a name needed while {doing}: {text}.")
    if isinstance(error, errors.MaxRetriesExceeded | ConnectionError | OSError) or _is_lost_connection(text):
        return unreachable(f"while {doing}: {text}")
    if isinstance(error, errors.SubstrateRequestException):
        return ChainError("CHAIN_REQUEST_FAILED", f"The chain endpoint answered with an error while {doing}: {text}.")
    return ChainError("CHAIN_DECODE_FAILED", f"An answer of the chain could not be read while {doing}: {text}.")


def _foreign(why: str) -> ChainError:
    return ChainError(
        "CHAIN_GENESIS_DIFFERS",
        f"The chain endpoints are not of one chain: {why}.",
        hint="All of `chain.endpoints` must serve the chain this node began on.",
    )


def unreachable(detail: str) -> NetworkError:
    """Return the error for a chain that cannot be reached."""
    return NetworkError(
        "CHAIN_UNREACHABLE",
        f"No chain endpoint can be reached {detail}.",
        hint="Check `chain.endpoints` and that the chain node (or `cacheon devnet`) is running.",
    )


def _is_lost_connection(text: str) -> bool:
    return any(mark in text for mark in _LOST)
