"""`chain/paying.py`: a payment is made once, whatever crashes, lies or hangs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from chain import paying
from chain.devnet.fault_plan import Fault
from chain.paying import SignedPayment, era_period, finish, pay_once, quote_for, spendable_rao
from chain.payment import Payment
from chain.payment_lookup import look_up_payment
from chain.rpc import PoolAnswer
from chain.wallet import address_of_seed, signer_of_seed
from config.errors import CacheonError, ChainError, NetworkError, WalletError
from config.evaluation_cost import EvaluationCostSettings
from tests.chain.paying import CONTENT, COST, FUNDED, HOTKEY, NETUID, OWNER, PAYER, TAO, claim_of

if TYPE_CHECKING:
    from tests.chain.conftest import World

FEES = 1_000_000  # more than the fee of one payment, less than any price here


class Crash(BaseException):
    """The process dies here."""


class Fuse:
    """Burns down by one at every point and dies at the last; 0 never does."""

    def __init__(self, at: int = 0) -> None:
        self.left = at

    def burn(self) -> None:
        """Pass one point."""
        self.left -= 1
        if self.left == 0:
            raise Crash


class Memory:
    """A payment record that survives its process; every access is a point at which that process may die."""

    def __init__(self) -> None:
        self.kept: SignedPayment | None = None
        self.fuse = Fuse()

    def read(self) -> SignedPayment | None:
        """See `PaymentRecord`."""
        self.fuse.burn()
        return self.kept

    def write(self, payment: SignedPayment) -> None:
        """See `PaymentRecord`."""
        self.fuse.burn()
        self.kept = payment
        self.fuse.burn()

    def discard(self) -> None:
        """See `PaymentRecord`."""
        self.kept = None


class Nobody:
    """A signer that may not be asked."""

    ss58_address = address_of_seed(PAYER)
    public_key = signer_of_seed(PAYER).public_key
    crypto_type = 1

    def sign(self, message: bytes) -> bytes:
        """Refuse."""
        raise AssertionError("a second payment was about to be signed")


@pytest.fixture(name="market")
async def _market(make_world: Callable[..., Any]) -> World:
    made: World = await make_world(balances=FUNDED)
    made.client.submit_timeout = 60.0
    return made


@contextlib.asynccontextmanager
async def blocks_coming(world: World, record: Memory) -> AsyncIterator[None]:
    """Make blocks for as long as the body runs, once a payment is signed: no era ends while a machine is slow."""

    async def make() -> None:
        while True:
            await asyncio.sleep(0.05)
            if record.kept is not None or len(world.node.chain.pool):
                world.node.produce_block()

    task = asyncio.create_task(make())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def pay(
    world: World, record: Memory, *, signer: Any = None, cost: EvaluationCostSettings = COST
) -> SignedPayment:
    """Pay as the command does, while blocks come."""
    quote = await quote_for(
        world.client, cost, content_hash=CONTENT, hotkey=HOTKEY, netuid=NETUID,
        block=await world.client.finalized_head(),
    )
    async with blocks_coming(world, record):
        return await pay_once(world.client, signer or signer_of_seed(PAYER), quote, cost, record, poll_seconds=0.02)


async def spent(world: World) -> tuple[int, int]:
    """How many extrinsics the payer has on the chain, and how many whole payments its balance lacks."""
    head = await world.client.finalized_head()
    left = await spendable_rao(world.client, address_of_seed(PAYER), head)
    return await world.extrinsics_of(signer_of_seed(PAYER)), (100 * TAO - left) // TAO


async def test_what_is_paid_counts(market: World) -> None:
    """The pointer that comes back is one that a validator accepts, and the money is with the owner."""
    record = Memory()
    paid = await pay(market, record)
    assert record.kept == paid
    assert paid.block is not None
    assert paid.index is not None
    found = await look_up_payment(market.client, claim_of((paid.block, paid.index)), COST)
    assert isinstance(found, Payment)
    assert (found.payer, found.destination) == (address_of_seed(PAYER), OWNER)
    assert await spent(market) == (1, 1)


async def test_a_finished_payment_is_not_made_again(market: World) -> None:
    """Running the command again returns the payment that is there, without a key."""
    record = Memory()
    paid = await pay(market, record)
    assert await pay(market, record, signer=Nobody()) == paid
    assert await finish(market.client, paid, record) == paid
    assert await spent(market) == (1, 1)


@pytest.mark.crash
async def test_dying_at_any_point_pays_once(make_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after every write of the record, and around the submission: the next run finishes the same payment."""
    real = paying.ChainClient.submit
    survived = False
    for point in range(1, 20):
        world: World = await make_world(balances=FUNDED)
        world.client.submit_timeout = 60.0
        record = Memory()
        record.fuse = Fuse(point)

        async def submit(client: Any, data: bytes, fuse: Fuse = record.fuse) -> Any:
            fuse.burn()
            answer = await real(client, data)
            fuse.burn()
            return answer

        monkeypatch.setattr(paying.ChainClient, "submit", submit)
        try:
            await pay(world, record)
            survived = True
        except Crash:
            pass
        signed, record.fuse.left = record.kept, 0
        paid = await pay(world, record, signer=Nobody() if signed else None)
        assert signed is None or paid.hash == signed.hash, f"died at point {point}"
        assert await spent(world) == (1, 1), f"died at point {point}"
        if survived:
            break
    assert survived
    assert point > 5


