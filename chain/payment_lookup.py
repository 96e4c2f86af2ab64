"""Looking a payment up on the chain.

Invariants
1. A payment is judged by what one finalized block holds, and by who owned the subnet at that block.
2. An endpoint that fails, lags, has discarded the block or contradicts itself raises; that never refuses a payment.
3. Whatever the block's body alone can refuse is refused without its state, which ordinary nodes keep for about 256
   blocks only.
"""

from __future__ import annotations

from chain.abi import Call, Storage
from chain.blocks import BlockRef
from chain.client import ChainClient
from chain.payment import (
    Claim,
    Payment,
    PaymentRefusal,
    absent,
    batch_arguments,
    check_remark,
    check_transfer,
    encode_remark,
    has_moved,
    malformed,
    place_problem,
    transfer_of,
)
from config.errors import ChainError, NetworkError
from config.evaluation_cost import EvaluationCostSettings


async def look_up_payment(
    client: ChainClient, claim: Claim, cost: EvaluationCostSettings
) -> Payment | PaymentRefusal:
    """Return the payment that `claim` points at, or why it does not count.

    Raises `NetworkError` and `ChainError` when the chain could not be asked.
    """
    misplaced = place_problem(claim, cost)
    if misplaced is not None:
        return misplaced
    block = await _finalized(client, claim.payment_block)
    extrinsics = await client.extrinsics(block)
    if claim.payment_index >= len(extrinsics):
        return absent(claim, len(extrinsics))
    extrinsic = extrinsics[claim.payment_index]
    quote = check_remark(claim, cost, extrinsic)
    if isinstance(quote, PaymentRefusal):
        return quote
    transfer = transfer_of(await client.decode_extrinsic(block, extrinsic))
    if transfer is None:
        return malformed(claim, "it is not a batch of one transfer and one remark, in this order")
    arguments = batch_arguments(transfer.destination, transfer.amount_rao, encode_remark(quote))
    if await client.call_hash(block, Call.BATCH_ALL, arguments) != transfer.call_hash:
        return malformed(claim, "its batch holds something else than the transfer and the remark")
    (owner,) = await client.read(block, [(Storage.SUBNET_OWNER, [claim.netuid])])
    events = [event for event in await client.events(block) if event.extrinsic_index == claim.payment_index]
    if has_moved(transfer, events) is None:
        raise ChainError(
            "CHAIN_EVENTS_INCOMPLETE",
            f"The endpoint's events of block {block.number} do not say what became of extrinsic {claim.payment_index}.",
            hint="Asked again by itself; if it stays, use another endpoint.",
        )
    return check_transfer(claim, quote, transfer, str(owner), events)


async def _finalized(client: ChainClient, number: int) -> BlockRef:
    _, found = await client.finalized_range(number, 1)
    if not found:
        raise NetworkError("CHAIN_BLOCK_UNKNOWN", f"The endpoint has not finalized block {number} yet.")
    return found[0]
