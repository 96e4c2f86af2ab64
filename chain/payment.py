"""The evaluation cost as it stands on the chain: quote, remark, batch, and what makes a payment count.

A payment is one extrinsic, signed by any account: `Utility.batch_all` of exactly one `Balances.transfer_keep_alive` to
the subnet owner's coldkey and one `System.remark_with_event` that says what is paid for. A submission points at it by
block and extrinsic index.

Invariants
1. There is exactly one remark per quote, in canonical JSON of at most 4096 bytes; a payment's call is compared with the
   one that its quote demands by the runtime's own hash of it, so nothing else can hide in the batch.
2. The order of checks is fixed: first what needs the block's body only, then what needs its state.
3. Every refusal is the payer's; what could not be looked up is an error, raised elsewhere, and refuses nobody.
4. Everything here is pure. Amounts are rao.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from chain.abi import Call, Event
from chain.codec import NestedCall
from chain.events import ChainEvent
from config.canonical import CanonicalJsonError, canonical_json, read_json
from config.errors import ConfigurationError
from config.evaluation_cost import EvaluationCostSettings
from config.limits import CHAIN

DOMAIN = "cacheon.chain.eval-cost-payment.v1"
UNPAID = "EVALUATION_COST_UNPAID"  # code of a submission without payment or credit
USED = "EVALUATION_COST_USED"  # code of a payment that already admitted another submission
_SCHEMA_VERSION = 1
_OPENING = f'{{"domain":"{DOMAIN}","payload":{{'.encode()
_CLOSING = f'}},"schema_version":{_SCHEMA_VERSION}}}'.encode()


class Quote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one submission costs a miner, and until when. `destination` is an SS58 address."""

    amount_rao: int
    content_hash: str
    destination: str
    expires_block: int
    hotkey: str
    issued_block: int
    netuid: int


class Claim(msgspec.Struct, frozen=True):
    """A submission and the extrinsic it says it was paid by."""

    content_hash: str
    hotkey: str
    netuid: int
    reveal_block: int
    payment_block: int
    payment_index: int


class Transfer(msgspec.Struct, frozen=True):
    """What a batch moves: addresses, rao, and the runtime's hash of the whole batch call."""

    payer: str
    destination: str
    amount_rao: int
    call_hash: str


class Payment(msgspec.Struct, frozen=True):
    """A payment that counts."""

    block: int
    index: int
    payer: str
    destination: str
    amount_rao: int


class PaymentRefusal(msgspec.Struct, frozen=True):
    """Why a payment does not count: a stable code and one sentence."""

    code: str
    message: str


def make_quote(
    cost: EvaluationCostSettings, *, content_hash: str, hotkey: str, netuid: int, destination: str, issued_block: int
) -> Quote:
    """Return the quote of a submission at `issued_block`; what it says holds until `cost.quoted_until` that block."""
    return Quote(
        amount_rao=cost.price_at(issued_block), content_hash=content_hash, destination=destination,
        expires_block=issued_block + cost.quote_blocks, hotkey=hotkey, issued_block=issued_block, netuid=netuid,
    )


def encode_remark(quote: Quote) -> bytes:
    """Return the one remark of `quote`. Raises `ConfigurationError` (PAYMENT_REMARK_TOO_LARGE)."""
    document = {"domain": DOMAIN, "payload": msgspec.structs.asdict(quote), "schema_version": _SCHEMA_VERSION}
    data = canonical_json(document)
    if len(data) > CHAIN.remark_bytes:
        raise ConfigurationError(
            "PAYMENT_REMARK_TOO_LARGE", f"The remark would have {len(data)} of {CHAIN.remark_bytes} bytes."
        )
    return data


def decode_remark(data: bytes) -> Quote | None:
    """Return the quote that `data` spells in its canonical form, else None; never raises."""
    if len(data) > CHAIN.remark_bytes:
        return None
    try:
        document = read_json(data, require_canonical=True)
        if not isinstance(document, dict) or document.keys() != {"domain", "payload", "schema_version"}:
            return None
        quote = msgspec.convert(document["payload"], Quote, strict=True)
    except (CanonicalJsonError, msgspec.ValidationError):
        return None
    return quote if encode_remark(quote) == data else None


def remark_in(extrinsic: bytes) -> bytes | None:
    """Return the one remark of this domain among the bytes of an extrinsic, or None when there is not exactly one."""
    start = extrinsic.find(_OPENING)
    if start < 0 or extrinsic.find(_OPENING, start + 1) >= 0:
        return None
    end = extrinsic.find(_CLOSING, start)
    return extrinsic[start : end + len(_CLOSING)] if end >= 0 else None


def batch_arguments(destination: str, amount_rao: int, remark: bytes) -> dict[str, object]:
    """Return the arguments of the `Utility.batch_all` that pays."""
    transfer = NestedCall(Call.TRANSFER, {"dest": destination, "value": amount_rao})
    return {"calls": [transfer, NestedCall(Call.REMARK, {"remark": remark})]}


def transfer_of(decoded: Any) -> Transfer | None:
    """Return what a decoded extrinsic moves if it is shaped like a payment, else None."""
    payer, call = decoded.get("address"), decoded.get("call")
    items = _arguments(call, Call.BATCH_ALL)
    if not isinstance(payer, str) or items is None or not isinstance(items["calls"], list) or len(items["calls"]) != 2:
        return None
    transfer, remark = _arguments(items["calls"][0], Call.TRANSFER), _arguments(items["calls"][1], Call.REMARK)
    if transfer is None or remark is None or not isinstance(transfer["dest"], str):
        return None
    return Transfer(payer, transfer["dest"], int(transfer["value"]), str(call["call_hash"]))


