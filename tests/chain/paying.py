"""Payments on a devnet, honest and otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from chain.abi import Call
from chain.codec import NestedCall
from chain.payment import Claim, Quote, encode_remark, make_quote
from chain.wallet import address_of_seed, signer_of_seed
from config.evaluation_cost import EvaluationCostSettings

if TYPE_CHECKING:
    from tests.chain.conftest import World

NETUID = 2
TAO = 1_000_000_000
COST = EvaluationCostSettings(amount_rao=TAO)
CONTENT = "ab" * 32
PAYER = "//Ann//cold"
OWNER = address_of_seed("//Owner//cold")
HOTKEY = address_of_seed("//Ann")
FUNDED = {address_of_seed(seed): 100 for seed in (PAYER, "//Owner//cold", "//Rich")}


def quote_at(block: int, cost: EvaluationCostSettings = COST, **changes: Any) -> Quote:
    """The honest quote of Ann's submission at `block`, with `changes`."""
    honest = make_quote(
        cost, content_hash=CONTENT, hotkey=HOTKEY, netuid=NETUID, destination=OWNER, issued_block=block
    )
    return msgspec.structs.replace(honest, **changes)


def transfer(amount_rao: int = TAO, destination: str = OWNER) -> NestedCall:
    """The transfer of a payment."""
    return NestedCall(Call.TRANSFER, {"dest": destination, "value": amount_rao})


def remark(data: bytes) -> NestedCall:
    """The remark of a payment."""
    return NestedCall(Call.REMARK, {"remark": data})


async def send(world: World, call: Call, arguments: dict[str, object], seed: str = PAYER) -> tuple[int, int]:
    """Sign and submit a call, make its block, and return where it is: (block, extrinsic index)."""
    signer = signer_of_seed(seed)
    at = await world.client.finalized_head()
    nonce = await world.client.next_nonce(signer.ss58_address)
    signed = await world.client.sign(call, arguments, signer, nonce=nonce, at=at, period=64)
    answer = await world.client.submit(signed.data)
    assert answer.fate == "accepted", answer
    block = world.blocks()
    index = await world.client.extrinsic_index(block, signed.hash)
    assert index is not None
    return block.number, index


async def pay(world: World, quote: Quote | None = None, seed: str = PAYER, **changes: Any) -> tuple[int, int]:
    """Pay what `quote` (by default an honest one of the present head) says."""
    asked = quote or quote_at(world.node.chain.head.number, **changes)
    calls = [transfer(asked.amount_rao, asked.destination), remark(encode_remark(asked))]
    return await send(world, Call.BATCH_ALL, {"calls": calls}, seed)


def claim_of(pointer: tuple[int, int], *, reveal_block: int | None = None, **changes: Any) -> Claim:
    """What Ann's submission claims, revealed ten blocks after its payment unless told otherwise."""
    reveal = pointer[0] + 10 if reveal_block is None else reveal_block
    return msgspec.structs.replace(Claim(CONTENT, HOTKEY, NETUID, reveal, *pointer), **changes)
