"""`chain/payment_lookup.py`: what counts as a payment, on a devnet."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from chain.abi import Call
from chain.payment import Payment, PaymentRefusal, encode_remark
from chain.payment_lookup import look_up_payment
from chain.wallet import address_of_seed
from config.errors import ChainError, NetworkError
from config.evaluation_cost import EvaluationCostSettings
from tests.chain.paying import (
    CONTENT,
    COST,
    FUNDED,
    HOTKEY,
    NETUID,
    OWNER,
    PAYER,
    TAO,
    claim_of,
    pay,
    quote_at,
    remark,
    send,
    transfer,
)

if TYPE_CHECKING:
    from tests.chain.conftest import World


@pytest.fixture(name="market")
async def _market(make_world: Callable[..., Any]) -> World:
    made: World = await make_world(balances=FUNDED)
    return made


async def refused(world: World, claim: Any, cost: EvaluationCostSettings = COST) -> str:
    """The code of a refusal."""
    found = await look_up_payment(world.client, claim, cost)
    assert isinstance(found, PaymentRefusal), found
    assert found.message
    return found.code


async def test_an_honest_payment_counts(market: World) -> None:
    """The exact batch, signed by the miner's coldkey, pays for exactly its submission."""
    pointer = await pay(market)
    found = await look_up_payment(market.client, claim_of(pointer), COST)
    assert found == Payment(*pointer, payer=address_of_seed(PAYER), destination=OWNER, amount_rao=TAO)
    assert await refused(market, claim_of(pointer, content_hash="cd" * 32)) == "EVALUATION_COST_FOREIGN"
    assert await refused(market, claim_of(pointer, hotkey=address_of_seed("//Bob"))) == "EVALUATION_COST_FOREIGN"
    assert await refused(market, claim_of(pointer, netuid=3)) == "EVALUATION_COST_FOREIGN"


async def test_any_account_may_pay(market: World) -> None:
    """A sponsor's coldkey pays as well as the miner's own, and more than the price is enough."""
    pointer = await pay(market, quote_at(1, amount_rao=3 * TAO), "//Rich")
    found = await look_up_payment(market.client, claim_of(pointer), COST)
    assert isinstance(found, Payment)
    assert (found.payer, found.amount_rao) == (address_of_seed("//Rich"), 3 * TAO)


async def test_the_window(market: World) -> None:
    """A payment counts from its own block until `window_blocks` later, and never before itself."""
    market.blocks(5)
    block, index = await pay(market)
    for reveal, good in ((block - 1, False), (block, True), (block + 7200, True), (block + 7201, False)):
        found = await look_up_payment(market.client, claim_of((block, index), reveal_block=reveal), COST)
        assert isinstance(found, Payment) is good
        assert good or found.code == "EVALUATION_COST_OUTSIDE_WINDOW"  # type: ignore[union-attr]


async def test_the_quote_has_to_hold_at_the_payment(market: World) -> None:
    """A quote from the future, or from before its life, is no quote; its own remark says how long it lives."""
    market.blocks(20)
    cost = EvaluationCostSettings(amount_rao=TAO, quote_blocks=8)
    for offset, good in ((-8, False), (-7, True), (1, True), (2, False)):  # from the head; the payment is one later
        pointer = await pay(market, quote_at(market.node.chain.head.number + offset, cost))
        found = await look_up_payment(market.client, claim_of(pointer), cost)
        assert isinstance(found, Payment) is good
        assert good or found.code == "EVALUATION_COST_QUOTE_EXPIRED"  # type: ignore[union-attr]
    for life in (300, 8, 1):  # paid when the settings said so; the node's say something else now
        of_then = EvaluationCostSettings(amount_rao=TAO, quote_blocks=life)
        pointer = await pay(market, quote_at(market.node.chain.head.number, of_then))
        assert isinstance(await look_up_payment(market.client, claim_of(pointer), cost), Payment)


