"""The chain: blocks in order, the state under them, the pool above them.

Invariants
1. A block is written to the journal, then becomes visible, then is announced; in that order. A fork too.
2. The finalized block trails the head by the finality lag, never moves back (a restart with a longer lag waits),
   and is announced block by block. No fork reaches below it.
3. Timestamps rise strictly from block to block, across forks and restarts too; so no two blocks are equal.
4. What a fork takes from the chain returns to the pool, unless the new branch carries it or made it invalid.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from chain.devnet.admission import validate
from chain.devnet.block import Block, seal_block
from chain.devnet.block_tree import BlockTree
from chain.devnet.codec import Codec, codec_of
from chain.devnet.context import Context
from chain.devnet.executive import BlockContents, Change, execute
from chain.devnet.extrinsics import Extrinsic, decode_extrinsic
from chain.devnet.faults import UNDECODABLE_EXTRINSIC, PoolError
from chain.devnet.pallets import system
from chain.devnet.pool import Pool
from chain.devnet.ports import Observer, Sink
from chain.devnet.runtime_spec import CODE_KEY, read_code
from chain.devnet.scale import ScaleError
from chain.devnet.storage import Session, StorageView


def wall_clock_ms() -> int:
    """Return milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


class ForkError(ValueError):
    """A fork that cannot be: the message says why."""


class Reorganisation(msgspec.Struct, frozen=True):
    """What a fork did: blocks taken from the chain and blocks put in their place, both oldest first."""

    retracted: tuple[Block, ...]
    enacted: tuple[Block, ...]