@pytest.mark.parametrize("kind", ["drop", "drop_after"])
async def test_a_connection_lost_while_submitting(market: World, kind: Any) -> None:
    """Whether or not the bytes arrived before the line broke, one payment is made, in this run or in the next."""
    record = Memory()
    market.node.faults.inject(Fault(kind=kind, methods=("author_submitExtrinsic",), limit=1))
    with contextlib.suppress(CacheonError):
        await pay(market, record)
    paid = await pay(market, record)
    assert paid.block is not None
    assert await spent(market) == (1, 1)


async def test_a_pool_that_forgets_costs_nothing(market: World) -> None:
    """An endpoint that says yes and forgets: the era ends, nothing was paid, and the next run pays once."""
    record = Memory()
    market.node.faults.inject(Fault(kind="false_success", methods=("author_submitExtrinsic",), limit=1))
    with pytest.raises(ChainError) as caught:
        await pay(market, record)
    assert caught.value.code == "PAYMENT_EXPIRED"
    assert record.kept is None
    assert await spent(market) == (0, 0)
    await pay(market, record)
    assert await spent(market) == (1, 1)


async def test_a_record_that_expired_is_replaced(market: World) -> None:
    """A signed payment that was never submitted and never can be is followed by a new one in the same run."""
    record = Memory()
    record.fuse = Fuse(3)  # after the record is written, before it is submitted
    with pytest.raises(Crash):
        await pay(market, record)
    assert record.kept is not None
    first = record.kept
    market.blocks(first.era_end_block - market.node.chain.head.number + 2)
    paid = await pay(market, record)
    assert paid.hash != first.hash
    assert await spent(market) == (1, 1)