async def test_the_price_is_that_of_the_payment_block(market: World) -> None:
    """An old, cheap issue block buys nothing: what counts is the price in force when the money moved."""
    market.blocks(10)
    head = market.node.chain.head.number
    rises = EvaluationCostSettings(amount_rao=1, changes=((head + 1, TAO),))
    cheap = await pay(market, quote_at(head, rises))
    assert cheap[0] == head + 1
    assert await refused(market, claim_of(cheap), rises) == "EVALUATION_COST_TOO_LOW"
    falls = EvaluationCostSettings(amount_rao=TAO, changes=((head + 3, 1),))
    before, after = await pay(market), await pay(market, quote_at(head, amount_rao=1))
    assert (before[0], after[0]) == (head + 2, head + 3)
    assert isinstance(await look_up_payment(market.client, claim_of(before), falls), Payment)
    assert isinstance(await look_up_payment(market.client, claim_of(after), falls), Payment)


async def test_paid_while_nothing_was_due(market: World) -> None:
    """An empty payment made while submissions were free does not pay for a later one; a full one does."""
    later = EvaluationCostSettings(amount_rao=0, changes=((400, TAO),), quote_blocks=8)
    empty = await pay(market, quote_at(1, later, amount_rao=0))
    full = await pay(market, quote_at(1, later, amount_rao=TAO))
    assert await refused(market, claim_of(empty, reveal_block=500), later) == "EVALUATION_COST_TOO_LOW"
    assert isinstance(await look_up_payment(market.client, claim_of(full, reveal_block=500), later), Payment)


async def test_the_owner_is_looked_up_at_the_payment_block(market: World) -> None:
    """A subnet that changes hands later takes nothing back, and the new owner is nobody before."""
    pointer = await pay(market)
    new_owner = address_of_seed("//New//cold")
    await market.set_item("SubtensorModule.SubnetOwner", [NETUID], new_owner)
    assert isinstance(await look_up_payment(market.client, claim_of(pointer), COST), Payment)
    late = await pay(market)
    assert await refused(market, claim_of(late)) == "EVALUATION_COST_WRONG_DESTINATION"
    early = await pay(market, destination=new_owner)
    assert isinstance(await look_up_payment(market.client, claim_of(early), COST), Payment)


async def test_quote_and_transfer_have_to_agree(market: World) -> None:
    """The remark's destination and amount bind the transfer that stands beside it."""
    note = remark(encode_remark(quote_at(1)))
    elsewhere = await send(market, Call.BATCH_ALL, {"calls": [transfer(TAO, address_of_seed("//Bob")), note]})
    assert await refused(market, claim_of(elsewhere)) == "EVALUATION_COST_WRONG_DESTINATION"
    less = await send(market, Call.BATCH_ALL, {"calls": [transfer(TAO - 1), note]})
    assert await refused(market, claim_of(less)) == "EVALUATION_COST_TOO_LOW"
    quoted_low = await pay(market, amount_rao=TAO - 1)
    assert await refused(market, claim_of(quoted_low)) == "EVALUATION_COST_TOO_LOW"


@pytest.mark.parametrize(
    "shape", ["bare transfer", "bare remark", "reversed", "twice paid", "two remarks", "with a third", "nested"]
)
async def test_only_the_exact_batch_counts(market: World, shape: str) -> None:
    """Exactly one transfer and one remark, in one batch that does all or nothing."""
    move, note = transfer(), remark(encode_remark(quote_at(1)))
    other = remark(encode_remark(quote_at(1, content_hash="cd" * 32)))
    calls: dict[str, list[Any]] = {
        "reversed": [note, move], "twice paid": [move, move, note], "two remarks": [move, note, other],
        "with a third": [move, note, remark(b"x")], "nested": [move, remark(b"head" + encode_remark(quote_at(1)))],
    }
    if shape == "bare transfer":
        pointer = await send(market, Call.TRANSFER, dict(move.arguments))
    elif shape == "bare remark":
        pointer = await send(market, Call.REMARK, dict(note.arguments))
    else:
        pointer = await send(market, Call.BATCH_ALL, {"calls": calls[shape]})
    assert await refused(market, claim_of(pointer)) == "EVALUATION_COST_MALFORMED"


