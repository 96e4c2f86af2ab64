"""Paying the evaluation cost: once, whatever crashes when.

Invariants
1. A payment is signed once, and its bytes are written down before they are submitted. From then on there is nothing to
   do but to look for these bytes, or to hand in the very same ones again: no crash and no lost connection pays twice.
2. A payment is made from what finalized blocks say; "refused" by a pool that never held the bytes is the only answer
   that ends it without reading the chain, and only before anybody else can have heard of them: while a pool counts the
   payment's nonce as taken, another endpoint's if there is one, the bytes are looked for all the same.
3. A payment's mortal era ends before the price changes, so the price it pays is the one in force at its block.
4. A new payment is signed only when the old one is known to be impossible: its era is over and no finalized block
   within it holds it, or it failed on the chain.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import msgspec

from chain.abi import Call, Storage
from chain.blocks import BlockRef
from chain.client import ChainClient, SignedCall
from chain.codec import EMPTY_ADDRESS
from chain.inclusion import Inclusion, find_inclusion, wait_for_inclusion
from chain.payment import Quote, batch_arguments, encode_remark, make_quote
from chain.signer import Signer
from config.errors import ChainError, NetworkError, WalletError
from config.evaluation_cost import EvaluationCostSettings

FEE_RESERVE_RAO = 1_000_000  # kept back for the fee and for the account to stay alive; fees are about a tenth of it
_LONGEST_ERA = 64
_SHORTEST_ERA = 8  # blocks; a shorter one would often be over before the payment is included


class SignedPayment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A signed payment and what became of it; `block` and `index` are set once it is final."""

    quote: Quote
    payer: str
    extrinsic: str  # hexadecimal
    hash: str
    nonce: int
    signed_at: int  # the finalized block it was signed at; no earlier block can hold it
    era_end_block: int
    block: int | None = None
    index: int | None = None

    @property
    def call(self) -> SignedCall:
        """The signed extrinsic."""
        return SignedCall(bytes.fromhex(self.extrinsic), self.hash, self.nonce, self.era_end_block)


class PaymentRecord(Protocol):
    """Where one submission's payment is written down, durably; methods block for a disk write."""

    def read(self) -> SignedPayment | None:
        """Return the payment on record, or None."""

    def write(self, payment: SignedPayment) -> None:
        """Write it down; on return it is on disk."""

    def discard(self) -> None:
        """Forget a payment that can never be included."""


async def owner_coldkey(client: ChainClient, netuid: int, block: BlockRef) -> str:
    """Return the address that the evaluation cost goes to. Raises `ChainError` (SUBNET_NOT_FOUND, SUBNET_OWNERLESS)."""
    await client.require_subnet(netuid, block)
    (owner,) = await client.read(block, [(Storage.SUBNET_OWNER, [netuid])])
    if owner is None or str(owner) == EMPTY_ADDRESS:
        raise ChainError(
            "SUBNET_OWNERLESS", f"Subnet {netuid} has no owner at block {block.number}: nobody can be paid."
        )
    return str(owner)


async def spendable_rao(client: ChainClient, address: str, block: BlockRef) -> int:
    """Return what `address` can transfer at `block` in rao, fees not yet counted."""
    (account,) = await client.read(block, [(Storage.ACCOUNT, [address])])
    data = account["data"]
    return max(int(data["free"]) - int(data.get("frozen", 0)), 0)


async def quote_for(
    client: ChainClient, cost: EvaluationCostSettings, *, content_hash: str, hotkey: str, netuid: int, block: BlockRef
) -> Quote:
    """Return the quote of a submission at `block`. Raises `ChainError` (SUBNET_NOT_FOUND, SUBNET_OWNERLESS)."""
    return make_quote(
        cost, content_hash=content_hash, hotkey=hotkey, netuid=netuid,
        destination=await owner_coldkey(client, netuid, block), issued_block=block.number,
    )


def era_period(cost: EvaluationCostSettings, issued_block: int, block: int) -> int:
    """Return the longest era for a payment signed at `block` that ends while the quote of `issued_block` holds.

    Raises `ChainError` (PAYMENT_PRICE_CHANGES) when too few blocks are left.
    """
    last = cost.quoted_until(issued_block)
    period = _LONGEST_ERA
    while period >= _SHORTEST_ERA:
        if block + period - 1 <= last:
            return period
        period //= 2
    raise ChainError(
        "PAYMENT_PRICE_CHANGES",
        f"The quote of {cost.price_at(issued_block)} rao holds to block {last}, after it the price is "
        f"{cost.price_at(last + 1)} rao; the chain is at block {block}, and a payment signed now might come too late.",
        hint=f"Run the command again once block {last + 1} is finalized.",
    )


async def pay_once(
    client: ChainClient, signer: Signer, quote: Quote, cost: EvaluationCostSettings, record: PaymentRecord,
    *, poll_seconds: float = 0.5,
) -> SignedPayment:
    """Pay `quote`, or finish the payment that is on record, and return it as it is final.

    Raises `WalletError` (PAYMENT_BALANCE_LOW, PAYMENT_TO_ITSELF), `ChainError` (PAYMENT_PRICE_CHANGES, PAYMENT_REFUSED,
    PAYMENT_FAILED, PAYMENT_EXPIRED) and, when its fate is open, `NetworkError` (PAYMENT_UNKNOWN): run again, nothing is
    paid twice.
    """
    known = await asyncio.to_thread(record.read)
    if known is not None:
        try:
            return await finish(client, known, record, poll_seconds=poll_seconds)
        except ChainError as error:
            if error.code != "PAYMENT_EXPIRED":
                raise
    payment = await _sign(client, signer, quote, cost)
    await asyncio.to_thread(record.write, payment)
    answer = await client.submit(payment.call.data)
    if answer.fate == "refused" and not await _is_known_elsewhere(client, payment):
        await asyncio.to_thread(record.discard)
        raise ChainError("PAYMENT_REFUSED", f"The chain refused the payment: {answer.message}. Nothing was paid.")
    return await finish(client, payment, record, poll_seconds=poll_seconds, submitted=True)


