"""The one connection to the chain.

Invariants
1. One process owns one `ChainClient`; see `chain.owner` for dialling, failover, deadlines and repeated questions.
2. State is read at a `BlockRef`, by hash, from an endpoint that holds that block on its best chain. Nothing here reads
   "now" except the two heads, the runtime that a call is signed for, and the account's next nonce.
3. A block is decoded by the runtime that wrote it. The first head of a runtime not seen before is checked for every
   name this room uses before it is announced.
4. While finalized heads are followed, what is watched is read once per head, with one request, for everybody.
5. Submitting returns what is known: accepted, refused, or unknown. "Connection lost" is unknown, never failed.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from chain.abi import Call, Constant, Storage, missing_names
from chain.blocks import BlockRef, Header, parse_header
from chain.codec import StorageRead, compose_call, decode_events, decode_value, runtime_names, storage_key
from chain.connection import Connection
from chain.events import ChainEvent, ExtrinsicOutcome, outcome_of
from chain.heads import FinalizedHead, HeadFollower, check_head
from chain.owner import ConnectionOwner
from chain.pinned import PinnedValues
from chain.rpc import PoolAnswer, all_keys, extrinsic_hash_of, raw_values, refusal
from chain.runtimes import LAST_RUNTIME_UPGRADE
from chain.session import Feed
from chain.signer import Signer
from chain.transport_errors import AnswerError
from config.errors import Blame, ChainError, NetworkError
from config.settings import ChainSettings

_HEADERS_KEPT = 1024
_SILENT_BLOCKS = 5  # block times without a head before the endpoint is asked
_SILENCE_FLOOR_SECONDS = 20.0  # a devnet may be told to make blocks more slowly than its runtime's constant says


class ChainIdentity(msgspec.Struct, frozen=True):
    """What the probe found: the chain by its genesis, the runtime by its spec version."""

    genesis_hash: str
    spec_version: int
    endpoint: str


class SignedCall(msgspec.Struct, frozen=True):
    """A signed extrinsic, ready to be submitted any number of times with the same effect.

    It can be included neither once a block above `era_end_block` is final, nor by a runtime of another spec version.
    """

    data: bytes
    hash: str
    nonce: int
    era_end_block: int
    spec_version: int = 0


class ChainClient(ConnectionOwner):
    """Asynchronous access to one chain; use as `async with ChainClient(...) as client`."""

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        request_timeout: float = 20.0,
        submit_timeout: float = 120.0,
        rpc_per_second: int = 50,
        runtime_cache_dir: Path | None = None,
        genesis_hash: str = "",
        final: BlockRef | None = None,
        silence_seconds: float | None = None,
    ) -> None:
        """Make a client; nothing is dialled yet.

        `genesis_hash` binds it to a chain, and `final`, a block known to be final, to its branch; without them the
        first endpoint that answers does. `silence_seconds` is how long no finalized head may be announced before the
        endpoint is asked (default: five block times, 20 s at least).
        """
        super().__init__(
            endpoints, request_timeout=request_timeout, rpc_per_second=rpc_per_second,
            runtime_cache_dir=runtime_cache_dir, genesis_hash=genesis_hash, final=final,
        )
        self.submit_timeout = submit_timeout
        self._silence_seconds = silence_seconds
        self._headers: OrderedDict[str, Header] = OrderedDict()
        self._hash_rule_holds = False  # headers were seen to hash as Substrate's do
        self._pinned = PinnedValues()
        self._follower = HeadFollower(self)
        self._probed: set[int] = set()

    @classmethod
    def from_settings(
        cls, settings: ChainSettings, *, runtime_cache_dir: Path | None = None, genesis_hash: str = "",
        final: BlockRef | None = None,
    ) -> ChainClient:
        """Return a client for the `chain` section of the settings."""
        return cls(
            settings.endpoints,
            request_timeout=settings.request_timeout_seconds,
            submit_timeout=settings.submit_timeout_seconds,
            rpc_per_second=settings.rpc_per_second,
            runtime_cache_dir=runtime_cache_dir,
            genesis_hash=genesis_hash,
            final=final,
        )

    # -- lifecycle ---------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect. Raises `NetworkError` (CHAIN_UNREACHABLE, CHAIN_TIMEOUT, CHAIN_RATE_LIMITED)."""
        await self._call("connecting", _nothing)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def probe(self) -> ChainIdentity:
        """Check that the runtime offers every name this room uses.

        Raises `ChainError` (CHAIN_ABI_MISSING) listing all that are missing.
        """

        async def ask(connection: Connection) -> ChainIdentity:
            codec = await connection.codec(None)
            await self._require_names(codec)
            return ChainIdentity(await connection.genesis_hash(), int(codec.spec_version), connection.endpoint)

        return await self._call("reading the runtime's metadata", ask)

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
                blame=Blame.OPERATOR,
            )

    async def try_another(self) -> None:
        """Give up the connection and what it told; the next call asks the next endpoint."""
        self._pinned.forget()
        await super().try_another()

    # -- blocks ------------------------------------------------------------------------------------------------

    async def genesis_hash(self) -> str:
        """Return the hash of block 0, which names the chain."""
        return await self._call("reading the genesis hash", lambda connection: connection.genesis_hash())

    async def next_finalized(self) -> FinalizedHead:
        """Wait for the next finalized head; one task of the process calls this, in a loop.

        Heads may be skipped when blocks come faster than calls. Raises `NetworkError` and `ChainError`; call again.
        """
        head = await self._follower.next()
        self._pin.final = head.block
        return head

    def watch(self, name: str, reads: Sequence[StorageRead]) -> None:
        """Have `reads` fetched at every followed head, together with everything else that is watched.

        `read`, `read_raw` and `events` of such items at a recent head cost no request then.
        """
        self._pinned.watch(name, reads)

    def unwatch(self, name: str) -> None:
        """Stop watching a list."""
        self._pinned.unwatch(name)

    async def finalized_head(self) -> BlockRef:
        """Return the newest finalized block of the endpoint in use; costs nothing while heads are followed."""
        if self._follower.is_live and self._follower.last is not None:
            return self._follower.last.block
        return await self._call("reading the finalized head", self._finalized_head)

    async def head(self) -> BlockRef:
        """Return the newest block, which may still be replaced by another."""

        async def ask(connection: Connection) -> BlockRef:
            name = str(await connection.request("chain_getHead"))
            connection.add_canonical([name])
            return (await self._header(connection, name)).block

        return await self._call("reading the head", ask)

    async def block_hash(self, number: int) -> str:
        """Return the hash at a height. Raises `NetworkError` (CHAIN_BLOCK_UNKNOWN) when there is no such block."""

        async def ask(connection: Connection) -> str:
            block_hash = await connection.request("chain_getBlockHash", [number])
            if block_hash is None:
                raise NetworkError("CHAIN_BLOCK_UNKNOWN", f"The endpoint has no block {number} yet.")
            connection.add_canonical([str(block_hash)])
            return str(block_hash)

        return await self._call(f"reading the hash of block {number}", ask)

    async def header(self, block_hash: str) -> Header:
        """Return the header of a block named by its hash."""
        return await self._call("reading a block header", lambda connection: self._header(connection, block_hash))

    async def spec_version(self, block: BlockRef) -> int:
        """Return the version of the runtime that wrote `block`."""

        async def ask(connection: Connection) -> int:
            return int((await connection.codec(block.hash)).spec_version)

        return await self._call("reading the runtime version", ask)

    async def finalized_range(self, first: int, count: int) -> tuple[BlockRef, tuple[BlockRef, ...]]:
        """Return the finalized head and the blocks from height `first` up to it, at most `count` of them.

        Both are answers to one connection, so that no height is taken from an endpoint that has not finalized it.
        """

        async def ask(connection: Connection) -> tuple[BlockRef, tuple[BlockRef, ...]]:
            followed = self._follower.last if self._follower.is_live else None
            head = followed.block if followed is not None else await self._finalized_head(connection)
            heights = range(first, min(head.number, first + count - 1) + 1)
            if not heights or heights[0] == head.number:
                return head, (head,) if heights else ()
            await connection.require_canonical(head)
            hashes = [one for one in await connection.hashes(heights) if one is not None]
            if len(hashes) != len(heights):
                raise NetworkError("CHAIN_BLOCK_UNKNOWN", f"The endpoint does not know all of the blocks {heights}.")
            connection.add_canonical(hashes)
            return head, tuple(BlockRef(number, name) for number, name in zip(heights, hashes, strict=True))

        return await self._call(f"reading the hashes of blocks from {first} on", ask)

    async def linked_events(
        self, block: BlockRef, runtime_of: BlockRef | None = None  # noqa: ARG002 - the block tells its runtime itself
    ) -> tuple[str, tuple[ChainEvent, ...]]:
        """Return the hash of `block`'s parent and its events, with one request."""

        async def ask(connection: Connection) -> tuple[str, tuple[ChainEvent, ...]]:
            events, _, parent = await self._events(connection, block)
            name = "0x" + (parent or b"").hex()
            connection.add_parent(block.hash, name)
            return name, events

        return await self._call(f"reading the events of block {block.number}", ask)

    async def events(
        self, block: BlockRef, *, runtime_of: BlockRef | None = None  # noqa: ARG002 - the block tells its runtime itself
    ) -> tuple[ChainEvent, ...]:
        """Return the events of `block`, in order."""

        async def ask(connection: Connection) -> tuple[ChainEvent, ...]:
            events, _, _ = await self._events(connection, block)
            return events

        return await self._call(f"reading the events of block {block.number}", ask)

    async def extrinsics(self, block: BlockRef) -> tuple[bytes, ...]:
        """Return the bytes of every extrinsic of `block`, in order. Needs the block's body only, not its state."""

        async def ask(connection: Connection) -> tuple[bytes, ...]:
            raw = await connection.request("chain_getBlock", [block.hash])
            if raw is None:
                raise NetworkError("CHAIN_BLOCK_UNKNOWN", f"The endpoint has no block {block.hash}.")
            return tuple(bytes.fromhex(text.removeprefix("0x")) for text in raw["block"]["extrinsics"])

        return await self._call(f"reading block {block.number}", ask)

    async def extrinsic_index(self, block: BlockRef, extrinsic_hash: str) -> int | None:
        """Return the position of an extrinsic in `block`, or None when it is not there."""
        names = [extrinsic_hash_of(data) for data in await self.extrinsics(block)]
        return names.index(extrinsic_hash) if extrinsic_hash in names else None

    async def decode_extrinsic(self, block: BlockRef, data: bytes) -> Any:
        """Return an extrinsic of `block` as plain values: `address` (who signed) and the `call` with its arguments."""

        async def ask(connection: Connection) -> Any:
            return (await connection.codec(block.hash)).decode_extrinsic(data)

        return await self._call(f"reading an extrinsic of block {block.number}", ask)

    async def call_hash(self, block: BlockRef, call: Call, arguments: Mapping[str, object]) -> str:
        """Return the 0x-hex hash by which the runtime of `block` knows a call with exactly these arguments."""

        async def ask(connection: Connection) -> str:
            codec = await connection.codec(block.hash)
            return "0x" + bytes(codec.call_hash(compose_call(codec, call, arguments))).hex()

        return await self._call(f"encoding {call}", ask)

    async def outcome(self, block: BlockRef, index: int) -> ExtrinsicOutcome:
        """Return whether extrinsic `index` of `block` took effect, and if not, the runtime's name for the reason."""

        async def ask(connection: Connection) -> ExtrinsicOutcome:
            events, codec, _ = await self._events(connection, block)
            return outcome_of(events, index, codec.module_error)

        return await self._call(f"reading the outcome of an extrinsic in block {block.number}", ask)

    async def _events(
        self, connection: Connection, block: BlockRef
    ) -> tuple[tuple[ChainEvent, ...], Any, bytes | None]:
        """Return the events of a block, as many as the block itself counts, its codec, and its parent's hash."""
        reads: list[StorageRead] = [(item, []) for item in (Storage.EVENTS, Storage.EVENT_COUNT, Storage.PARENT_HASH)]
        codec, (raw, count, parent) = await self._values(connection, block, reads)
        events = decode_events(codec, raw)
        if count is not None and int.from_bytes(count, "little") != len(events):
            self._pinned.forget()
            raise NetworkError(
                "CHAIN_EVENTS_MISCOUNTED",
                f"The endpoint shows {len(events)} events of block {block.number}, which counts "
                f"{int.from_bytes(count, 'little')} itself.",
                hint="The question is repeated; if this lasts, the endpoint serves damaged data: use another one.",
            )
        return events, codec, parent

    # -- state -------------------------------------------------------------------------------------------------

    async def read(self, block: BlockRef, reads: Sequence[StorageRead]) -> list[Any]:
        """Return the decoded values of several storage items at one block; a missing optional item is None."""

        async def ask(connection: Connection) -> list[Any]:
            codec, values = await self._values(connection, block, reads)
            return [decode_value(codec, one[0], value) for one, value in zip(reads, values, strict=True)]

        return await self._call(f"reading state at block {block.number}", ask)

    async def read_raw(self, block: BlockRef, reads: Sequence[StorageRead]) -> list[bytes | None]:
        """Return the undecoded bytes of several storage items at one block."""

        async def ask(connection: Connection) -> list[bytes | None]:
            return (await self._values(connection, block, reads))[1]

        return await self._call(f"reading state at block {block.number}", ask)

    async def raw_map(self, block: BlockRef, item: Storage, prefix: list[object]) -> list[tuple[bytes, bytes]]:
        """Return all (full key, value) byte pairs of a storage map below `prefix` at one block, sorted by key."""

        async def ask(connection: Connection) -> list[tuple[bytes, bytes]]:
            codec = await connection.codec(block.hash)
            return await self._map(connection, block, storage_key(codec, (item, prefix)))

        return await self._call(f"reading {item} at block {block.number}", ask)

    async def read_map(self, block: BlockRef, item: Storage, prefix: list[object]) -> list[tuple[Any, Any]]:
        """Return all decoded (key, value) pairs of a storage map below `prefix` at one block."""

        async def ask(connection: Connection) -> list[tuple[Any, Any]]:
            codec = await connection.codec(block.hash)
            rows = await self._map(connection, block, storage_key(codec, (item, prefix)))
            entry = codec.storage_entry(item.pallet, item.item)
            keys, values = [key for key, _ in rows], [value for _, value in rows]
            return list(codec.decode_map_pairs(entry, keys, values, fixed=len(prefix)))

        return await self._call(f"reading {item} at block {block.number}", ask)

    async def runtime_call(self, block: BlockRef, api: str, method: str, arguments: Sequence[object]) -> Any:
        """Return the decoded result of a runtime API at `block`.

        Raises `ChainError` (CHAIN_ABI_MISSING) when the runtime does not offer it.
        """

        async def ask(connection: Connection) -> Any:
            codec = await connection.codec(block.hash)
            offered = codec.runtime_api_map.get(api, {}).get(method)
            if offered is None:
                message = f"Runtime {codec.spec_version} has no runtime call {api}.{method}."
                raise ChainError("CHAIN_ABI_MISSING", message, blame=Blame.OPERATOR)
            parts = [codec.encode(kind, one) for (_, kind), one in zip(offered["inputs"], arguments, strict=True)]
            raw = await connection.request("state_call", [f"{api}_{method}", "0x" + b"".join(parts).hex(), block.hash])
            await connection.require_canonical(block)
            return codec.decode(offered["output"], bytes.fromhex(raw.removeprefix("0x")))

        return await self._call(f"calling {api}.{method} at block {block.number}", ask)

    async def block_seconds(self) -> float:
        """Return the chain's seconds per block (12 on the main network)."""

        async def ask(connection: Connection) -> float:
            codec = self.runtimes.newest or await connection.codec(None)
            return int(codec.constant(Constant.SLOT_DURATION.pallet, Constant.SLOT_DURATION.item)) / 1000

        return await self._call("reading the block time", ask)

    # -- accounts and extrinsics ---------------------------------------------------------------------------------

    async def account_nonce(self, address: str, block: BlockRef) -> int:
        """Return how many extrinsics `address` had included up to and with `block`."""
        (account,) = await self.read(block, [(Storage.ACCOUNT, [address])])
        return int(account["nonce"])

    async def next_nonce(self, address: str) -> int:
        """Return the next free nonce of `address`, counting what waits in the endpoint's pool."""

        async def ask(connection: Connection) -> int:
            return int(await connection.request("account_nextIndex", [address]))

        return await self._call("reading the next nonce", ask)

    async def signing_codec(self) -> Any:
        """Return the codec of the runtime that will execute the next block; it stays opaque outside this room."""
        return await self._call("reading the runtime's metadata", lambda connection: connection.codec(None))

    async def sign(
        self, call: Call, arguments: Mapping[str, object], signer: Signer, *, nonce: int, at: BlockRef, period: int
    ) -> SignedCall:
        """Sign `call` for `nonce`, valid for the era of `period` blocks (a power of two >= 4) around finalized `at`.

        Its arguments may hold `NestedCall`s, also in lists.
        """

        async def ask(connection: Connection) -> SignedCall:
            codec = await connection.codec(None)
            composed = compose_call(codec, call, arguments)
            data, extrinsic_hash = await connection.sign(
                composed, signer, codec=codec, nonce=nonce, period=period, current=at.number
            )
            birth = int(codec.era_birth({"period": period}, at.number))
            return SignedCall(data, extrinsic_hash, nonce, birth + period, int(codec.spec_version))

        return await self._call(f"signing {call}", ask)

    async def submit(self, extrinsic: bytes) -> PoolAnswer:
        """Hand a signed extrinsic to the endpoint's pool, without waiting for a block."""

        async def ask(connection: Connection) -> PoolAnswer:
            try:
                await connection.request("author_submitExtrinsic", ["0x" + extrinsic.hex()])
            except AnswerError as error:
                answer = refusal(error)
                if answer is None:
                    raise
                return answer
            return PoolAnswer("accepted")

        try:
            return await self._call("submitting an extrinsic", ask, again=False)
        except (NetworkError, ChainError) as error:
            # Not an answer of the pool: the bytes may or may not be in it.
            return PoolAnswer("unknown", error.message)

    # -- following heads -----------------------------------------------------------------------------------------

    async def follow_feed(self) -> Feed:
        """See `chain.heads.Owner`."""
        return await self._call("subscribing to finalized heads", lambda connection: connection.subscribe_finalized())

    async def drop_feed(self, feed: Feed) -> None:
        """See `chain.heads.Owner`."""

        async def ask(connection: Connection) -> None:
            if connection.session is feed.session:
                await connection.session.unsubscribe(feed)

        try:
            await self._call("ending a subscription", ask, again=False)
        except (NetworkError, ChainError):
            return  # it ends with its connection

    async def present_head(self) -> dict[str, Any]:
        """See `chain.heads.Owner`."""

        async def ask(connection: Connection) -> dict[str, Any]:
            name = await connection.request("chain_getFinalizedHead")
            raw: dict[str, Any] = await connection.request("chain_getHeader", [name])
            parse_header(raw)
            return raw

        return await self._call("asking for the finalized head", ask)

    async def silence_seconds(self) -> float:
        """See `chain.heads.Owner`."""
        if self._silence_seconds is None:
            self._silence_seconds = max(_SILENT_BLOCKS * await self.block_seconds(), _SILENCE_FLOOR_SECONDS)
        return self._silence_seconds

    async def admit_head(self, raw: dict[str, Any], last: BlockRef | None) -> FinalizedHead | None:
        """See `chain.heads.Owner`."""

        async def ask(connection: Connection) -> FinalizedHead | None:
            header = await check_head(connection, raw, last, may_lag=len(self._endpoints) == 1)
            if header is None:
                return None
            self._keep_header(header)
            self._pinned.follow(header.block.hash)
            if await self._is_new_runtime(connection, header.block):
                await self._require_names(await connection.codec(header.block.hash))
            reads = self._pinned.reads
            codec, values = await self._values(connection, header.block, reads)
            now = values[reads.index((Storage.TIMESTAMP, []))]
            timestamp = int(decode_value(codec, Storage.TIMESTAMP, now))
            return FinalizedHead(header.block, header.parent_hash, timestamp, int(codec.spec_version))

        return await self._call("reading a finalized head", ask)

    async def _is_new_runtime(self, connection: Connection, block: BlockRef) -> bool:
        """Say whether `block` was written by a runtime that was not checked yet; reads everything watched if not."""
        guess = self.runtimes.newest
        if guess is None or guess.spec_version not in self._probed:
            return True
        try:
            codec, _ = await self._values(connection, block, self._pinned.reads)
        except Exception as error:
            # A runtime that lacks a watched name: the check will tell all that are missing.
            if self.runtimes.known_spec(block.hash) in self._probed:
                raise error
            return True
        return codec.spec_version not in self._probed

    # -- plumbing ------------------------------------------------------------------------------------------------

    async def _require_names(self, codec: Any) -> None:
        spec = int(codec.spec_version)
        if spec in self._probed:
            return
        missing = missing_names(await asyncio.to_thread(runtime_names, codec))
        if missing:
            raise ChainError(
                "CHAIN_ABI_MISSING",
                f"Runtime {spec} lacks what this version needs: {'; '.join(missing)}.",
                hint="Update cacheon, or point `chain.endpoints` at a supported subtensor chain.",
                blame=Blame.OPERATOR,
            )
        self._probed.add(spec)

    async def _finalized_head(self, connection: Connection) -> BlockRef:
        name = str(await connection.request("chain_getFinalizedHead"))
        header = await self._header(connection, name)
        connection.add_canonical([name, header.parent_hash])
        return header.block

    async def _values(
        self, connection: Connection, block: BlockRef, reads: Sequence[StorageRead]
    ) -> tuple[Any, list[bytes | None]]:
        """Return the codec of `block` and the raw values of `reads` there.

        The runtime's version comes along with the values: keys are computed with the runtime seen last, and computed
        again in the rare case that another one wrote the block.
        """
        runtimes, spec = self.runtimes, self.runtimes.known_spec(block.hash)
        if spec is not None:
            codec = await runtimes.of_spec(connection, spec, block.hash)
        else:
            codec = runtimes.newest or await connection.codec(block.hash)
            spec = runtimes.known_spec(block.hash)
        keys = [storage_key(codec, one) for one in reads]
        known = self._pinned.of(block.hash)
        wanted = [key for key in dict.fromkeys(keys) if key not in known]
        found: dict[bytes, bytes | None] = {}
        if wanted or spec is None:
            asked = wanted if spec is not None else [LAST_RUNTIME_UPGRADE, *wanted]
            found = await raw_values(connection, asked, block.hash)
            await connection.require_canonical(block)
            self._pinned.keep(block.hash, found)
        if spec is None:
            spec = await runtimes.settle(connection, block.hash, found[LAST_RUNTIME_UPGRADE])
            if spec != codec.spec_version:
                return await self._values(connection, block, reads)
        values = {**known, **found}
        return codec, [values[key] for key in keys]

    async def _map(self, connection: Connection, block: BlockRef, prefix: bytes) -> list[tuple[bytes, bytes]]:
        keys = await all_keys(connection, prefix, block.hash)
        values = await raw_values(connection, keys, block.hash)
        await connection.require_canonical(block)
        return [(key, value) for key in sorted(keys) if (value := values[key]) is not None]

    async def _header(self, connection: Connection, block_hash: str) -> Header:
        # A hash names one header forever, so it is asked for once.
        known = self._headers.get(block_hash)
        if known is None:
            raw = await connection.request("chain_getHeader", [block_hash])
            if raw is None:
                raise NetworkError("CHAIN_BLOCK_UNKNOWN", f"The endpoint has no block {block_hash}.")
            known = parse_header(raw)
            if known.block.hash == block_hash:
                self._hash_rule_holds = True
            elif self._hash_rule_holds:
                raise ValueError("the endpoint sent the header of another block")
            else:
                known = Header(BlockRef(known.block.number, block_hash), known.parent_hash)
            self._keep_header(known)
        connection.add_parent(block_hash, known.parent_hash)
        return known

    def _keep_header(self, header: Header) -> None:
        self._headers[header.block.hash] = header
        if len(self._headers) > _HEADERS_KEPT:
            self._headers.popitem(last=False)


async def _nothing(_: Connection) -> None:
    return None
