"""The SDK's transport, opened and asked; the only module that touches SDK internals.

Invariants
1. One websocket per `SdkConnection`. The SDK multiplexes requests over it, re-sends plain requests after a reconnect
   and never re-sends a submitted extrinsic.
2. Every frame that leaves passes the throttle and is counted.
3. Errors of the SDK become ours in `translate`, by who has to act: unreachable or refused traffic is a `NetworkError`,
   an answer that cannot be used is a `ChainError`.
4. The SDK is imported when a connection is opened, not before. Its version is pinned by the distribution; the few
   private attributes used here were read from that version.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from asyncio_throttle.throttler import Throttler

from config.errors import CacheonError, ChainError, NetworkError

_PRUNED_HINT = "Add an archive endpoint of the same chain to `chain.endpoints`."
_LOST = ("Connection dropped", "Connection lost", "RPC session closed", "closed during connect")
_UNKNOWN_BLOCK = ("UnknownBlock", "Header was not found", "unknown Block")


class SdkConnection:
    """One open connection; create it with `SdkConnection.open`."""

    def __init__(self, transport: Any, frames: _FrameGate) -> None:
        self._transport = transport
        self._frames = frames

    @classmethod
    async def open(
        cls, endpoints: Sequence[str], *, rpc_per_second: int, response_timeout: float
    ) -> SdkConnection:
        """Dial the first endpoint that answers, in order; raises what the SDK raises (see `translate`)."""
        rpc = importlib.import_module("bittensor._transport.rpc")
        interface = importlib.import_module("bittensor._transport.interface")
        gate = _FrameGate(rpc_per_second, rpc._default_connect)  # noqa: SLF001 - keeps the SDK's handshake errors
        transport = interface.SubstrateConnection(
            endpoints[0],
            fallback_urls=list(endpoints[1:]),
            max_retries=2,
            response_timeout=response_timeout,
            connect_factory=gate.connect,
        )
        try:
            await transport.initialize()
        except BaseException:
            await _close_quietly(transport)
            raise
        return cls(transport, gate)

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
        await _close_quietly(self._transport)

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
    """Opens websockets whose sends are throttled and counted."""

    def __init__(self, per_second: int, connect: Callable[[str], Awaitable[Any]]) -> None:
        self.sent = 0
        self._throttle = Throttler(rate_limit=per_second, period=1.0)
        self._connect = connect

    async def connect(self, url: str) -> _GatedSocket:
        return _GatedSocket(await self._connect(url), self)

    async def pass_one(self) -> None:
        async with self._throttle:
            self.sent += 1


class _GatedSocket:
    def __init__(self, socket: Any, gate: _FrameGate) -> None:
        self._socket = socket
        self._gate = gate

    async def send(self, message: str) -> None:
        await self._gate.pass_one()
        await self._socket.send(message)

    async def recv(self) -> str | bytes:
        data: str | bytes = await self._socket.recv()
        return data

    async def close(self) -> None:
        await self._socket.close()


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


def unreachable(detail: str) -> NetworkError:
    """Return the error for a chain that cannot be reached."""
    return NetworkError(
        "CHAIN_UNREACHABLE",
        f"No chain endpoint can be reached {detail}.",
        hint="Check `chain.endpoints` and that the chain node (or `cacheon devnet`) is running.",
    )


def _is_lost_connection(text: str) -> bool:
    return any(mark in text for mark in _LOST)
