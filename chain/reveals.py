"""Finalized reveals: every one, once, in one order, each with its own fate.

Invariants
1. Only finalized blocks are read. Blocks are walked backwards by parent hash from one finalized hash to the cursor, so
   a scan covers every height exactly once and belongs to the chain the cursor stands on, or fails
   (CURSOR_HASH_CHANGED).
2. Two sources must agree: for each (block, hotkey) the number of `CommitmentRevealed` events equals the number of
   storage entries of that block, and storage at the end of the scan holds no entry of a scanned block that had no
   event. A disagreement fails the pass (REVEAL_SOURCES_DISAGREE) and is retried; nothing is skipped.
3. Payload bytes are read raw, never through a helper that guesses their text form. Old and new framing are accepted.
4. One odd row never hides another: whatever cannot be used becomes a `Reveal` with a reason code.
5. Order: (block, event index, sub-index, hotkey, content hash). The event index is the hotkey's first event in the
   block and so orders hotkeys; several reveals of one hotkey in one block are ordered by their payload bytes.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from chain.abi import Event, Storage
from chain.blocks import BlockRef
from chain.client import ChainClient
from chain.codec import StorageRead, address_of
from chain.events import ChainEvent
from chain.payload import Payload, arrival_problem, decode_payload
from chain.scale import ScaleError, ScaleReader, strip_length_prefix
from config.canonical import domain_digest, sha256_hex
from config.errors import ChainError, NetworkError
from config.limits import CHAIN

_PARALLEL_READS = 16  # event reads in flight at once; the client's throttle still bounds their rate
_ADDRESS_BYTES = 32


class Reveal(msgspec.Struct, frozen=True):
    """One finalized reveal. `reason` is "" for a usable one, else a code; unusable fields are "" or None."""

    block: int
    block_hash: str
    event_index: int
    sub_index: int
    hotkey: str
    registered_block: int | None  # when the hotkey was registered, as of this block; None = it is not
    payload_hex: str  # unframed; at most the largest legal payload is kept
    payload_digest: str  # sha256 of the whole unframed payload
    content_hash: str = ""
    url: str = ""
    payment_block: int | None = None
    payment_index: int | None = None
    reason: str = ""

    @property
    def order_key(self) -> tuple[int, int, int, str, str]:
        """The one order of reveals."""
        return (self.block, self.event_index, self.sub_index, self.hotkey, self.content_hash)

    @property
    def submission_id(self) -> str:
        """The digest that names this submission forever."""
        return domain_digest(
            "cacheon.submission",
            {
                "block": self.block,
                "block_hash": self.block_hash,
                "content_hash": self.content_hash,
                "event_index": self.event_index,
                "hotkey": self.hotkey,
                "payload_digest": self.payload_digest,
                "registered_block": self.registered_block,
                "sub_index": self.sub_index,
                "url": self.url,
            },
        )


class RevealFailure(msgspec.Struct, frozen=True):
    """A commitment that the chain could not open at its round; it carries no payload and is no submission."""

    block: int
    event_index: int
    hotkey: str
    reveal_round: int


class RevealScan(msgspec.Struct, frozen=True):
    """What one pass found up to and with `cursor` (None only while `start_block` is not final yet)."""

    cursor: BlockRef | None
    head: BlockRef
    reveals: tuple[Reveal, ...] = ()
    failures: tuple[RevealFailure, ...] = ()

    @property
    def caught_up(self) -> bool:
        """Whether the pass reached the finalized head it saw."""
        return self.cursor is not None and self.cursor.number >= self.head.number


class StoredReveal(msgspec.Struct, frozen=True):
    """One entry of `Commitments.RevealedCommitments`, as stored."""

    data: bytes
    block: int


async def scan_reveals(
    client: ChainClient,
    netuid: int,
    *,
    cursor: BlockRef | None,
    start_block: int,
    max_blocks: int = CHAIN.scan_blocks,
    allow_loopback_http: bool = False,
) -> RevealScan:
    """Read the finalized blocks after `cursor` (or from `start_block`), at most `max_blocks` of them.

    Raises `ChainError` CURSOR_HASH_CHANGED when the cursor is not on this chain, `NetworkError`
    REVEAL_SOURCES_DISAGREE when storage and events differ, and what `ChainClient` raises. Nothing is lost by an error:
    call again with the same cursor.
    """
    head = await client.finalized_head()
    first = cursor.number + 1 if cursor is not None else start_block
    if first > head.number:
        if cursor is not None and cursor.number == head.number:
            _require_cursor(cursor, head.hash)
        return RevealScan(cursor, head)
    blocks = await _walk(client, head, first, min(head.number, first + max_blocks - 1), cursor)
    events = await _read_events(client, blocks)
    reader = _BlockReader(client, netuid, allow_loopback_http)
    reveals: list[Reveal] = []
    failures: list[RevealFailure] = []
    seen: Counter[tuple[int, str]] = Counter()
    for block, found in zip(blocks, events, strict=True):
        arrivals = _arrivals(found, netuid)
        seen.update({(block.number, hotkey): len(indices) for hotkey, indices in arrivals.items()})
        reveals += await reader.read(block, arrivals)
        failures += _failures(found, netuid, block.number)
    await _require_no_silent_reveal(client, netuid, blocks, seen)
    reveals.sort(key=lambda reveal: reveal.order_key)
    return RevealScan(blocks[-1], head, tuple(reveals), tuple(failures))


def parse_stored(value: bytes) -> tuple[StoredReveal, ...]:
    """Return the entries of one hotkey's row; raises `ScaleError` for bytes of another shape."""
    reader = ScaleReader(value)
    entries = tuple(StoredReveal(reader.sized_bytes(), reader.unsigned(8)) for _ in range(reader.compact()))
    reader.done()
    return entries


