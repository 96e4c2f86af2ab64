"""Weights from crowns to the chain: one publication per epoch, with a receipt, whatever is restarted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import structlog
from sqlalchemy import Connection, func, select

from chain.wallet import address_of_seed
from config.errors import InternalError
from node.services.weight_vector import read_ledger
from node.status import read_status, weights_confirmed
from node.store.engine import Store
from node.store.events import verify_chain
from node.store.journal import StoreJournal, VectorRow, read_records
from node.store.receipt_outbox import SealedReceipt
from node.store.schema import events, vectors
from node.store.waiting_rows import read_waiting
from scoring.dsse import verify
from scoring.receipts import WeightsPredicate, read_predicate, recompute_weights
from tests.node.weights_world import ANN, BOB, SINK, UIDS, VALIDATOR, World, weights_world


@pytest.fixture(name="world")
async def _world(store: Store, tmp_path: Path) -> AsyncIterator[World]:
    async with weights_world(store, tmp_path / "cache") as made:
        yield made


async def test_everything_burns_while_nothing_is_crowned(world: World) -> None:
    """Before the first crown the whole vector goes to the burn hotkey."""
    head = await world.step(3)
    assert head is not None
    assert head.status == "confirmed"
    assert await world.row() == {UIDS[SINK]: 65_535}


@pytest.mark.parametrize("burn", [address_of_seed("//Nobody"), ""], ids=["stranger", "absent owner"])
async def test_nobody_is_paid_instead_of_an_absent_burn_hotkey(world: World, burn: str) -> None:
    """While the burn hotkey is not registered nothing is published, least of all to the validator; crowns are paid."""
    world.configure(burn_hotkey=burn)
    with structlog.testing.capture_logs() as logs:
        assert await world.step(3) is None
    assert [line["code"] for line in logs if line["event"] == "publication.waiting"] == ["BURN_HOTKEY_NOT_REGISTERED"]
    assert await world.extrinsics() == 0
    await world.crown(1, ANN, "activation.silu_and_mul")
    await world.step(3)
    assert await world.row() == {UIDS[ANN]: 65_535}


async def test_a_second_vector_of_an_epoch_names_the_receipt_that_it_replaces(world: World) -> None:
    """Whoever signs again in the epoch of an intent finds the intent's receipt; another epoch replaces nothing."""
    head = await world.step()
    assert head is not None
    (receipt,) = await world.store.read(lambda connection: connection.scalars(select(vectors.c.receipt_digest)).all())
    assert (await world.store.read(read_ledger, head.epoch)).replaces == receipt != ""
    assert (await world.store.read(read_ledger, head.epoch + 1)).replaces == ""


async def test_crowns_are_paid_from_the_next_epoch(world: World) -> None:
    """A crown during an epoch that already had its publication is paid in the next one."""
    await world.step(3)
    await world.crown(1, ANN, "activation.silu_and_mul")
    await world.step(2)
    assert await world.extrinsics() == 1
    await world.step(10)
    assert await world.row() == {UIDS[ANN]: 65_535}
    assert await world.extrinsics() == 2
    assert weights_confirmed(read_status(world.store.layout.root))


@pytest.mark.parametrize(("absent", "paid"), [("validator", VALIDATOR), ("burn", SINK)])
async def test_the_share_of_a_claimant_who_left_goes_where_the_setting_says(
    world: World, absent: str, paid: str
) -> None:
    """`publication.absent` decides between the validator and the burn hotkey; who stayed keeps exactly the same."""
    world.configure(absent=absent)
    await world.crown(1, ANN, "activation.silu_and_mul")
    await world.crown(2, address_of_seed("//Gone"), "attention.decode")
    await world.step(3)
    assert await world.row() == {UIDS[ANN]: 65_535, UIDS[paid]: 65_535}


async def test_a_reason_to_wait_is_kept_for_who_asks_later(world: World) -> None:
    """A reason that needs the operator is an event of the store, once, with its values and its block."""
    await world.ask("dev_setItem", "SubtensorModule", "ValidatorPermit", [2], [False] * 4)
    await world.step(3)
    rows = await world.store.read(lambda connection: connection.execute(
        select(events.c.subject, events.c.body).where(events.c.kind == "publication.waiting")
    ).all())
    assert [row.subject for row in rows] == ["NOT_PERMITTED"]
    assert msgspec.json.decode(rows[0].body)["needed"] == "validator permit"
    assert msgspec.json.decode(rows[0].body)["at_block"] == 10


