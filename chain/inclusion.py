"""Finding a signed extrinsic in finalized blocks.

Invariants
1. Inclusion is read from the chain, by the extrinsic's hash, never inferred from a submission's return value.
2. Only finalized blocks count; what they hold cannot change any more.
3. The blocks of a height are taken from an endpoint that has finalized them: one that lags may hold another branch
   there, and "not found" on a branch that is given up later would be a proof of nothing.
"""

from __future__ import annotations

import asyncio

import msgspec

from chain.blocks import BlockRef
from chain.client import ChainClient, SignedCall
from config.errors import NetworkError

_BLOCKS_AT_ONCE = 64


class Inclusion(msgspec.Struct, frozen=True):
    """Where a finalized extrinsic stands."""

    block: BlockRef
    index: int


async def find_inclusion(client: ChainClient, extrinsic_hash: str, first: int, last: int) -> Inclusion | None:
    """Return where an extrinsic lies among the finalized blocks first..last, or None.

    Raises `NetworkError` (CHAIN_ENDPOINT_LAGS) when the endpoint in use has not finalized all of them.
    """
    while first <= last:
        head, blocks = await client.finalized_range(first, min(last - first + 1, _BLOCKS_AT_ONCE))
        if not blocks:
            raise NetworkError(
                "CHAIN_ENDPOINT_LAGS", f"The endpoint has finalized block {head.number}, and block {first} is needed.",
                hint="The endpoint is still catching up; the blocks are looked at again.",
            )
        for block in blocks:
            index = await client.extrinsic_index(block, extrinsic_hash)
            if index is not None:
                return Inclusion(block, index)
        first = blocks[-1].number + 1
    return None


async def wait_for_inclusion(
    client: ChainClient, signed: SignedCall, after: BlockRef, *, poll_seconds: float
) -> Inclusion | None:
    """Return where `signed` was finalized, or None once its era is over; the caller sets the deadline."""
    scanned = after.number
    while True:
        head = await client.finalized_head()
        found = await find_inclusion(client, signed.hash, scanned + 1, min(head.number, signed.era_end_block))
        if found is not None:
            return found
        scanned = max(scanned, head.number)
        if scanned > signed.era_end_block:
            return None
        await asyncio.sleep(poll_seconds)
