"""A chain as the reveal reader sees it, in memory, and a client of it that fails as it is told.

The model knows what was revealed; nothing of it is computed with the reader's code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from chain.abi import Storage
from chain.blocks import BlockRef
from chain.events import ChainEvent
from chain.scale import compact
from chain.wallet import signer_of_seed
from config.errors import ChainError, NetworkError

NETUID = 2
_SIGNERS = [signer_of_seed(f"//model{number}") for number in range(4)]
HOTKEYS = tuple(signer.ss58_address for signer in _SIGNERS)
_KEYS = {signer.ss58_address: bytes(signer.public_key) for signer in _SIGNERS}
RING = 10
Fault = Literal["none", "lost", "pruned", "missing", "double", "forget", "invent", "lag", "garbled"]


class Row(msgspec.Struct, frozen=True, order=True):
    """What must be recorded of one reveal."""

    block: int
    block_hash: str
    event_index: int
    sub_index: int
    hotkey: str
    payload_digest: str
    registered_block: int | None


class ModelBlock(msgspec.Struct, frozen=True):
    """One block with the state after it."""

    ref: BlockRef
    parent: str
    events: tuple[ChainEvent, ...]
    rings: dict[str, tuple[tuple[bytes, int], ...]]
    registered: dict[str, int]
    rows: tuple[Row, ...]


class ModelChain:
    """Blocks, of which those above `final` can still be replaced."""

    def __init__(self) -> None:
        self._made = 0
        self.final = 0
        self.blocks: list[ModelBlock] = []
        self._append((), dict.fromkeys(HOTKEYS, 0))

    def build(self, reveals: Sequence[tuple[int, Sequence[bytes]]], moved: int | None = None) -> None:
        """Make a block in which hotkeys, by number, reveal payloads; `moved` registers anew or, if negative, leaves."""
        registered = dict(self.blocks[-1].registered)
        if moved is not None:
            hotkey = HOTKEYS[abs(moved) % len(HOTKEYS)]
            registered.pop(hotkey, None)
            if moved >= 0:
                registered[hotkey] = len(self.blocks)
        self._append(reveals, registered)

    def retract(self, depth: int) -> None:
        """Forget the newest blocks, at most `depth`, down to the final one."""
        del self.blocks[max(self.final + 1, len(self.blocks) - depth) :]

    def finalize(self, number: int) -> None:
        """Make blocks up to `number` final."""
        self.final = max(self.final, min(number, len(self.blocks) - 1))

    def truth(self) -> list[Row]:
        """Return what every node must have recorded about the final blocks, in order."""
        return [row for block in self.blocks[1 : self.final + 1] for row in sorted(block.rows)]

    def _append(self, reveals: Sequence[tuple[int, Sequence[bytes]]], registered: dict[str, int]) -> None:
        number = len(self.blocks)
        self._made += 1
        ref = BlockRef(number, "0x" + hashlib.sha256(b"block %d" % self._made).hexdigest())
        rings = dict(self.blocks[-1].rings) if self.blocks else {}
        events = [ChainEvent(0, 0, "System", "ExtrinsicSuccess", {})]
        rows: list[Row] = []
        for who, payloads in reveals:
            hotkey = HOTKEYS[who]
            if not payloads or any(row.hotkey == hotkey for row in rows):
                continue
            first = len(events)
            for payload in payloads:
                events.append(self._revealed(len(events), hotkey))
                rings[hotkey] = (*rings.get(hotkey, ()), (payload, number))[-RING:]
            shown = sorted(payloads[-RING:]) + [b""] * (len(payloads) - RING)  # what was pushed out says nothing
            rows += [
                Row(number, ref.hash, first, place, hotkey, _digest(payload), registered.get(hotkey))
                for place, payload in enumerate(shown)
            ]
        events.append(self._revealed(len(events), HOTKEYS[0], netuid=NETUID + 1))
        parent = self.blocks[-1].ref.hash if self.blocks else "0x" + "00" * 32
        self.blocks.append(ModelBlock(ref, parent, tuple(events), rings, registered, tuple(rows)))

    @staticmethod
    def _revealed(index: int, hotkey: str, netuid: int = NETUID) -> ChainEvent:
        return ChainEvent(index, None, "Commitments", "CommitmentRevealed", {"netuid": netuid, "who": hotkey})


class ModelClient:
    """The reads of `ChainClient` that the reader uses; each of them takes the next of `faults`, while there is one."""

    def __init__(self, chain: ModelChain, faults: Iterator[Fault]) -> None:
        self._chain = chain
        self._faults = faults

    async def try_another(self) -> None:
        """There is one endpoint only."""

    async def finalized_range(self, first: int, count: int) -> tuple[BlockRef, tuple[BlockRef, ...]]:
        """See `ChainClient`."""
        final = self._chain.final
        if self._fault() == "lag":
            final = final // 2
        blocks = self._chain.blocks[first : min(final, first + count - 1) + 1]
        return self._chain.blocks[final].ref, tuple(block.ref for block in blocks)

    async def linked_events(self, block: BlockRef) -> tuple[str, tuple[ChainEvent, ...]]:
        """See `ChainClient`."""
        fault, found = self._fault(), self._at(block)
        flooded = any(len(data_at(ring, block.number)) >= RING for ring in found.rings.values())
        if flooded and fault in ("missing", "double"):
            # beyond the ring only the block's own count of its events can tell; the client compares it
            raise NetworkError("CHAIN_EVENTS_MISCOUNTED", "The events are more or fewer than the block counts.")
        events = list(found.events)
        ours = [place for place, one in enumerate(events) if "who" in one.attributes]
        if fault == "missing" and ours:
            del events[ours[-1] if len(ours) == 1 else ours[-2]]
        if fault == "double":
            events += events
        return found.parent, tuple(msgspec.structs.replace(one, index=place) for place, one in enumerate(events))

    async def read_raw(self, block: BlockRef, reads: Sequence[Any]) -> list[bytes | None]:
        """See `ChainClient`."""
        fault = self._fault()
        return [self._ring(block, params[1], fault) for _, params in reads]

    async def read(self, block: BlockRef, reads: Sequence[Any]) -> list[Any]:
        """See `ChainClient`."""
        self._fault()
        registered = self._at(block).registered
        answers: list[Any] = []
        for item, params in reads:
            if item is Storage.UIDS:
                answers.append(HOTKEYS.index(params[1]) if params[1] in registered else None)
            else:
                answers.append(registered[HOTKEYS[params[1]]])
        return answers

    async def raw_map(self, block: BlockRef, item: Storage, prefix: list[object]) -> list[tuple[bytes, bytes]]:
        """See `ChainClient`."""
        fault = self._fault()
        rows = ((hotkey, self._ring(block, hotkey, fault)) for hotkey in self._at(block).rings)
        return [(b"prefix" + _KEYS[hotkey], row) for hotkey, row in rows if row is not None]

    def _at(self, block: BlockRef) -> ModelBlock:
        found = self._chain.blocks[block.number] if block.number < len(self._chain.blocks) else None
        if found is None or found.ref != block:
            raise NetworkError("CHAIN_BLOCK_UNKNOWN", f"There is no block {block}.")
        return found

    def _ring(self, block: BlockRef, hotkey: str, fault: Fault) -> bytes | None:
        entries = self._at(block).rings.get(hotkey)
        if entries is None or fault == "forget":
            return None
        if fault == "invent":
            entries = (*entries, (b"invented", block.number))
        body = b"".join(compact(len(data)) + data + at.to_bytes(8, "little") for data, at in entries)
        return compact(len(entries)) + body

    def _fault(self) -> Fault:
        fault: Fault = next(self._faults, "none")
        if fault == "lost":
            raise NetworkError("CHAIN_UNREACHABLE", "The connection was lost.")
        if fault == "pruned":
            raise ChainError("CHAIN_STATE_PRUNED", "The state was discarded.")
        if fault == "garbled":
            raise ChainError("CHAIN_DECODE_FAILED", "That was no answer.")
        return fault


def data_at(ring: tuple[tuple[bytes, int], ...], number: int) -> list[bytes]:
    """The payloads of one block."""
    return [data for data, at in ring if at == number]


def _digest(data: bytes) -> str:
    """Payloads of the model are bare texts of ASCII letters, which no framing is mistaken for."""
    return hashlib.sha256(data).hexdigest()