async def test_what_is_kept_of_a_reason_is_never_of_the_past(world: World) -> None:
    """The block at which it can work moves on with the epochs, another reason replaces it, and none remains at last."""
    await world.ask("dev_setItem", "SubtensorModule", "ValidatorPermit", [2], [False] * 4)
    await world.step(15)
    known = await world.store.read(read_waiting)
    assert known is not None
    assert (known.code, known.at_block) == ("NOT_PERMITTED", 20)
    await world.ask("dev_setItem", "SubtensorModule", "LastUpdate", [2], [14, 0, 0, 0])
    await world.ask("dev_setItem", "SubtensorModule", "WeightsSetRateLimit", [2], 500)
    world.service = world.restarted()
    await world.step(2)
    known = await world.store.read(read_waiting)
    assert known is not None
    assert (known.code, known.needed, known.at_block) == ("RATE_LIMITED", "500 blocks", 514)
    await world.ask("dev_setItem", "SubtensorModule", "WeightsSetRateLimit", [2], 2)
    await world.ask("dev_setItem", "SubtensorModule", "ValidatorPermit", [2], [True] * 4)
    await world.step(1)
    assert await world.store.read(read_waiting) is None


async def test_vector_has_a_receipt_that_recomputes(world: World) -> None:
    """The published vector's signed receipt verifies and gives the same vector from its own inputs."""
    await world.crown(1, ANN, "activation.silu_and_mul")
    await world.crown(2, BOB, "attention.decode")
    await world.step(3)
    (publication,) = read_status(world.store.layout.root).publications
    statement = verify(Path(publication.receipt).read_bytes(), [world.receipts.public_key])
    again = recompute_weights(read_predicate(statement, WeightsPredicate))
    assert again.vector.digest == publication.digest
    assert dict(again.vector.entries) == dict(publication.entries) == {ANN: 500_000, BOB: 500_000}


async def test_restarts_publish_nothing_twice(world: World) -> None:
    """A service made anew after every block leaves one extrinsic per epoch and an unbroken journal."""
    await world.crown(1, ANN, "activation.silu_and_mul")
    for _ in range(35):
        world.service = world.restarted()
        await world.step()
    records = await world.store.read(read_records)
    epochs = [one.epoch for one in records if one.status == "confirmed"]
    assert epochs == sorted(set(epochs))
    assert await world.extrinsics() == len({one.publication_id for one in records}) == len(epochs)
    assert len(epochs) >= 3
    await world.store.read(verify_chain)


async def test_journal_refuses_what_does_not_follow(world: World) -> None:
    """A record for another head is refused, and nothing of it is stored."""
    await world.step(3)
    journal = StoreJournal(world.store)
    head = await journal.head()
    assert head is not None
    with pytest.raises(InternalError) as caught:
        await journal.append(msgspec.structs.replace(head, reason="again"), None)
    assert caught.value.code == "PUBLICATION_JOURNAL_MOVED"
    assert await journal.head() == head


async def test_a_busy_store_does_not_stop_the_loop(world: World) -> None:
    """While another transaction holds the store, whoever waits for the journal leaves the event loop to others."""
    release = threading.Event()
    busy = asyncio.create_task(world.store.write(lambda _: release.wait()))
    waiting = asyncio.create_task(StoreJournal(world.store).head())
    for _ in range(3):
        await asyncio.sleep(0)
    release.set()  # a journal that blocks would never have let the loop come here
    assert await waiting is None
    assert await busy is True


@pytest.mark.parametrize("commit_reveal", [True, False])
async def test_steps_that_only_wait_ask_the_chain_for_next_to_nothing(
    store: Store, tmp_path: Path, commit_reveal: bool
) -> None:
    """What a waiting step reads comes with the head that is followed, or is one read and the check of its block."""
    async with weights_world(store, tmp_path / "cache", commit_reveal=commit_reveal, tempo=500) as world:
        costs = []
        for _ in range(10):
            following = asyncio.create_task(world.client.next_finalized())
            while not following.done():  # until the subscription stands, a block may pass it by
                world.block()
                await asyncio.wait([following], timeout=0.2)
            head = following.result().block
            before = world.client.rpc_calls
            await world.service.step_once(head)
            costs.append(world.client.rpc_calls - before)
        assert max(costs[-4:]) <= 2


async def test_intent_needs_a_decided_vector(world: World) -> None:
    """An intent and its vector are stored together or not at all."""
    await world.step(3)
    journal = StoreJournal(world.store)
    head = await journal.head()
    assert head is not None
    intent = msgspec.structs.replace(head, status="intent", publication_id="other")
    with pytest.raises(InternalError) as caught:
        await journal.append(intent, None)
    assert caught.value.code == "VECTOR_NOT_PROPOSED"
    row = VectorRow("d" * 64, 1, ((ANN, 1_000_000),))
    journal.propose(row, lambda: SealedReceipt("weights.v1", b"{}"))
    with pytest.raises(InternalError):
        await journal.append(msgspec.structs.replace(intent, vector_digest=row.shares_digest), "not the head")

    def count(connection: Connection) -> int | None:
        return connection.scalar(select(func.count()).select_from(vectors))

    assert await world.store.read(count) == 1
