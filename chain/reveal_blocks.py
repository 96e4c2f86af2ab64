"""A stretch of finalized blocks with their events: every height once, one linked to the next.

Invariants
1. Only blocks that the endpoint calls final are read. Each names the one before it as its parent, the first one the
   cursor; a stretch that does not fit the cursor is an error (CURSOR_HASH_CHANGED).
2. Each read is repeated a few times, at the next endpoint if there is one. What is still unreadable then ends the
   stretch; only when nothing at all could be read is that an error.
3. Every answer is pinned to a block's hash.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from chain.blocks import BlockRef
from chain.client import ChainClient
from chain.events import ChainEvent
from chain.patience import patiently
from config.errors import Blame, CacheonError, ChainError, NetworkError

PARALLEL_READS = 16  # reads in flight at once; the client's throttle still bounds their rate


class EventBlock(msgspec.Struct, frozen=True):
    """One block and its events."""

    block: BlockRef
    events: tuple[ChainEvent, ...]


async def read_stretch(
    client: ChainClient, blocks: Sequence[BlockRef], cursor: BlockRef | None, head: BlockRef
) -> list[EventBlock]:
    """Return the first of `blocks`, at least one, with their events. `head` is the finalized block known so far.

    Raises `ChainError` (CURSOR_HASH_CHANGED, ARCHIVE_NODE_NEEDED), `NetworkError` (CHAIN_BLOCKS_UNLINKED) and what
    `ChainClient` raises.
    """
    read: list[EventBlock] = []
    parent = cursor.hash if cursor is not None else ""
    try:
        for start in range(0, len(blocks), PARALLEL_READS):
            part = blocks[start : start + PARALLEL_READS]
            answers = await asyncio.gather(*(_read(client, block) for block in part), return_exceptions=True)
            for block, answer in zip(part, answers, strict=True):
                if isinstance(answer, BaseException):
                    raise answer
                found_parent, events = answer
                if parent and found_parent != parent:
                    raise _unlinked(block, parent, found_parent, cursor if not read else None)
                read.append(EventBlock(block, events))
                parent = block.hash
    except CacheonError as error:
        if not read:
            raise _explained(error, blocks[0], head) from error
    return read


def require_cursor(cursor: BlockRef, found_hash: str) -> None:
    """Raise `ChainError` (CURSOR_HASH_CHANGED) unless the block at the cursor's height is the cursor's."""
    if cursor.hash != found_hash:
        raise ChainError(
            "CURSOR_HASH_CHANGED",
            f"Block {cursor.number} has hash {found_hash} on this chain, but this node finished it as {cursor.hash}.",
            hint="The endpoint serves another chain, or a devnet was started afresh; use the matching state folder.",
            blame=Blame.OPERATOR,
        )


async def _read(client: ChainClient, block: BlockRef) -> tuple[str, tuple[ChainEvent, ...]]:
    return await patiently(lambda: client.linked_events(block))


def _unlinked(block: BlockRef, expected: str, found: str, cursor: BlockRef | None) -> CacheonError:
    if cursor is not None:
        try:
            require_cursor(cursor, found)
        except ChainError as error:
            return error
    return NetworkError(
        "CHAIN_BLOCKS_UNLINKED",
        f"The endpoint names {found} as the parent of block {block.number}, and {expected} as the block before it.",
        hint="The pass is repeated; if this lasts, the endpoint serves damaged data: use another one.",
    )


def _explained(error: CacheonError, first: BlockRef, head: BlockRef) -> CacheonError:
    if error.code != "CHAIN_STATE_PRUNED":
        return error
    return ChainError(
        "ARCHIVE_NODE_NEEDED",
        f"Blocks {first.number} to {head.number} are still to be read for reveals, and no endpoint of "
        f"`chain.endpoints` keeps the state of block {first.number} any more.",
        hint="Add an archive node of the same chain to `chain.endpoints`; the node then goes on by itself.",
        blame=Blame.OPERATOR,
    )