async def finish(
    client: ChainClient, payment: SignedPayment, record: PaymentRecord, *, poll_seconds: float = 0.5,
    submitted: bool = False,
) -> SignedPayment:
    """Return a signed payment once it is final. Needs no key.

    Raises what `pay_once` raises, except for the errors of a payment that is still to be signed.
    """
    if payment.block is not None:
        return payment
    if not submitted:
        # Harmless when it is in the pool or in a block: the answer is ignored, the chain is read instead.
        await client.submit(payment.call.data)
    at = BlockRef(payment.signed_at, "")
    try:
        waiting = wait_for_inclusion(client, payment.call, at, poll_seconds=poll_seconds)
        found = await asyncio.wait_for(waiting, client.submit_timeout) or await _look_again(client, payment)
    except (TimeoutError, NetworkError) as error:
        raise NetworkError(
            "PAYMENT_UNKNOWN",
            f"Payment {payment.hash} is not final yet; it can be included until block {payment.era_end_block}.",
            hint="Run the same command again: it looks for this very payment and never makes a second one.",
        ) from error
    if found is None:
        await asyncio.to_thread(record.discard)
        raise ChainError(
            "PAYMENT_EXPIRED",
            f"Payment {payment.hash} was not included up to block {payment.era_end_block} and never will be: "
            "nothing was paid.",
            hint="Run the command again.",
        )
    outcome = await client.outcome(found.block, found.index)
    if outcome.success is None:
        raise NetworkError(
            "PAYMENT_UNKNOWN",
            f"The endpoint does not say what became of payment {payment.hash} in block {found.block.number}.",
            hint="Run the same command again, with another endpoint if this repeats.",
        )
    if not outcome.success:
        await asyncio.to_thread(record.discard)
        raise ChainError(
            "PAYMENT_FAILED",
            f"The payment in block {found.block.number} failed: {outcome.error}. Nothing but the fee was paid.",
        )
    final = msgspec.structs.replace(payment, block=found.block.number, index=found.index)
    await asyncio.to_thread(record.write, final)
    return final


async def _is_known_elsewhere(client: ChainClient, payment: SignedPayment) -> bool:
    """Say whether a pool that is asked after the refusal counts the nonce of the payment as taken, or cannot say."""
    try:
        await client.try_another()
        return await client.next_nonce(payment.payer) > payment.nonce
    except (NetworkError, ChainError):
        return True


async def _look_again(client: ChainClient, payment: SignedPayment) -> Inclusion | None:
    """Look through the blocks once more if the payer's nonce says that one of them may hold the payment after all.

    Another endpoint is asked, if there is one. Raises `NetworkError` (CHAIN_ENDPOINT_LAGS) when the end of the
    payment's era is not final there.
    """
    await client.try_another()
    head = await client.finalized_head()
    if head.number < payment.era_end_block:
        raise NetworkError(
            "CHAIN_ENDPOINT_LAGS",
            f"The endpoint has finalized block {head.number}, and block {payment.era_end_block} is needed.",
        )
    if await client.account_nonce(payment.payer, head) <= payment.nonce:
        return None
    return await find_inclusion(client, payment.hash, payment.signed_at + 1, payment.era_end_block)


async def _sign(
    client: ChainClient, signer: Signer, quote: Quote, cost: EvaluationCostSettings
) -> SignedPayment:
    at = await client.finalized_head()
    period = era_period(cost, quote.issued_block, at.number)
    require_balance(quote, signer.ss58_address, await spendable_rao(client, signer.ss58_address, at))
    nonce = await client.next_nonce(signer.ss58_address)
    arguments = batch_arguments(quote.destination, quote.amount_rao, encode_remark(quote))
    signed = await client.sign(Call.BATCH_ALL, arguments, signer, nonce=nonce, at=at, period=period)
    return SignedPayment(
        quote=quote, payer=signer.ss58_address, extrinsic=signed.data.hex(), hash=signed.hash, nonce=nonce,
        signed_at=at.number, era_end_block=signed.era_end_block,
    )


def require_balance(quote: Quote, payer: str, spendable: int) -> None:
    """Raise `WalletError` unless `payer` can pay the quote and the fee with `spendable` rao.

    PAYMENT_BALANCE_LOW; PAYMENT_TO_ITSELF for the account that would be paid.
    """
    if payer == quote.destination:
        raise WalletError(
            "PAYMENT_TO_ITSELF", f"{payer} is the account that the evaluation cost goes to; it cannot pay itself.",
            hint="Pay with another wallet: any other account may pay.",
        )
    needed = quote.amount_rao + FEE_RESERVE_RAO
    if spendable < needed:
        raise WalletError(
            "PAYMENT_BALANCE_LOW",
            f"{payer} can spend {spendable} rao, and the payment needs {needed} (the price of {quote.amount_rao} and "
            f"{FEE_RESERVE_RAO} for the fee).",
            hint="Move TAO to this coldkey, or pay with another wallet: any account may pay.",
        )
