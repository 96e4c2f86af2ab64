"""The one connection to the chain.

Invariants
1. One process owns one `ChainClient`; one client owns at most one websocket. Tasks of one event loop share it.
2. Every call has a deadline. A call that misses it drops the connection, because a half-dead socket answers nobody; so
   does an answer that cannot be used, if another endpoint may have a better one. The next call dials again, beginning
   with the next endpoint.
3. Dialling is one task that all callers wait for. It ends with a connection or moves to the next endpoint once, however
   many callers wait and whichever of them give up meanwhile.
4. State is read at a `BlockRef`, by hash. Nothing here reads "now" except the two heads and the account's next nonce.
5. Errors of the SDK do not leave: see `chain.sdk.translate`.
6. Submitting returns what is known: accepted, refused, or unknown. "Connection lost" is unknown, never failed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from chain.abi import Call, RuntimeNames, Storage, missing_names
from chain.blocks import BlockRef, Header
from chain.codec import StorageRead, compose_call, decode_events, decode_value, runtime_names, storage_key
from chain.events import ChainEvent, ExtrinsicOutcome, outcome_of
from chain.rpc import PoolAnswer, all_keys, extrinsic_hash_of, raw_values, refusal
from chain.sdk import GenesisPin, SdkConnection, translate, unreachable
from chain.signer import Signer
from config.errors import ChainError, NetworkError
from config.settings import ChainSettings

T = TypeVar("T")
_HEADERS_KEPT = 1024
_ASK_ANOTHER = frozenset(
    {"CHAIN_STATE_PRUNED", "CHAIN_BLOCK_UNKNOWN", "CHAIN_DECODE_FAILED", "CHAIN_RATE_LIMITED"}
)  # answers of one endpoint that the next one may improve on


class ChainIdentity(msgspec.Struct, frozen=True):
    """What the probe found: the chain by its genesis, the runtime by its spec version."""

    genesis_hash: str
    spec_version: int
    endpoint: str


class SignedCall(msgspec.Struct, frozen=True):
    """A signed extrinsic, ready to be submitted any number of times with the same effect."""

    data: bytes
    hash: str
    nonce: int
    era_end_block: int  # once a block above this one is final, the extrinsic can never be included


class ChainClient:
    """Asynchronous access to one chain; use as `async with ChainClient(...) as client`."""

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        request_timeout: float = 20.0,
        submit_timeout: float = 120.0,
        rpc_per_second: int = 50,
        runtime_cache_dir: Path | None = None,
    ) -> None:
        if not endpoints:
            raise unreachable("because none is configured")
        self._endpoints = list(endpoints)
        self.request_timeout = request_timeout
        self.submit_timeout = submit_timeout
        self._rpc_per_second = rpc_per_second
        self._runtime_cache_dir = runtime_cache_dir
        self._connection: SdkConnection | None = None
        self._dialling: asyncio.Task[SdkConnection] | None = None
        self._pin = GenesisPin()
        self._past_frames = 0
        self._headers: dict[str, Header] = {}

    @classmethod
    def from_settings(cls, settings: ChainSettings, *, runtime_cache_dir: Path | None = None) -> ChainClient:
        """Return a client for the `chain` section of the settings."""
        return cls(
            settings.endpoints,
            request_timeout=settings.request_timeout_seconds,
            submit_timeout=settings.submit_timeout_seconds,
            rpc_per_second=settings.rpc_per_second,
            runtime_cache_dir=runtime_cache_dir,
        )

    # -- lifecycle ---------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect. Raises `NetworkError` (CHAIN_UNREACHABLE, CHAIN_TIMEOUT, CHAIN_RATE_LIMITED)."""
        await self._call("connecting", _nothing)

    async def close(self) -> None:
        """Disconnect; a later call connects again."""
        dialling, self._dialling = self._dialling, None
        if dialling is not None:
            dialling.cancel()
            await asyncio.wait([dialling])
        await self._disconnect()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def try_another(self) -> None:
        """Give up the connection: what it answered was no use, and the next call asks the next endpoint."""
        await self._drop(self._connection)

    @property
    def rpc_calls(self) -> int:
        """How many requests this client has sent so far."""
        return self._past_frames + (self._connection.frames_sent if self._connection else 0)

    async def probe(self) -> ChainIdentity:
        """Check that the runtime offers every name this room uses.

        Raises `ChainError` (CHAIN_ABI_MISSING) listing all that are missing.
        """

        async def ask(connection: SdkConnection) -> tuple[ChainIdentity, RuntimeNames]:
            codec = await connection.codec(None)
            identity = ChainIdentity(await connection.genesis_hash(), int(codec.spec_version), connection.endpoint)
            return identity, runtime_names(codec)

        identity, names = await self._call("reading the runtime's metadata", ask)
        missing = missing_names(names)
        if missing:
            raise ChainError(
                "CHAIN_ABI_MISSING",
                f"Runtime {identity.spec_version} lacks what this version needs: {'; '.join(missing)}.",
                hint="Update cacheon, or point `chain.endpoints` at a supported subtensor chain.",
            )
        return identity

    async def require_subnet(self, netuid: int, block: BlockRef) -> None:
        """Raise `ChainError` (SUBNET_NOT_FOUND), naming the subnets there are, unless `netuid` exists at `block`."""
        (exists,) = await self.read(block, [(Storage.NETWORKS_ADDED, [netuid])])
        if not exists:
            rows = await self.read_map(block, Storage.NETWORKS_ADDED, [])
            known = ", ".join(str(number) for number in sorted(int(key) for key, added in rows if added)) or "none"
            raise ChainError(
                "SUBNET_NOT_FOUND",
                f"Subnet {netuid} does not exist on this chain; it has: {known}.",
                hint="Set `chain.netuid` to one of them, or check that `chain.endpoints` names the chain you mean.",
            )

    # -- blocks ------------------------------------------------------------------------------------------------

    async def genesis_hash(self) -> str:
        """Return the hash of block 0, which names the chain."""
        return await self._call("reading the genesis hash", lambda connection: connection.genesis_hash())

    async def finalized_head(self) -> BlockRef:
        """Return the newest finalized block of the endpoint in use."""

        async def ask(connection: SdkConnection) -> BlockRef:
            return (await self._header(connection, str(await connection.request("chain_getFinalizedHead")))).block

        return await self._call("reading the finalized head", ask)

    async def head(self) -> BlockRef:
        """Return the newest block, which may still be replaced by another."""

        async def ask(connection: SdkConnection) -> BlockRef:
            return (await self._header(connection, str(await connection.request("chain_getHead")))).block

        return await self._call("reading the head", ask)

    async def block_hash(self, number: int) -> str:
        """Return the hash at a height. Raises `NetworkError` (CHAIN_BLOCK_UNKNOWN) when there is no such block."""

        async def ask(connection: SdkConnection) -> str:
            block_hash = await connection.request("chain_getBlockHash", [number])
            if block_hash is None:
                raise NetworkError("CHAIN_BLOCK_UNKNOWN", f"The endpoint has no block {number} yet.")
            return str(block_hash)

        return await self._call(f"reading the hash of block {number}", ask)

    async def header(self, block_hash: str) -> Header:
        """Return the header of a block named by its hash."""
        return await self._call("reading a block header", lambda connection: self._header(connection, block_hash))

    async def spec_version(self, block: BlockRef) -> int:
        """Return the version of the runtime that wrote `block`."""

        async def ask(connection: SdkConnection) -> int:
            return int((await connection.codec(block.hash)).spec_version)

        return await self._call("reading the runtime version", ask)

    async def finalized_range(self, first: int, count: int) -> tuple[BlockRef, tuple[BlockRef, ...]]:
        """Return the finalized head and the blocks from height `first` up to it, at most `count` of them.

        Both are answers to one connection, so that no height is taken from an endpoint that has not finalized it.
        """

        async def ask(connection: SdkConnection) -> tuple[BlockRef, tuple[BlockRef, ...]]:
            head = (await self._header(connection, str(await connection.request("chain_getFinalizedHead")))).block
            heights = range(first, min(head.number, first + count - 1) + 1)
            if not heights or heights[0] == head.number:
                return head, (head,) if heights else ()
            hashes = await connection.request("chain_getBlockHash", [list(heights)])
            if not isinstance(hashes, list) or len(hashes) != len(heights) or not all(hashes):
                raise NetworkError("CHAIN_BLOCK_UNKNOWN", f"The endpoint does not know all of the blocks {heights}.")
            return head, tuple(BlockRef(number, str(name)) for number, name in zip(heights, hashes, strict=True))

        return await self._call(f"reading the hashes of blocks from {first} on", ask)

    async def linked_events(self, block: BlockRef, runtime_of: BlockRef) -> tuple[str, tuple[ChainEvent, ...]]:
        """Return the hash of `block`'s parent and its events, with one request; `runtime_of` as in `events`."""

        async def ask(connection: SdkConnection) -> tuple[str, tuple[ChainEvent, ...]]:
            codec = await connection.codec(runtime_of.hash)
            keys = [storage_key(codec, (item, [])) for item in (Storage.PARENT_HASH, Storage.EVENTS)]
            values = await raw_values(connection, keys, block.hash)
            parent, events = (values.get(key) for key in keys)
            return "0x" + (parent or b"").hex(), decode_events(codec, None if events is None else events.hex())

        return await self._call(f"reading the events of block {block.number}", ask)

    async def events(self, block: BlockRef, *, runtime_of: BlockRef | None = None) -> tuple[ChainEvent, ...]:
        """Return the events of `block`, in order.

        `runtime_of` names another block written by the same runtime, whose version is known already; it saves two
        requests per block in long scans.
        """

        async def ask(connection: SdkConnection) -> tuple[ChainEvent, ...]:
            codec = await connection.codec((runtime_of or block).hash)
            key = storage_key(codec, (Storage.EVENTS, []))
            raw = await connection.request("state_getStorage", ["0x" + key.hex(), block.hash])
            return decode_events(codec, raw)

        return await self._call(f"reading the events of block {block.number}", ask)

    async def extrinsic_index(self, block: BlockRef, extrinsic_hash: str) -> int | None:
        """Return the position of an extrinsic in `block`, or None when it is not there."""

        async def ask(connection: SdkConnection) -> int | None:
            raw = await connection.request("chain_getBlock", [block.hash])
            if raw is None:
                raise NetworkError("CHAIN_BLOCK_UNKNOWN", f"The endpoint has no block {block.hash}.")
            for index, text in enumerate(raw["block"]["extrinsics"]):
                if extrinsic_hash_of(bytes.fromhex(text.removeprefix("0x"))) == extrinsic_hash:
                    return index
            return None

        return await self._call(f"reading block {block.number}", ask)

    async def extrinsics(self, block: BlockRef) -> tuple[bytes, ...]:
        """Return the bytes of every extrinsic of `block`, in order. Needs the block's body only, not its state."""

        async def ask(connection: SdkConnection) -> tuple[bytes, ...]:
            raw = await connection.request("chain_getBlock", [block.hash])
            if raw is None:
                raise NetworkError("CHAIN_BLOCK_UNKNOWN", f"The endpoint has no block {block.hash}.")
            return tuple(bytes.fromhex(text.removeprefix("0x")) for text in raw["block"]["extrinsics"])

        return await self._call(f"reading block {block.number}", ask)

    async def decode_extrinsic(self, block: BlockRef, data: bytes) -> Any:
        """Return an extrinsic of `block` as plain values: `address` (who signed) and the `call` with its arguments."""

        async def ask(connection: SdkConnection) -> Any:
            return (await connection.codec(block.hash)).decode_extrinsic(data)

        return await self._call(f"reading an extrinsic of block {block.number}", ask)

    async def call_hash(self, block: BlockRef, call: Call, arguments: Mapping[str, object]) -> str:
        """Return the 0x-hex hash by which the runtime of `block` knows a call with exactly these arguments."""

        async def ask(connection: SdkConnection) -> str:
            codec = await connection.codec(block.hash)
            return "0x" + bytes(codec.call_hash(compose_call(codec, call, arguments))).hex()

        return await self._call(f"encoding {call}", ask)

    async def outcome(self, block: BlockRef, index: int) -> ExtrinsicOutcome:
        """Return whether extrinsic `index` of `block` took effect, and if not, the runtime's name for the reason."""

        async def ask(connection: SdkConnection) -> ExtrinsicOutcome:
            codec = await connection.codec(block.hash)
            key = storage_key(codec, (Storage.EVENTS, []))
            raw = await connection.request("state_getStorage", ["0x" + key.hex(), block.hash])
            return outcome_of(decode_events(codec, raw), index, codec.module_error)

        return await self._call(f"reading the outcome of an extrinsic in block {block.number}", ask)

    # -- state -------------------------------------------------------------------------------------------------

    async def read(self, block: BlockRef, reads: Sequence[StorageRead]) -> list[Any]:
        """Return the decoded values of several storage items at one block; a missing optional item is None."""

        async def ask(connection: SdkConnection) -> list[Any]:
            codec = await connection.codec(block.hash)
            keys = [storage_key(codec, one) for one in reads]
            values = await raw_values(connection, keys, block.hash)
            return [decode_value(codec, one[0], values.get(key)) for one, key in zip(reads, keys, strict=True)]

        return await self._call(f"reading state at block {block.number}", ask)

    async def read_raw(self, block: BlockRef, reads: Sequence[StorageRead]) -> list[bytes | None]:
        """Return the undecoded bytes of several storage items at one block."""

        async def ask(connection: SdkConnection) -> list[bytes | None]:
            codec = await connection.codec(block.hash)
            keys = [storage_key(codec, one) for one in reads]
            values = await raw_values(connection, keys, block.hash)
            return [values.get(key) for key in keys]

        return await self._call(f"reading state at block {block.number}", ask)

    async def raw_map(self, block: BlockRef, item: Storage, prefix: list[object]) -> list[tuple[bytes, bytes]]:
        """Return all (full key, value) byte pairs of a storage map below `prefix` at one block, sorted by key."""

        async def ask(connection: SdkConnection) -> list[tuple[bytes, bytes]]:
            codec = await connection.codec(block.hash)
            keys = await all_keys(connection, storage_key(codec, (item, prefix)), block.hash)
            values = await raw_values(connection, keys, block.hash)
            return [(key, values[key]) for key in sorted(keys) if key in values]

        return await self._call(f"reading {item} at block {block.number}", ask)

    async def read_map(self, block: BlockRef, item: Storage, prefix: list[object]) -> list[tuple[Any, Any]]:
        """Return all decoded (key, value) pairs of a storage map below `prefix` at one block."""

        async def ask(connection: SdkConnection) -> list[tuple[Any, Any]]:
            codec = await connection.codec(block.hash)
            keys = await all_keys(connection, storage_key(codec, (item, prefix)), block.hash)
            values = await raw_values(connection, keys, block.hash)
            present = [key for key in keys if key in values]
            entry = codec.storage_entry(item.pallet, item.item)
            pairs = codec.decode_map_pairs(entry, present, [values[key] for key in present], fixed=len(prefix))
            return list(pairs)

        return await self._call(f"reading {item} at block {block.number}", ask)

    async def block_seconds(self) -> float:
        """Return the chain's seconds per block (12 on the main network)."""

        async def ask(connection: SdkConnection) -> float:
            codec = await connection.codec(None)
            return int(codec.constant("Aura", "SlotDuration")) / 1000

        return await self._call("reading the block time", ask)

    # -- accounts and extrinsics ---------------------------------------------------------------------------------

    async def account_nonce(self, address: str, block: BlockRef) -> int:
        """Return how many extrinsics `address` had included up to and with `block`."""
        (account,) = await self.read(block, [(Storage.ACCOUNT, [address])])
        return int(account["nonce"])

    async def next_nonce(self, address: str) -> int:
        """Return the next free nonce of `address`, counting what waits in the endpoint's pool."""

        async def ask(connection: SdkConnection) -> int:
            return int(await connection.request("account_nextIndex", [address]))

        return await self._call("reading the next nonce", ask)

    async def sign(
        self, call: Call, arguments: Mapping[str, object], signer: Signer, *, nonce: int, at: BlockRef, period: int
    ) -> SignedCall:
        """Sign `call` for `nonce`, valid for the era of `period` blocks (a power of two >= 4) around finalized `at`.

        Its arguments may hold `NestedCall`s, also in lists.
        """

        async def ask(connection: SdkConnection) -> SignedCall:
            codec = await connection.codec(None)
            composed = compose_call(codec, call, arguments)
            data, extrinsic_hash = await connection.sign(
                composed, signer, nonce=nonce, period=period, current=at.number
            )
            birth = int(codec.era_birth({"period": period}, at.number))
            return SignedCall(data, extrinsic_hash, nonce, birth + period)

        return await self._call(f"signing {call}", ask)

    async def submit(self, extrinsic: bytes) -> PoolAnswer:
        """Hand a signed extrinsic to the endpoint's pool, without waiting for a block."""

        async def ask(connection: SdkConnection) -> PoolAnswer:
            try:
                await connection.request("author_submitExtrinsic", ["0x" + extrinsic.hex()])
            except Exception as error:
                answer = refusal(error)
                if answer is None:
                    raise
                return answer
            return PoolAnswer("accepted")

        try:
            return await self._call("submitting an extrinsic", ask)
        except (NetworkError, ChainError) as error:
            # Not an answer of the pool: the bytes may or may not be in it.
            return PoolAnswer("unknown", error.message)

    # -- plumbing ------------------------------------------------------------------------------------------------

    async def _header(self, connection: SdkConnection, block_hash: str) -> Header:
        # A hash names one header forever, so it is asked for once.
        known = self._headers.get(block_hash)
        if known is not None:
            return known
        raw = await connection.request("chain_getHeader", [block_hash])
        if raw is None:
            raise NetworkError("CHAIN_BLOCK_UNKNOWN", f"The endpoint has no block {block_hash}.")
        header = Header(BlockRef(int(raw["number"], 16), block_hash), str(raw["parentHash"]))
        self._headers[block_hash] = header
        if len(self._headers) > _HEADERS_KEPT:
            del self._headers[next(iter(self._headers))]
        return header

    async def _connected(self) -> SdkConnection:
        while self._connection is None:
            if self._dialling is None:
                self._dialling = asyncio.create_task(self._dial())
                self._dialling.add_done_callback(self._dialled)
            dialling = self._dialling
            await asyncio.wait([dialling])  # unlike awaiting it: a caller that gives up does not end it for the others
            if dialling.cancelled():
                raise unreachable("because the client was closed meanwhile")
            dialling.result()
        return self._connection

    async def _dial(self) -> SdkConnection:
        if self._runtime_cache_dir is not None:
            # The SDK takes the place of its metadata cache from the environment only.
            os.environ["BITTENSOR_RUNTIME_CACHE_DIR"] = str(self._runtime_cache_dir)
        opening = SdkConnection.open(
            self._endpoints,
            rpc_per_second=self._rpc_per_second,
            response_timeout=self.request_timeout,
            pin=self._pin,
        )
        return await asyncio.wait_for(opening, self.request_timeout)

    def _dialled(self, task: asyncio.Task[SdkConnection]) -> None:
        if self._dialling is task:
            self._dialling = None
        if not task.cancelled() and task.exception() is None:
            self._connection = task.result()
        else:
            self._next_endpoint()

    def _next_endpoint(self) -> None:
        self._endpoints.append(self._endpoints.pop(0))

    async def _call(self, doing: str, ask: Callable[[SdkConnection], Awaitable[T]]) -> T:
        connection: SdkConnection | None = None

        async def connect_and_ask() -> T:
            nonlocal connection
            connection = await self._connected()
            return await ask(connection)

        try:
            return await asyncio.wait_for(connect_and_ask(), self.request_timeout)
        except TimeoutError as error:
            await self._drop(connection)
            raise NetworkError(
                "CHAIN_TIMEOUT",
                f"The chain endpoint gave no answer within {self.request_timeout:g} s while {doing}.",
                hint="The next call dials again; add a second endpoint to `chain.endpoints` if this one is often slow.",
            ) from error
        except Exception as error:
            # The edge of the room: the SDK and its codec raise errors of many families.
            ours = translate(error, doing)
            if ours.code == "CHAIN_UNREACHABLE" or (ours.code in _ASK_ANOTHER and len(self._endpoints) > 1):
                await self._drop(connection)
            raise ours from error

    async def _drop(self, connection: SdkConnection | None) -> None:
        # Another task may have dropped this very connection and dialled again already: leave the new one alone.
        if connection is not None and connection is self._connection:
            self._next_endpoint()
            await self._disconnect()

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._past_frames += connection.frames_sent
            await connection.close()


async def _nothing(_: SdkConnection) -> None:
    return None
