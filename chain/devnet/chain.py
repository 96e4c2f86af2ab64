"""The chain: blocks in order, the state under them, the pool above them.

Invariants
1. A block is written to the journal, then becomes visible, then is announced; in that order.
2. The finalized block trails the head by the finality lag, never moves back (a restart with a longer lag waits),
   and is announced block by block.
3. Timestamps rise strictly from block to block, across restarts too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from chain.devnet.block import Block, seal_block
from chain.devnet.codec import Codec, codec
from chain.devnet.executive import Change, charge_of, execute
from chain.devnet.extrinsics import Extrinsic, decode_extrinsic, signature_holds
from chain.devnet.faults import UNDECODABLE_EXTRINSIC, Invalidity, InvalidTransactionError, PoolError
from chain.devnet.history import Diff, History
from chain.devnet.pallets import balances, system
from chain.devnet.pool import Pool
from chain.devnet.scale import ScaleError
from chain.devnet.storage import Session, StorageView


class Sink(Protocol):
    """Where sealed blocks become durable."""

    def append(self, block: Block, diff: Diff, finalized: int) -> None:
        """Write a block and the number of the newest final one; returning means both survive this process."""


class Observer(Protocol):
    """Who hears what happens to blocks and extrinsics."""

    def on_block(self, block: Block) -> None:
        """A block became the head."""

    def on_finalized(self, block: Block) -> None:
        """A block became final."""

    def on_included(self, extrinsic: Extrinsic, block: Block) -> None:
        """An extrinsic is in a block."""

    def on_dropped(self, extrinsic: Extrinsic, status: str) -> None:
        """An extrinsic left the pool with this terminal status (`invalid` or `usurped`)."""


def wall_clock_ms() -> int:
    """Return milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


class Chain:
    """All blocks from genesis on; `clock` gives milliseconds since the Unix epoch."""

    def __init__(
        self,
        history: History,
        blocks: list[Block],
        *,
        finalized: int = 0,
        finality_lag: int = 0,
        pool_limit: int = 8_192,
        sink: Sink | None = None,
        clock: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self.codec: Codec = codec()
        self.history = history
        self.blocks = blocks
        self.pool = Pool(pool_limit)
        self.observer: Observer | None = None
        self._by_hash = {block.hash: block for block in blocks}
        self._lag = finality_lag
        self._finalized = max(finalized, len(blocks) - 1 - finality_lag)
        self._sink = sink
        self._clock = clock
        self._slot_ms = int(self.codec.constant("Aura", "SlotDuration"))

    @property
    def genesis_hash(self) -> bytes:
        """The hash of block 0."""
        return self.blocks[0].hash

    @property
    def head(self) -> Block:
        """The newest block."""
        return self.blocks[-1]

    @property
    def finalized(self) -> Block:
        """The newest final block."""
        return self.blocks[self._finalized]

    def block_by_hash(self, block_hash: bytes) -> Block | None:
        """Return a block, or None."""
        return self._by_hash.get(block_hash)

    def view(self, block: Block | None = None) -> StorageView:
        """Return the state after a block, by default the head."""
        return StorageView(self.codec, self.history, (block or self.head).number)

    def next_nonce(self, account: bytes) -> int:
        """Return the next nonce of an account, counting what waits in the pool."""
        return self.pool.next_nonce(account, system.nonce(self.view(), account))

    def submit(self, raw: bytes) -> Extrinsic:
        """Check an extrinsic and take it into the pool; raises `PoolError`."""
        extrinsic = self.check(raw)
        self.take(extrinsic)
        return extrinsic

    def check(self, raw: bytes) -> Extrinsic:
        """Return the extrinsic if the pool would take it now; raises `PoolError`."""
        try:
            extrinsic = decode_extrinsic(raw, self.codec)
        except ScaleError as error:
            raise PoolError(UNDECODABLE_EXTRINSIC, "Verification Error", f"Could not decode: {error}") from error
        self._validate(extrinsic)
        self.pool.check(extrinsic)
        return extrinsic

    def take(self, extrinsic: Extrinsic) -> None:
        """Put a checked extrinsic into the pool."""
        replaced = self.pool.check(extrinsic)
        self.pool.add(extrinsic, extrinsic.era.death(self.head.number + 1))
        if replaced is not None and self.observer is not None:
            self.observer.on_dropped(replaced, "usurped")

    def _validate(self, extrinsic: Extrinsic) -> None:
        """Raise `InvalidTransactionError` for an extrinsic that the next block could not carry, now or later."""
        number = self.head.number + 1
        era_block = extrinsic.era.birth(number)
        if era_block >= number:
            raise InvalidTransactionError(Invalidity.ANCIENT_BIRTH_BLOCK)
        if not signature_holds(extrinsic, self.genesis_hash, self.blocks[era_block].hash):
            raise InvalidTransactionError(Invalidity.BAD_PROOF)
        state = self.view()
        if extrinsic.nonce < system.nonce(state, extrinsic.signer):
            raise InvalidTransactionError(Invalidity.STALE)
        if charge_of(extrinsic) > balances.free_balance(state, extrinsic.signer):
            raise InvalidTransactionError(Invalidity.PAYMENT)

    def has_ready(self) -> bool:
        """Say whether a block made now would carry a signed extrinsic."""
        view = self.view()
        return bool(len(self.pool)) and bool(self.pool.ready(lambda who: system.nonce(view, who)))

    def build(self, change: Change | None = None) -> Block:
        """Make, store and announce the next block; what `change` raises leaves the chain as it was."""
        parent = self.head
        state = Session(self.codec, self.history, parent.number + 1)
        now = max(self._clock(), int(state.get("Timestamp", "Now")) + 1)
        expired = self.pool.expired(parent.number + 1)
        ready = self.pool.ready(lambda who: system.nonce(state, who))
        waiting = [extrinsic for extrinsic in ready if extrinsic not in expired] if expired else ready
        contents = execute(state, parent.hash, waiting, now, change)
        block = seal_block(parent, contents.extrinsics, contents.diff, now // self._slot_ms)
        self._accept(block, contents.diff)
        for extrinsic in (*expired, *contents.included, *contents.dropped):
            self.pool.remove(extrinsic)
        self._announce(block, contents.included, (*expired, *contents.dropped))
        return block

    def _accept(self, block: Block, diff: Diff) -> None:
        finalized = max(self._finalized, block.number - self._lag)
        if self._sink is not None:
            self._sink.append(block, diff, finalized)
        self.history.commit(block.number, diff)
        self.blocks.append(block)
        self._by_hash[block.hash] = block

    def _announce(self, block: Block, included: tuple[Extrinsic, ...], dropped: tuple[Extrinsic, ...]) -> None:
        observer = self.observer
        if observer is None:
            self._finalized = max(self._finalized, block.number - self._lag)
            return
        for extrinsic in dropped:
            observer.on_dropped(extrinsic, "invalid")
        for extrinsic in included:
            observer.on_included(extrinsic, block)
        observer.on_block(block)
        while self._finalized < block.number - self._lag:
            self._finalized += 1
            observer.on_finalized(self.finalized)
