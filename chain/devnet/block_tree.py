"""The blocks there are: one chain, the blocks that were taken from it, and the state after each.

Invariants
1. `blocks[n]` is the block of height n on the chain; what was retracted is found by its hash alone.
2. The state of a retracted block is readable until a block of its height is final, and is never that of another.
3. Nothing at or below the newest final block is ever retracted.
"""

from __future__ import annotations

from bisect import bisect_right

import msgspec

from chain.devnet.block import Block
from chain.devnet.history import Diff, History, StateDiscardedError, StateSource


class Overlay:
    """The state after a retracted block: that of the chain at `base`, with `changes` on top."""

    def __init__(self, history: History, base: int, changes: dict[bytes, bytes | None]) -> None:
        self._history = history
        self.base = base
        self.changes = changes

    def rebase(self, base: int, changes: Diff) -> None:
        """Stand on an earlier block of the chain, from which `changes` led to the present base."""
        self.base = base
        self.changes = {**changes, **self.changes}

    def get(self, key: bytes, block: int) -> bytes | None:  # noqa: ARG002 - one overlay belongs to one block
        """Return the value of a key."""
        return self.changes[key] if key in self.changes else self._history.get(key, self.base)

    def keys(
        self,
        prefix: bytes,
        block: int,  # noqa: ARG002 - one overlay belongs to one block
        *,
        after: bytes = b"",
        limit: int | None = None,
    ) -> list[bytes]:
        """Return the keys with that prefix, in byte order, strictly after `after`."""
        found = set(self._history.keys(prefix, self.base))
        for key, value in self.changes.items():
            if key.startswith(prefix):
                (found.discard if value is None else found.add)(key)
        order = sorted(found)
        start = bisect_right(order, after) if after > prefix else 0
        return order[start:] if limit is None else order[start : start + limit]


class Retraction(msgspec.Struct, frozen=True):
    """Blocks taken from the chain, oldest first, and their changes; enough to put them back."""

    blocks: tuple[Block, ...]
    diffs: tuple[Diff, ...]


class BlockTree:
    """All blocks from genesis on; `keep` is the number of newest blocks whose state stays readable (0 = all)."""

    def __init__(self, keep: int = 0) -> None:
        self.history = History(keep)
        self.blocks: list[Block] = []
        self.finalized = 0
        self._by_hash: dict[bytes, Block] = {}
        self._overlays: dict[bytes, Overlay] = {}

    @property
    def head(self) -> Block:
        """The newest block of the chain."""
        return self.blocks[-1]

    def find(self, block_hash: bytes) -> Block | None:
        """Return a block, on the chain or retracted, or None."""
        return self._by_hash.get(block_hash)

    def is_canonical(self, block: Block) -> bool:
        """Say whether a block is on the chain now."""
        return block.number < len(self.blocks) and self.blocks[block.number] is block

    def append(self, block: Block, diff: Diff) -> None:
        """Put a block on the chain."""
        self.history.commit(block.number, diff, self.finalized)
        self.blocks.append(block)
        self._by_hash[block.hash] = block

    def finalize(self, number: int) -> None:
        """Make the block of that height final, and with it all before."""
        if number <= self.finalized:
            return
        self.finalized = number
        for block_hash in [name for name in self._overlays if self._by_hash[name].number <= number]:
            del self._overlays[block_hash]
        self._pin()

    def _pin(self) -> None:
        bases = [overlay.base for overlay in self._overlays.values()]
        self.history.finalize(self.finalized, min(bases, default=None))

    def retract(self, base: int) -> Retraction:
        """Take everything after height `base` from the chain; its state stays readable for a while."""
        blocks = tuple(self.blocks[base + 1 :])
        diffs = self.history.rewind(base)
        del self.blocks[base + 1 :]
        changes: list[dict[bytes, bytes | None]] = [{}]
        for diff in diffs:
            changes.append({**changes[-1], **diff})
        for overlay in self._overlays.values():
            if overlay.base > base:
                overlay.rebase(base, changes[overlay.base - base])
        for block, change in zip(blocks, changes[1:], strict=True):
            self._overlays[block.hash] = Overlay(self.history, base, change)
        self._pin()
        return Retraction(blocks, tuple(diffs))

    def restore(self, base: int, retraction: Retraction) -> None:
        """Undo a retraction, and forget whatever was built on `base` since."""
        for block in self.blocks[base + 1 :]:
            del self._by_hash[block.hash]
        self.history.rewind(base)
        del self.blocks[base + 1 :]
        for block, diff in zip(retraction.blocks, retraction.diffs, strict=True):
            self._overlays.pop(block.hash, None)
            self.append(block, diff)

    def source(self, block: Block) -> StateSource:
        """Return where the state after a block is read; raises `StateDiscardedError`."""
        if not self.is_canonical(block):
            overlay = self._overlays.get(block.hash)
            if overlay is not None:
                return overlay
        elif block.number >= self.history.floor:
            return self.history
        raise StateDiscardedError(block.hash_hex)
