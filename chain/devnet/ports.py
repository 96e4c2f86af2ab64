"""What a chain tells the rest of the node: where blocks become durable, and who hears of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from chain.devnet.block import Block
from chain.devnet.extrinsics import Extrinsic
from chain.devnet.history import Diff


class Sink(Protocol):
    """Where sealed blocks become durable."""

    def append(self, block: Block, diff: Diff, finalized: int) -> None:
        """Write a block and the number of the newest final one; returning means both survive this process."""

    def append_fork(self, base: int, blocks: Sequence[tuple[Block, Diff]], finalized: int) -> None:
        """Write the blocks that take the place of all after height `base`, as a whole."""


class Observer(Protocol):
    """Who hears what happens to blocks and extrinsics."""

    def on_block(self, block: Block) -> None:
        """A block became the head."""

    def on_side_block(self, block: Block) -> None:
        """A block was made that is not the head, on a branch that is not longer yet."""

    def on_runtime(self, version: dict[str, Any]) -> None:
        """The runtime of the head is another one than before; its version in JSON-RPC form."""

    def on_retracted(self, block: Block) -> None:
        """A block was taken from the chain."""

    def on_finalized(self, block: Block) -> None:
        """A block became final."""

    def on_included(self, extrinsic: Extrinsic, block: Block) -> None:
        """An extrinsic is in a block."""

    def on_dropped(self, extrinsic: Extrinsic, status: str) -> None:
        """An extrinsic left the pool with this terminal status (`invalid` or `usurped`)."""