async def _walk(
    client: ChainClient, head: BlockRef, first: int, last: int, cursor: BlockRef | None
) -> tuple[BlockRef, ...]:
    """Return the blocks first..last, linked by parent hash, the first one to `cursor`."""
    block = head if last == head.number else BlockRef(last, await client.block_hash(last))
    walked: list[BlockRef] = []
    while True:
        walked.append(block)
        if block.number == first and cursor is None:
            break
        parent_hash = (await client.header(block.hash)).parent_hash
        if block.number == first:
            if cursor is not None:
                _require_cursor(cursor, parent_hash)
            break
        block = BlockRef(block.number - 1, parent_hash)
    return tuple(reversed(walked))


def _require_cursor(cursor: BlockRef, found_hash: str) -> None:
    if cursor.hash != found_hash:
        raise ChainError(
            "CURSOR_HASH_CHANGED",
            f"Block {cursor.number} has hash {found_hash} on this chain, but this node finished it as {cursor.hash}.",
            hint="The endpoint serves another chain, or a devnet was started afresh; use the matching state folder.",
        )


async def _read_events(client: ChainClient, blocks: Sequence[BlockRef]) -> list[tuple[ChainEvent, ...]]:
    # Within a range whose ends share a runtime, all blocks do: runtime versions only go up.
    same = len(blocks) > 1 and await client.spec_version(blocks[0]) == await client.spec_version(blocks[-1])
    runtime_of = blocks[-1] if same else None
    results: list[tuple[ChainEvent, ...]] = []
    for start in range(0, len(blocks), _PARALLEL_READS):
        part = blocks[start : start + _PARALLEL_READS]
        answers = await asyncio.gather(
            *(client.events(block, runtime_of=runtime_of) for block in part), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            results.append(answer)
    return results


def _arrivals(events: Iterable[ChainEvent], netuid: int) -> dict[str, list[int]]:
    """Return hotkey -> indices of its reveal events on `netuid`, in event order."""
    arrivals: dict[str, list[int]] = defaultdict(list)
    for event in events:
        if event.is_a(Event.COMMITMENT_REVEALED) and event.attributes["netuid"] == netuid:
            arrivals[str(event.attributes["who"])].append(event.index)
    return dict(arrivals)


def _failures(events: Iterable[ChainEvent], netuid: int, block: int) -> list[RevealFailure]:
    return [
        RevealFailure(block, event.index, str(event.attributes["who"]), int(event.attributes["reveal_round"]))
        for event in events
        if event.is_a(Event.COMMITMENT_REVEAL_FAILED) and event.attributes["netuid"] == netuid
    ]


class _BlockReader:
    """Turns the reveal events of one block into reveals, with the payloads from storage at that very block."""

    def __init__(self, client: ChainClient, netuid: int, allow_loopback_http: bool) -> None:
        self._client = client
        self._netuid = netuid
        self._allow_loopback_http = allow_loopback_http

    async def read(self, block: BlockRef, arrivals: dict[str, list[int]]) -> list[Reveal]:
        if not arrivals:
            return []
        hotkeys = list(arrivals)
        rows = await self._client.read_raw(block, [self._row(hotkey) for hotkey in hotkeys])
        registered = await self._registered(block, hotkeys)
        reveals: list[Reveal] = []
        for hotkey, row in zip(hotkeys, rows, strict=True):
            payloads = _payloads_of(block, hotkey, row, len(arrivals[hotkey]))
            for sub_index, payload in enumerate(payloads):
                place = (block, arrivals[hotkey][0], sub_index)
                reveals.append(self._reveal(place, hotkey, registered[hotkey], payload))
        return reveals

    def _row(self, hotkey: str) -> StorageRead:
        return (Storage.REVEALED_COMMITMENTS, [self._netuid, hotkey])

    async def _registered(self, block: BlockRef, hotkeys: Sequence[str]) -> dict[str, int | None]:
        uids = await self._client.read(block, [(Storage.UIDS, [self._netuid, hotkey]) for hotkey in hotkeys])
        present = [uid for uid in uids if uid is not None]
        heights = await self._client.read(block, [(Storage.REGISTERED_BLOCK, [self._netuid, uid]) for uid in present])
        height_of = dict(zip(present, heights, strict=True))
        return {hotkey: None if uid is None else int(height_of[uid]) for hotkey, uid in zip(hotkeys, uids, strict=True)}

    def _reveal(
        self, place: tuple[BlockRef, int, int], hotkey: str, registered: int | None, data: bytes | None
    ) -> Reveal:
        block, event_index, sub_index = place
        payload = b"" if data is None else strip_length_prefix(data)
        reveal = Reveal(
            block=block.number,
            block_hash=block.hash,
            event_index=event_index,
            sub_index=sub_index,
            hotkey=hotkey,
            registered_block=registered,
            payload_hex=payload[: CHAIN.payload_bytes].hex(),
            payload_digest=sha256_hex(payload),
        )
        problem = arrival_problem(hotkey, block.number)
        if data is None or problem:
            return msgspec.structs.replace(reveal, reason=problem or "REVEAL_UNREADABLE")
        decoded = decode_payload(payload, allow_loopback_http=self._allow_loopback_http)
        if not isinstance(decoded, Payload):
            return msgspec.structs.replace(reveal, reason=decoded.code)
        return msgspec.structs.replace(
            reveal,
            content_hash=decoded.content_hash,
            url=decoded.url,
            payment_block=decoded.payment_block,
            payment_index=decoded.payment_index,
            reason="REVEAL_HOTKEY_UNREGISTERED" if registered is None else "",
        )


def _payloads_of(block: BlockRef, hotkey: str, row: bytes | None, expected: int) -> list[bytes | None]:
    """Return what `hotkey` revealed in `block`, sorted; None for each reveal whose row has an unknown shape."""
    try:
        entries = parse_stored(row) if row is not None else ()
    except ScaleError:
        return [None] * expected
    payloads = sorted(entry.data for entry in entries if entry.block == block.number)
    if len(payloads) != expected:
        raise _disagreement(f"block {block} shows {expected} reveals of {hotkey} but stores {len(payloads)}")
    return list(payloads)


async def _require_no_silent_reveal(
    client: ChainClient, netuid: int, blocks: Sequence[BlockRef], seen: Counter[tuple[int, str]]
) -> None:
    """Check that storage at the last block holds no reveal of a scanned block that had no event."""
    scanned = range(blocks[0].number, blocks[-1].number + 1)
    stored: Counter[tuple[int, str]] = Counter()
    for key, value in await client.raw_map(blocks[-1], Storage.REVEALED_COMMITMENTS, [netuid]):
        try:
            entries = parse_stored(value)
        except ScaleError:
            continue  # its events, if any, already became rows that say so
        hotkey = address_of(key[-_ADDRESS_BYTES:])
        stored.update((entry.block, hotkey) for entry in entries if entry.block in scanned)
    for (number, hotkey), count in stored.items():
        if count > seen[number, hotkey]:
            raise _disagreement(f"block {number} stores {count} reveals of {hotkey} but shows {seen[number, hotkey]}")


def _disagreement(detail: str) -> NetworkError:
    return NetworkError(
        "REVEAL_SOURCES_DISAGREE",
        f"Storage and events disagree: {detail}.",
        hint="The pass is repeated; if this lasts, the endpoint serves damaged data: use another one.",
    )