def place_problem(claim: Claim, cost: EvaluationCostSettings) -> PaymentRefusal | None:
    """Return why a payment at the claimed place cannot count, whatever is there."""
    age = claim.reveal_block - claim.payment_block
    if 0 <= age <= cost.window_blocks:
        return None
    when = f"{age} blocks before" if age > 0 else f"{-age} blocks after"
    return PaymentRefusal(
        "EVALUATION_COST_OUTSIDE_WINDOW",
        f"block {claim.payment_block} is {when} the reveal in block {claim.reveal_block}; a payment counts in the "
        f"{cost.window_blocks} blocks up to the reveal",
    )


def check_remark(claim: Claim, cost: EvaluationCostSettings, extrinsic: bytes) -> Quote | PaymentRefusal:
    """Return the quote that an extrinsic carries, or why it pays for something else or too little."""
    remark = remark_in(extrinsic)
    quote = None if remark is None else decode_remark(remark)
    if quote is None:
        return malformed(claim, "it does not carry exactly one remark of an evaluation cost in its canonical form")
    for name, paid, asked in (
        ("content", quote.content_hash, claim.content_hash),
        ("hotkey", quote.hotkey, claim.hotkey),
        ("netuid", quote.netuid, claim.netuid),
    ):
        if paid != asked:
            return PaymentRefusal(
                "EVALUATION_COST_FOREIGN", f"{_place(claim)} pays for {name} {paid}, this submission has {asked}"
            )
    # How long a quote holds is not compared with our settings: the price is that of the payment's block anyway, and who
    # paid while `quote_blocks` was another number would have paid for nothing.
    if not quote.issued_block <= claim.payment_block <= quote.expires_block:
        return PaymentRefusal(
            "EVALUATION_COST_QUOTE_EXPIRED",
            f"{_place(claim)} pays a quote that held from block {quote.issued_block} to block {quote.expires_block}",
        )
    due = cost.required_for(claim.payment_block, claim.reveal_block)
    return quote if quote.amount_rao >= due else _too_low(claim, quote.amount_rao, due)


def check_transfer(
    claim: Claim, quote: Quote, transfer: Transfer, owner: str, events: Sequence[ChainEvent]
) -> Payment | PaymentRefusal:
    """Return the payment, or why no money of that quote reached `owner`, the owner's coldkey at the payment block.

    `events` are those of the payment's own extrinsic; they have to be whole (see `has_moved`).
    """
    if not transfer.destination == quote.destination == owner:
        return PaymentRefusal(
            "EVALUATION_COST_WRONG_DESTINATION",
            f"{_place(claim)} pays {transfer.destination} on a quote for {quote.destination}; the owner of subnet "
            f"{claim.netuid} was {owner}",
        )
    if transfer.amount_rao < quote.amount_rao:
        return _too_low(claim, transfer.amount_rao, quote.amount_rao)
    if transfer.payer == owner or not has_moved(transfer, events):
        return PaymentRefusal("EVALUATION_COST_NOT_TRANSFERRED", f"{_place(claim)} moved no money to {owner}")
    return Payment(claim.payment_block, claim.payment_index, transfer.payer, owner, transfer.amount_rao)


def has_moved(transfer: Transfer, events: Sequence[ChainEvent]) -> bool | None:
    """Say whether an extrinsic's `events` tell that it made `transfer`; None when they do not tell one or the other.

    A transfer of an account to itself has no event.
    """
    if any(event.is_a(Event.EXTRINSIC_FAILED) for event in events):
        return False
    moved = {"from": transfer.payer, "to": transfer.destination, "amount": transfer.amount_rao}
    told = transfer.payer == transfer.destination or any(
        event.is_a(Event.TRANSFERRED) and {name: event.attributes.get(name) for name in moved} == moved
        for event in events
    )
    return True if told and any(event.is_a(Event.EXTRINSIC_SUCCESS) for event in events) else None


def malformed(claim: Claim, why: str) -> PaymentRefusal:
    """Return the refusal of an extrinsic that is no payment."""
    return PaymentRefusal("EVALUATION_COST_MALFORMED", f"{_place(claim)} is no payment: {why}")


def absent(claim: Claim, count: int) -> PaymentRefusal:
    """Return the refusal of a pointer beyond the `count` extrinsics of its block."""
    return PaymentRefusal(
        "EVALUATION_COST_NOT_FOUND", f"block {claim.payment_block} has {count} extrinsics, none {claim.payment_index}"
    )


def _too_low(claim: Claim, paid: int, due: int) -> PaymentRefusal:
    return PaymentRefusal("EVALUATION_COST_TOO_LOW", f"{_place(claim)} pays {paid} rao, {due} rao were due")


def _place(claim: Claim) -> str:
    return f"extrinsic {claim.payment_index} of block {claim.payment_block}"


def _arguments(call: Any, expected: Call) -> dict[str, Any] | None:
    if not isinstance(call, dict) or f"{call.get('call_module')}.{call.get('call_function')}" != expected.value:
        return None
    return {argument["name"]: argument["value"] for argument in call["call_args"]}