@pytest.mark.parametrize(
    "spell",
    [
        lambda good: good.replace(b'"netuid":2', b'"netuid":2.0'),
        lambda good: good.replace(b'"netuid":2', b'"netuid": 2'),
        lambda good: good.replace(b'"netuid":2', b'"netuid":2,"netuid":2'),
        lambda good: good.replace(b'"netuid":2', b'"netuid":2,"tip":1'),
        lambda good: good.replace(b',"netuid":2', b""),
        lambda good: good.replace(b'"issued_block":1', b'"issued_block":true'),
        lambda good: good.replace(b'"schema_version":1', b'"schema_version":2'),
        lambda good: good[:-1],
        lambda good: good + b"}",
        lambda good: good.replace(CONTENT.encode(), b"\\u0061" + CONTENT.encode()[1:]),
        lambda _: b"",
    ],
)
async def test_only_the_canonical_remark_counts(market: World, spell: Callable[[bytes], bytes]) -> None:
    """A remark is byte for byte the one of its quote."""
    note = remark(spell(encode_remark(quote_at(1))))
    pointer = await send(market, Call.BATCH_ALL, {"calls": [transfer(), note]})
    assert await refused(market, claim_of(pointer)) == "EVALUATION_COST_MALFORMED"


async def test_nothing_there(market: World) -> None:
    """A pointer at an inherent, or beyond the block's extrinsics, is the miner's mistake."""
    block, index = await pay(market)
    assert await refused(market, claim_of((block, 0))) == "EVALUATION_COST_MALFORMED"
    assert await refused(market, claim_of((block, index + 1))) == "EVALUATION_COST_NOT_FOUND"
    assert await refused(market, claim_of((block, 2**32 - 1))) == "EVALUATION_COST_NOT_FOUND"


async def test_money_has_to_move(market: World) -> None:
    """A batch that failed pays nothing, and the owner pays itself nothing."""
    poor = await pay(market, amount_rao=1000 * TAO)
    assert await refused(market, claim_of(poor)) == "EVALUATION_COST_NOT_TRANSFERRED"
    circle = await pay(market, seed="//Owner//cold")
    assert await refused(market, claim_of(circle)) == "EVALUATION_COST_NOT_TRANSFERRED"


async def test_what_cannot_be_looked_up_is_an_error(market: World, make_world: Callable[..., Any]) -> None:
    """Blocks that are not final, state that is gone and endpoints that are away raise; they refuse nobody."""
    lagging: World = await make_world(balances=FUNDED, finality_lag=3)
    lagging.blocks(5)
    pointer = await pay(lagging, quote_at((await lagging.client.finalized_head()).number))
    with pytest.raises(NetworkError) as unknown:
        await look_up_payment(lagging.client, claim_of(pointer), COST)
    assert unknown.value.code == "CHAIN_BLOCK_UNKNOWN"
    lagging.blocks(3)
    assert isinstance(await look_up_payment(lagging.client, claim_of(pointer), COST), Payment)
    away = market.new_client("ws://127.0.0.1:9", request_timeout=5.0)
    with pytest.raises(NetworkError):
        await look_up_payment(away, claim_of(await pay(market)), COST)


async def test_a_silent_endpoint_refuses_nobody(market: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events that do not tell what became of the payment are the endpoint's fault."""
    pointer = await pay(market)

    async def nothing(*_: Any, **__: Any) -> tuple[()]:
        return ()

    monkeypatch.setattr(market.client, "events", nothing)
    with pytest.raises(ChainError) as caught:
        await look_up_payment(market.client, claim_of(pointer), COST)
    assert caught.value.code == "CHAIN_EVENTS_INCOMPLETE"


def test_the_remark_byte_for_byte() -> None:
    """The remark that miners of the deployed network write."""
    assert encode_remark(quote_at(7)) == (
        b'{"domain":"cacheon.chain.eval-cost-payment.v1","payload":{"amount_rao":1000000000,"content_hash":"'
        + CONTENT.encode() + b'","destination":"' + OWNER.encode() + b'","expires_block":307,"hotkey":"'
        + HOTKEY.encode() + b'","issued_block":7,"netuid":2},"schema_version":1}'
    )
