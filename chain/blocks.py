"""A block as everybody names it: number and hash together.

Invariant: a height alone never identifies state. Every read of this room is pinned to a `BlockRef`, so that a fork or
a lagging endpoint shows up as a different hash, not as silently different answers.
"""

from __future__ import annotations

import msgspec


class BlockRef(msgspec.Struct, frozen=True, order=True):
    """One block: its height and its 0x-prefixed lower-hex 32-byte hash."""

    number: int
    hash: str

    def __str__(self) -> str:
        return f"#{self.number} ({self.hash[:10]})"


class Header(msgspec.Struct, frozen=True):
    """The part of a block header that links blocks."""

    block: BlockRef
    parent_hash: str
