"""Finalized reveals: every one, once, in one order, each with its own fate.

Invariants
1. Only finalized blocks are read, each height once, linked from the cursor on (`chain.reveal_blocks`). A pass that
   meets a fault ends before the block it could not finish; what came before it counts, what follows is read again.
2. Two sources must agree: for each (block, hotkey) the number of `CommitmentRevealed` events equals the number of
   storage entries of that block, and storage at the end of the pass holds no entry of a block of the pass that had no
   event. A disagreement ends the pass (REVEAL_SOURCES_DISAGREE) and is read again, from another endpoint if there is
   one; after `CHAIN.dispute_passes` passes it is recorded in rows with a code (`chain.reveal_rows`).
3. Payload bytes are read raw, never through a helper that guesses their text form. Old and new framing are accepted.
4. One odd row never hides another: whatever cannot be used becomes a `Reveal` with a reason code.
5. Reveals come in the order of `Reveal.order_key`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from chain.abi import Event, Storage
from chain.blocks import BlockRef
from chain.client import ChainClient
from chain.codec import StorageRead, address_of
from chain.events import ChainEvent
from chain.patience import patiently
from chain.reveal import Reveal, RevealFailure, reveal_of
from chain.reveal_blocks import PARALLEL_READS, EventBlock, read_stretch, require_cursor
from chain.reveal_pass import HotkeyRow, RevealPass
from chain.reveal_rows import (
    Dispute,
    RawReveal,
    StoredReveal,
    disputed_rows,
    parse_stored,
    readable,
    rows_of,
    silent_rows,
)
from config.errors import ChainError, NetworkError
from config.limits import CHAIN

__all__ = ["Reveal", "RevealFailure", "RevealReader", "RevealScan", "StoredReveal", "parse_stored", "scan_reveals"]

_ADDRESS_BYTES = 32


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


class _Material(msgspec.Struct, frozen=True):
    """What one block needs besides its events: indices of reveal events, stored rows and registrations by hotkey."""

    arrivals: dict[str, list[int]] = {}
    stored: tuple[bytes | None, ...] = ()
    registered: dict[str, int | None] = {}


class RevealReader:
    """Reads the reveals of one subnet, pass by pass; remembers only how often it met which disagreement."""

    def __init__(
        self,
        client: ChainClient,
        netuid: int,
        *,
        max_blocks: int = CHAIN.scan_blocks,
        dispute_passes: int = CHAIN.dispute_passes,
        allow_loopback_http: bool = False,
    ) -> None:
        self._client = client
        self._netuid = netuid
        self._max_blocks = max_blocks
        self._dispute_passes = dispute_passes
        self._allow_loopback_http = allow_loopback_http
        self._disputes: dict[tuple[int, str], int] = {}

    async def scan(self, cursor: BlockRef | None, start_block: int) -> RevealScan:
        """Read the finalized blocks after `cursor` (or from `start_block`), at most `max_blocks` of them.

        Raises `ChainError` CURSOR_HASH_CHANGED when the cursor is not on this chain and ARCHIVE_NODE_NEEDED when
        nobody keeps the state to be read, `NetworkError` REVEAL_SOURCES_DISAGREE when storage and events differ in the
        very next block, and what `ChainClient` raises. Nothing is lost by an error: call again with the same cursor.
        """
        client = self._client
        first = cursor.number + 1 if cursor is not None else start_block
        head, blocks = await patiently(lambda: client.finalized_range(first, self._max_blocks))
        if not blocks:
            if cursor is not None and cursor.number == head.number:
                require_cursor(cursor, head.hash)
            return RevealScan(cursor, head)
        work = RevealPass()
        problem: Exception | None = None
        try:
            stretch = await read_stretch(client, blocks, cursor, head)
            for one, material in zip(stretch, await self._materials(stretch), strict=True):
                if isinstance(material, BaseException):
                    raise material
                self._take(work, one, material)
        except (NetworkError, ChainError, Dispute) as error:
            problem = error
        if work.blocks:
            problem = await self._check_silent(work) or problem
        if isinstance(problem, Dispute):
            await client.try_another()
        if not work.blocks:
            raise _disagreement(problem) if isinstance(problem, Dispute) else problem or AssertionError("no block read")
        self._disputes = {key: count for key, count in self._disputes.items() if key[0] > work.blocks[-1].number}
        return RevealScan(work.blocks[-1], head, work.reveals, work.failures)

    async def _materials(self, stretch: Sequence[EventBlock]) -> list[_Material | BaseException]:
        """Return what is needed of storage for each block, or why it could not be read; several blocks at a time."""
        found: list[_Material | BaseException] = []
        for start in range(0, len(stretch), PARALLEL_READS):
            part = stretch[start : start + PARALLEL_READS]
            found += await asyncio.gather(*map(self._material, part), return_exceptions=True)
        return found

    async def _material(self, one: EventBlock) -> _Material:
        arrivals = _arrivals(one.events, self._netuid)
        if not arrivals:
            return _Material()
        reads: list[StorageRead] = [(Storage.REVEALED_COMMITMENTS, [self._netuid, hotkey]) for hotkey in arrivals]
        stored = await patiently(lambda: self._client.read_raw(one.block, reads))
        return _Material(arrivals, tuple(stored), await self._registered(one.block, list(arrivals)))

    def _take(self, work: RevealPass, one: EventBlock, material: _Material) -> None:
        """Add the reveals of one block to the pass. Raises `Dispute` before anything of the block was added."""
        arrivals, stored, registered = material.arrivals, material.stored, material.registered
        raw: list[RawReveal] = []
        disputes: list[Dispute] = []
        for (hotkey, indices), row in zip(arrivals.items(), stored, strict=True):
            try:
                raw += rows_of(one.block.number, hotkey, indices, row)
            except Dispute as dispute:
                disputes.append(dispute)
                raw += disputed_rows(one.block.number, hotkey, indices, row)
        self._require_settled(disputes)
        work.add(
            one.block,
            [self._reveal(one.block, reveal, registered) for reveal in raw],
            _failures(one.events, self._netuid, one.block.number),
            {hotkey: len(indices) for hotkey, indices in arrivals.items()},
            [(hotkey, readable(row) or ()) for hotkey, row in zip(arrivals, stored, strict=True)],
        )

    async def _check_silent(self, work: RevealPass) -> Exception | None:
        """Cut the pass before the first block of which storage knows reveals that no event announced; return why."""
        try:
            rows = await patiently(
                lambda: self._client.raw_map(work.blocks[-1], Storage.REVEALED_COMMITMENTS, [self._netuid])
            )
        except (NetworkError, ChainError) as error:
            work.cut(work.blocks[0].number)
            return error
        stored = [(address_of(key[-_ADDRESS_BYTES:]), readable(value) or ()) for key, value in rows]
        while disputes := work.silent_disputes(stored):
            try:
                self._require_settled(disputes)
            except Dispute as dispute:
                work.cut(dispute.block)
                return dispute
            await self._record_silent(work, disputes, stored)
        return None

    async def _record_silent(
        self, work: RevealPass, disputes: Sequence[Dispute], stored: Sequence[HotkeyRow]
    ) -> None:
        block = next(block for block in work.blocks if block.number == disputes[0].block)
        registered = await self._registered(block, [dispute.hotkey for dispute in disputes])
        for dispute in disputes:
            raw = silent_rows(dispute.hotkey, work.unannounced(dispute, stored))
            work.add_silent(dispute, [self._reveal(block, reveal, registered) for reveal in raw])

    def _require_settled(self, disputes: Sequence[Dispute]) -> None:
        """Count the disputes of one pass; raise the first that was not met often enough to be recorded."""
        for dispute in disputes:
            self._disputes[dispute.key] = self._disputes.get(dispute.key, 0) + 1
        for dispute in disputes:
            if self._disputes[dispute.key] < self._dispute_passes:
                raise dispute

    async def _registered(self, block: BlockRef, hotkeys: Sequence[str]) -> dict[str, int | None]:
        if not hotkeys:
            return {}
        uid_reads: list[StorageRead] = [(Storage.UIDS, [self._netuid, hotkey]) for hotkey in hotkeys]
        uids = await patiently(lambda: self._client.read(block, uid_reads))
        present = [uid for uid in uids if uid is not None]
        height_reads: list[StorageRead] = [(Storage.REGISTERED_BLOCK, [self._netuid, uid]) for uid in present]
        heights = await patiently(lambda: self._client.read(block, height_reads)) if present else []
        height_of = dict(zip(present, heights, strict=True))
        return {hotkey: None if uid is None else int(height_of[uid]) for hotkey, uid in zip(hotkeys, uids, strict=True)}

    def _reveal(self, block: BlockRef, raw: RawReveal, registered: dict[str, int | None]) -> Reveal:
        return reveal_of(block, raw, registered[raw.hotkey], allow_loopback_http=self._allow_loopback_http)


async def scan_reveals(
    client: ChainClient,
    netuid: int,
    *,
    cursor: BlockRef | None,
    start_block: int,
    max_blocks: int = CHAIN.scan_blocks,
    allow_loopback_http: bool = False,
) -> RevealScan:
    """Make one pass, see `RevealReader.scan`, without memory of earlier disagreements."""
    reader = RevealReader(client, netuid, max_blocks=max_blocks, allow_loopback_http=allow_loopback_http)
    return await reader.scan(cursor, start_block)


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


def _disagreement(dispute: Dispute) -> NetworkError:
    return NetworkError(
        "REVEAL_SOURCES_DISAGREE",
        f"Storage and events disagree: {dispute}.",
        hint="The pass is repeated; if this lasts, the endpoint serves damaged data: use another one.",
    )
