"""A signed extrinsic whose fate is open: what the chain says about it.

Invariants
1. Fates are read from finalized state and blocks only; a pool's answer never ends anything.
2. `expired` is a proof that these bytes can never be included: their nonce is used by another extrinsic, their era is
   final without them, or the runtime they were signed for is gone.
3. `absent` means that submitting the same bytes again is right: nobody has them, and they can still be included once.
4. Blocks that the endpoints no longer have make `unreadable`, never `expired`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from chain.blocks import BlockRef
from chain.client import ChainClient
from chain.inclusion import Inclusion, find_inclusion
from config.errors import ChainError, NetworkError


class PendingExtrinsic(msgspec.Struct, frozen=True):
    """Signed bytes that can be submitted any number of times and included once."""

    data: bytes
    hash: str
    hotkey: str
    nonce: int
    signed_block: int  # finalized head at signing; inclusion can only be above it
    era_end_block: int
    spec_version: int = 0  # runtime that the signature names, 0 = not known


class Fate(msgspec.Struct, frozen=True):
    """What is known: `inclusion` is set for `included`, `reason` for `expired` and `unreadable`."""

    kind: Literal["included", "expired", "waiting", "absent", "unreadable"]
    inclusion: Inclusion | None = None
    reason: str = ""


async def fate_of(client: ChainClient, pending: PendingExtrinsic, block: BlockRef, nonce: int) -> Fate:
    """Return what became of `pending` up to finalized `block`, where the hotkey's nonce is `nonce`.

    Raises `NetworkError` and `ChainError` of the client; nothing is decided then.
    """
    if nonce > pending.nonce:
        return await _look_up(client, pending, block)
    if block.number > pending.era_end_block:
        return Fate("expired", reason=f"not included before block {pending.era_end_block}")
    if pending.spec_version and (now := await client.spec_version(block)) > pending.spec_version:
        return Fate("expired", reason=f"signed for runtime {pending.spec_version}, and the chain now runs {now}")
    if await client.next_nonce(pending.hotkey) > pending.nonce:
        return Fate("waiting")  # the endpoint's pool, or a block that is not final yet, has it
    return Fate("absent")


async def _look_up(client: ChainClient, pending: PendingExtrinsic, block: BlockRef) -> Fate:
    last = min(block.number, pending.era_end_block)
    try:
        found = await find_inclusion(client, pending.hash, pending.signed_block + 1, last)
        if found is None:  # before it is called impossible, another endpoint is asked, if there is one
            await client.try_another()
            found = await find_inclusion(client, pending.hash, pending.signed_block + 1, last)
    except (NetworkError, ChainError) as error:
        gone = error.code == "CHAIN_STATE_PRUNED" or (
            error.code == "CHAIN_BLOCK_UNKNOWN" and block.number > pending.era_end_block
        )
        if not gone:
            raise
        return Fate("unreadable", reason=error.message)
    if found is not None:
        return Fate("included", inclusion=found)
    return Fate("expired", reason=f"another extrinsic of this hotkey used nonce {pending.nonce}")