class Chain:
    """All blocks from genesis on; `clock` gives milliseconds since the Unix epoch.

    `ban_seconds`: how long bytes that were included or found invalid are refused when they are submitted again.
    """

    def __init__(
        self,
        tree: BlockTree,
        *,
        finality_lag: int = 0,
        pool_limit: int = 8_192,
        ban_seconds: float = 1_800.0,
        sink: Sink | None = None,
        clock: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self.tree = tree
        self.pool = Pool(pool_limit)
        self.observer: Observer | None = None
        self._lag = finality_lag
        self._sink = sink
        self._clock = clock
        self._ban_ms = int(ban_seconds * 1_000)
        self._slot_ms = int(self.codec.constant("Aura", "SlotDuration"))
        self._newest_ms = int(self.view().get("Timestamp", "Now"))
        tree.finalize(self.head.number - finality_lag)

    @property
    def blocks(self) -> Sequence[Block]:
        """The blocks on the chain; the index is the height."""
        return self.tree.blocks

    @property
    def codec(self) -> Codec:
        """The codec of the runtime that executes the next block."""
        return self.codec_at(self.head)

    def codec_at(self, block: Block) -> Codec:
        """Return the codec of the runtime that a block's state names; raises `StateDiscardedError`."""
        return codec_of(read_code(self.tree.source(block).get(CODE_KEY, block.number)))

    @property
    def genesis_hash(self) -> bytes:
        """The hash of block 0."""
        return self.blocks[0].hash

    @property
    def head(self) -> Block:
        """The newest block."""
        return self.tree.head

    @property
    def finalized(self) -> Block:
        """The newest final block."""
        return self.blocks[self.tree.finalized]

    def block_by_hash(self, block_hash: bytes) -> Block | None:
        """Return a block, on the chain or retracted, or None."""
        return self.tree.find(block_hash)

    def view(self, block: Block | None = None) -> StorageView:
        """Return the state after a block, by default the head; raises `StateDiscardedError`."""
        block = block or self.head
        return StorageView(self.codec_at(block), self.tree.source(block), block.number)

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
        self.pool.check_known(extrinsic.hash, self._clock())
        try:
            self._validate(extrinsic)
        except PoolError:
            self._ban(extrinsic)
            raise
        self.pool.check(extrinsic)
        return extrinsic

    def take(self, extrinsic: Extrinsic) -> None:
        """Put a checked extrinsic into the pool."""
        replaced = self.pool.check(extrinsic)
        self.pool.add(extrinsic, extrinsic.era.death(self.head.number + 1))
        if replaced is not None and self.observer is not None:
            self.observer.on_dropped(replaced, "usurped")

    def _validate(self, extrinsic: Extrinsic) -> None:
        validate(extrinsic, self.view(), self.blocks)

    def _is_valid(self, extrinsic: Extrinsic) -> bool:
        try:
            self._validate(extrinsic)
        except PoolError:
            return False
        return True

    def has_ready(self) -> bool:
        """Say whether a block made now would carry a signed extrinsic."""
        view = self.view()
        return bool(len(self.pool)) and bool(self.pool.ready(lambda who: system.nonce(view, who)))

    def build(self, change: Change | None = None) -> Block:
        """Make, store and announce the next block; what `change` raises leaves the chain as it was."""
        block, contents = self._make(change)
        if self._sink is not None:
            self._sink.append(block, contents.diff, self._final_at(block.number))
        before = self.codec
        self.tree.append(block, contents.diff)
        self._settle(contents)
        gone = self._recheck_pool() if self.codec.spec != before.spec else ()
        self._announce(block, msgspec.structs.replace(contents, dropped=(*contents.dropped, *gone)))
        self._announce_runtime(before)
        return block

    def upgrade(self, version: int | None = None, metadata: int | None = None) -> Block:
        """Make a block that changes the runtime; raises `ValueError` for one that cannot follow the present one.

        By default the spec version rises by one. `metadata` names the real runtime whose metadata is served under it.
        """
        new = self.codec.spec.upgraded(version, metadata)

        def change(context: Context) -> None:
            context.state.put_raw(CODE_KEY, new.code())
            context.emit("System", "CodeUpdated")

        return self.build(change)

    def _make(self, change: Change | None = None, *, recheck: bool = False) -> tuple[Block, BlockContents]:
        """Return the next block; on another branch than the pool was checked against, `recheck` what waits."""
        parent = self.head
        state = Session(self.codec, self.tree.history, parent.number + 1)
        now = max(self._clock(), self._newest_ms + 1)
        expired = self.pool.expired(parent.number + 1)
        waiting = self.pool.ready(lambda who: system.nonce(state, who))
        if expired:
            waiting = [extrinsic for extrinsic in waiting if extrinsic not in expired]
        if recheck:
            waiting = [extrinsic for extrinsic in waiting if self._is_valid(extrinsic)]
        contents = execute(state, parent.hash, waiting, now, change)
        contents = msgspec.structs.replace(contents, dropped=(*expired, *contents.dropped))
        self._newest_ms = now
        return seal_block(parent, contents.extrinsics, contents.diff, now // self._slot_ms), contents

    def _final_at(self, head: int) -> int:
        return max(self.tree.finalized, head - self._lag)

    def _settle(self, contents: BlockContents) -> None:
        for extrinsic in (*contents.included, *contents.dropped):
            self.pool.remove(extrinsic)
        self._ban(*contents.included, *contents.dropped)

    def _ban(self, *extrinsics: Extrinsic) -> None:
        self.pool.ban((extrinsic.hash for extrinsic in extrinsics), self._clock() + self._ban_ms)

    def fork(self, depth: int, blocks: int | None = None) -> Reorganisation:
        """Take the newest `depth` blocks from the chain and make `blocks` others (default: one more) in their place.

        Raises `ForkError` where finality or the rule of the longer branch forbids it.
        """
        count = depth + 1 if blocks is None else blocks
        base = self.head.number - depth
        if depth < 1 or base < self.tree.finalized:
            most = self.head.number - self.tree.finalized
            raise ForkError(f"a fork retracts between 1 and {most} blocks here: block {self.tree.finalized} is final")
        if count <= depth:
            raise ForkError(f"a branch becomes the chain when it is longer: at least {depth + 1} blocks are needed")
        before = self.codec
        retraction = self.tree.retract(base)
        made: list[tuple[Block, BlockContents]] = []
        try:
            for _ in range(count):
                made.append(self._make(recheck=True))
                self.tree.append(made[-1][0], made[-1][1].diff)
            if self._sink is not None:
                changes = [(block, contents.diff) for block, contents in made]
                self._sink.append_fork(base, changes, self._final_at(self.head.number))
        except BaseException:
            self.tree.restore(base, retraction)
            raise
        for _, contents in made:
            self._settle(contents)
        gone = (*self._return_to_pool(retraction.blocks), *self._recheck_pool())
        self._announce_fork(retraction.blocks, made, gone)
        self._announce_runtime(before)
        return Reorganisation(retraction.blocks, tuple(block for block, _ in made))

    def _return_to_pool(self, retracted: tuple[Block, ...]) -> list[Extrinsic]:
        """Put the extrinsics of retracted blocks back and return those that cannot be any more."""
        gone: list[Extrinsic] = []
        for raw, parent in ((raw, block.header.parent_hash) for block in retracted for raw in block.extrinsics[1:]):
            extrinsic = decode_extrinsic(raw, self._codec_after(parent))
            if extrinsic.nonce < system.nonce(self.view(), extrinsic.signer):
                continue  # the new branch carries it, or another one in its place
            try:
                self._validate(extrinsic)
                self.take(extrinsic)
            except PoolError:
                gone.append(extrinsic)
        return gone

    def _codec_after(self, block_hash: bytes) -> Codec:
        block = self.tree.find(block_hash)
        return self.codec if block is None else self.codec_at(block)

    def _recheck_pool(self) -> list[Extrinsic]:
        """Remove what a change of branch or runtime made invalid, and return it."""
        gone = [extrinsic for extrinsic in self.pool if not self._is_valid(extrinsic)]
        for extrinsic in gone:
            self.pool.remove(extrinsic)
        self._ban(*gone)
        return gone

    def _announce(self, block: Block, contents: BlockContents) -> None:
        if self.observer is not None:
            for extrinsic in contents.dropped:
                self.observer.on_dropped(extrinsic, "invalid")
            for extrinsic in contents.included:
                self.observer.on_included(extrinsic, block)
            self.observer.on_block(block)
        self._advance_finality()

    def _announce_fork(
        self, retracted: tuple[Block, ...], made: list[tuple[Block, BlockContents]], gone: tuple[Extrinsic, ...]
    ) -> None:
        if self.observer is not None:
            for block, _ in made[: len(retracted)]:
                self.observer.on_side_block(block)
            for block in retracted:
                self.observer.on_retracted(block)
            for extrinsic in gone:
                self.observer.on_dropped(extrinsic, "invalid")
            for index, (block, contents) in enumerate(made):
                for extrinsic in contents.dropped:
                    self.observer.on_dropped(extrinsic, "invalid")
                for extrinsic in contents.included:
                    self.observer.on_included(extrinsic, block)
                if index >= len(retracted):
                    self.observer.on_block(block)
        self._advance_finality()

    def _announce_runtime(self, before: Codec) -> None:
        if self.observer is not None and self.codec.spec != before.spec:
            self.observer.on_runtime(self.codec.version_document())

    def _advance_finality(self) -> None:
        final = self._final_at(self.head.number)
        while self.tree.finalized < final:
            self.tree.finalize(self.tree.finalized + 1)
            if self.observer is not None:
                self.observer.on_finalized(self.finalized)