async def test_a_scan_that_missed_the_block_is_not_believed(market: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """When no block seems to hold the payment but the payer's nonce moved on, the blocks are looked through again."""
    record = Memory()
    paid = await pay(market, record)
    market.blocks(paid.era_end_block - market.node.chain.head.number + 2)
    record.kept = None

    async def blind(*_: Any, **__: Any) -> None:
        return None

    monkeypatch.setattr(paying, "wait_for_inclusion", blind)
    again = SignedPayment(**{name: getattr(paid, name) for name in paid.__struct_fields__} | {"block": None})
    assert await finish(market.client, again, record) == paid


async def test_an_endpoint_that_lags_expires_no_payment(market: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the end of its era is not final where the payer's nonce is read, a payment stays on record."""
    record = Memory()
    paid = await pay(market, record)
    open_again = msgspec.structs.replace(paid, block=None, index=None)
    record.kept = open_again

    async def blind(*_: Any, **__: Any) -> None:
        return None

    monkeypatch.setattr(paying, "wait_for_inclusion", blind)
    with pytest.raises(NetworkError) as caught:
        await finish(market.client, open_again, record)
    assert caught.value.code == "PAYMENT_UNKNOWN"
    assert record.kept == open_again


async def test_an_open_fate_is_no_answer(market: World) -> None:
    """Without a final block in time the record stays, and the error says that running again is safe."""
    record = Memory()
    market.client.submit_timeout = 0.2
    quote = await quote_for(
        market.client, COST, content_hash=CONTENT, hotkey=HOTKEY, netuid=NETUID,
        block=await market.client.finalized_head(),
    )
    with pytest.raises(NetworkError) as caught:  # no block comes
        await pay_once(market.client, signer_of_seed(PAYER), quote, COST, record, poll_seconds=0.02)
    assert caught.value.code == "PAYMENT_UNKNOWN"
    market.client.submit_timeout = 60.0
    paid = await pay(market, record, signer=Nobody())
    assert record.kept == paid
    assert await spent(market) == (1, 1)


async def test_a_refusal_of_the_pool_ends_it(market: World) -> None:
    """What the first pool refuses was never anywhere: there is nothing on record and nothing to look for."""
    record = Memory()
    market.node.faults.inject(
        Fault(kind="rpc_error", methods=("author_submitExtrinsic",), limit=1, code=1010, message="Invalid Transaction")
    )
    with pytest.raises(ChainError) as caught:
        await pay(market, record)
    assert caught.value.code == "PAYMENT_REFUSED"
    assert record.kept is None


async def test_a_refusal_that_is_a_lie_does_not_make_it_pay_twice(
    market: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An endpoint that passes the bytes on and says it refused them: the payment is on record, and is found."""
    record, honest = Memory(), market.client.submit

    async def lie(data: bytes) -> PoolAnswer:
        await honest(data)
        return PoolAnswer("refused", "I never saw it")

    monkeypatch.setattr(market.client, "submit", lie)
    paid = await pay(market, record)
    assert record.kept == paid
    assert await pay(market, record) == paid
    assert await spent(market) == (1, 1)


async def test_a_payment_that_fails_on_the_chain(market: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that fails moves nothing but the fee, and the next run may pay."""
    record = Memory()
    monkeypatch.setattr(paying, "require_balance", lambda *_: None)
    with pytest.raises(ChainError) as caught:
        await pay(market, record, cost=EvaluationCostSettings(amount_rao=1000 * TAO))
    assert caught.value.code == "PAYMENT_FAILED"
    assert record.kept is None
    extrinsics, whole = await spent(market)
    assert (extrinsics, whole) == (1, 0)


@pytest.mark.parametrize(
    ("seed", "amount", "code"),
    [
        (PAYER, 100 * TAO, "PAYMENT_BALANCE_LOW"), ("//Poor", TAO, "PAYMENT_BALANCE_LOW"),
        ("//Owner//cold", TAO, "PAYMENT_TO_ITSELF"),
    ],
)
async def test_who_cannot_pay_signs_nothing(market: World, seed: str, amount: int, code: str) -> None:
    """Price and fee have to be there before anything is signed, and the owner cannot pay itself."""
    record = Memory()
    signer = Nobody()
    signer.ss58_address = address_of_seed(seed)
    with pytest.raises(WalletError) as caught:
        await pay(market, record, signer=signer, cost=EvaluationCostSettings(amount_rao=amount))
    assert caught.value.code == code
    assert record.kept is None


async def test_a_subnet_without_owner(market: World) -> None:
    """Nobody can be paid when nobody owns the subnet."""
    await market.set_item("SubtensorModule.SubnetOwner", [NETUID], "5C4hrfjw9DjXZTzV3MwzrrAr9P1MJhSrvWGWqi1eSuyUpnhM")
    with pytest.raises(ChainError) as caught:
        await pay(market, Memory())
    assert caught.value.code == "SUBNET_OWNERLESS"


CHANGING = EvaluationCostSettings(amount_rao=TAO, changes=((1000, 2 * TAO),))


@pytest.mark.parametrize(
    ("block", "period"), [(100, 64), (936, 64), (937, 32), (968, 32), (969, 16), (992, 8), (1000, 64), (1001, 64)]
)
def test_an_era_ends_before_the_price_changes(block: int, period: int) -> None:
    """However close the change is, no block of the era has another price than the one that is paid."""
    assert era_period(CHANGING, block, block) == period
    assert all(CHANGING.price_at(block + step) == CHANGING.price_at(block) for step in range(period))


@pytest.mark.parametrize(("issued", "block"), [(993, 993), (999, 999), (100, 394), (100, 500)])
def test_no_payment_right_before_a_change(issued: int, block: int) -> None:
    """When too few blocks are left of a quote or of its price, the error names the block to wait for."""
    with pytest.raises(ChainError) as caught:
        era_period(CHANGING, issued, block)
    assert caught.value.code == "PAYMENT_PRICE_CHANGES"
    assert str(CHANGING.quoted_until(issued)) in caught.value.message
