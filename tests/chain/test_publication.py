"""Weights land exactly once, or a reason says why not."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from chain.abi import Storage
from chain.client import ChainClient
from chain.publication import PublicationOptions, StepResult, WeightTarget, record_digest, step
from chain.rpc import PoolAnswer
from config.errors import InternalError

OPTIONS = PublicationOptions(netuid=2, profile="devnet", era_blocks=16)


def target(world: Any, epoch: int = 0, mark: str = "a", **ppm: int) -> WeightTarget:
    """A vector over key names; by default two miners share three to one."""
    shares = ppm or {"Ann": 750_000, "Bob": 250_000}
    return WeightTarget(tuple((world.hotkey(name), share) for name, share in shares.items()), mark * 64, epoch)


async def advance(world: Any, desired: WeightTarget | None, client: ChainClient | None = None) -> StepResult:
    """One step of the world's validator."""
    return await step(client or world.client, world.validator, world.journal, desired, OPTIONS)


async def row_of(world: Any, uid: int = 0) -> dict[int, int]:
    """A weights row at the head."""
    (row,) = await world.client.read(await world.client.head(), [(Storage.WEIGHTS, [world.netuid, uid])])
    return {int(target): int(value) for target, value in row}


async def publish_plain(world: Any, desired: WeightTarget) -> StepResult:
    """Publish on a subnet without commit-reveal and confirm."""
    await advance(world, desired)
    world.blocks()
    return await advance(world, desired)


async def test_plain_weights_are_confirmed_by_reading_them_back(world: Any) -> None:
    """Intent, submission, inclusion, and only then confirmation, with the row as intended."""
    first = await advance(world, target(world))
    assert world.journal.statuses == ["intent", "submitted"]
    assert first.waiting is not None
    assert first.waiting.code == "NOT_INCLUDED_YET"
    included = world.blocks()
    done = await advance(world, target(world))
    assert world.journal.statuses == ["intent", "submitted", "confirmed"]
    assert done.head is not None
    assert (done.head.included_block, done.head.confirmed_block) == (included.number, included.number)
    assert await row_of(world) == {1: 65_535, 2: 21_845}
    assert dict(zip(done.head.uids, done.head.values, strict=True)) == await row_of(world)


async def test_records_are_chained_and_carry_the_same_bytes(world: Any) -> None:
    """Each record names the one before it, and one publication never changes its extrinsic."""
    await publish_plain(world, target(world))
    records = await world.journal.records()
    assert records[0].prior_digest == ""
    for earlier, later in itertools.pairwise(records):
        assert later.prior_digest == record_digest(earlier)
    assert len({(record.extrinsic_hex, record.publication_id, record.nonce) for record in records}) == 1


async def test_one_publication_per_epoch(world: Any) -> None:
    """Further vectors of the same epoch change nothing; the next epoch publishes again."""
    await publish_plain(world, target(world))
    for mark in "bcd":
        world.blocks()
        result = await advance(world, target(world, mark=mark))
        assert result.waiting is None
    assert await world.extrinsics_of(world.validator) == 1
    world.blocks_until(20)
    await publish_plain(world, target(world, epoch=1, mark="b", Ann=1_000_000))
    assert await world.extrinsics_of(world.validator) == 2
    assert await row_of(world) == {1: 65_535}


async def test_an_unchanged_vector_is_refreshed_after_the_configured_epochs(world: Any) -> None:
    """A confirmed vector that still stands on the chain is left alone until its refresh is due."""
    options = PublicationOptions(netuid=2, profile="devnet", era_blocks=16, refresh_epochs=2)
    await publish_plain(world, target(world))
    world.blocks_until(20)
    result = await step(world.client, world.validator, world.journal, target(world, epoch=1), options)
    assert (result.waiting, await world.extrinsics_of(world.validator)) == (None, 1)
    world.blocks_until(40)
    await step(world.client, world.validator, world.journal, target(world, epoch=2), options)
    world.blocks()
    assert await world.extrinsics_of(world.validator) == 2


async def test_a_refresh_is_early_when_the_chain_shows_another_row(world: Any) -> None:
    """If the own row was overwritten, the vector is published in the next epoch, due or not."""
    options = PublicationOptions(netuid=2, profile="devnet", era_blocks=16, refresh_epochs=9)
    await publish_plain(world, target(world))
    await world.set_item("SubtensorModule.Weights", [2, 0], [[3, 65_535]])
    world.blocks_until(20)
    await step(world.client, world.validator, world.journal, target(world, epoch=1), options)
    world.blocks()
    assert await row_of(world) == {1: 65_535, 2: 21_845}


async def test_commit_reveal_weights_are_confirmed_after_their_reveal_epoch(make_world: Any) -> None:
    """A finalized commit is not a confirmation; the row after the reveal epoch is."""
    world = await make_world(commit_reveal=True)
    await advance(world, target(world))
    world.blocks()
    pending = await advance(world, target(world))
    assert pending.waiting is not None
    assert (pending.waiting.code, pending.waiting.at_block) == ("REVEAL_PENDING", 20)
    assert await row_of(world) == {}
    world.blocks_until(19)
    assert (await advance(world, None)).waiting is not None
    world.blocks()
    done = await advance(world, None)
    assert done.head is not None
    assert (done.head.status, done.head.epoch) == ("confirmed", 0)
    assert await row_of(world) == {1: 65_535, 2: 21_845}


async def test_a_version_key_raised_in_between_drops_the_commit_and_the_next_epoch_uses_it(make_world: Any) -> None:
    """The runtime says nothing when it drops a stale commit; the read-back does, and the retry carries the new key."""
    world = await make_world(commit_reveal=True)
    await advance(world, target(world))
    world.blocks()
    await world.set_item("SubtensorModule.WeightsVersionKey", [2], 29)
    world.blocks_until(20)
    dropped = await advance(world, None)
    assert dropped.head is not None
    assert dropped.head.status == "dropped"
    assert "version key 0, the subnet wants 29" in dropped.head.reason
    assert await row_of(world) == {}
    await advance(world, target(world, epoch=1))
    world.blocks_until(40)
    await advance(world, None)
    done = await advance(world, None)
    assert done.head is not None
    assert (done.head.status, done.head.version_key, done.head.epoch) == ("confirmed", 29, 1)
    assert await row_of(world) == {1: 65_535, 2: 21_845}


async def test_a_version_key_raised_before_inclusion_is_a_named_refusal(world: Any) -> None:
    """A plain row with a stale key fails on the chain, is dropped with the runtime's word, and is retried."""
    await advance(world, target(world))
    await world.set_item("SubtensorModule.WeightsVersionKey", [2], 7)  # in the block that includes the extrinsic
    result = await advance(world, None)
    assert result.head is not None
    assert (result.head.status, result.head.reason) == ("dropped", "the chain refused it: IncorrectWeightVersionKey")
    assert (await advance(world, target(world))).head == result.head
    world.blocks_until(20)
    assert (await publish_plain(world, target(world, epoch=1))).head.status == "confirmed"


async def test_a_crash_after_the_intent_resubmits_the_same_bytes(world: Any, crash: Any) -> None:
    """Dying between journal and submission costs nothing: the intent's bytes go out, once."""
    client = world.new_client()

    async def die(_: bytes) -> PoolAnswer:
        raise crash

    client.submit = die
    with pytest.raises(crash):
        await advance(world, target(world), client)
    assert world.journal.statuses == ["intent"]
    intent = await world.journal.head()
    world.blocks()
    await advance(world, target(world, mark="b"), world.new_client())
    world.blocks()
    done = await advance(world, None)
    assert done.head is not None
    assert (done.head.status, done.head.extrinsic_hash) == ("confirmed", intent.extrinsic_hash)
    assert await world.extrinsics_of(world.validator) == 1


@pytest.mark.parametrize("blocks_before_restart", [0, 1, 3])
async def test_a_crash_after_submission_finds_the_extrinsic(world: Any, crash: Any, blocks_before_restart: int) -> None:
    """Dying after submission but before the journal knows: found in the pool or in a block, not sent again."""
    world.journal.crash_at = 1
    with pytest.raises(crash):
        await advance(world, target(world))
    assert world.journal.statuses == ["intent"]
    world.blocks(blocks_before_restart)
    client = world.new_client()
    sent: list[bytes] = []
    client.submit = sent.append
    await advance(world, target(world), client)
    world.blocks()
    done = await advance(world, None, client)
    assert done.head is not None
    assert done.head.status == "confirmed"
    assert sent == []
    assert await world.extrinsics_of(world.validator) == 1


async def test_a_connection_lost_at_submission_is_unknown_until_the_chain_tells(world: Any, make_wire: Any) -> None:
    """The request arrives and the answer does not: not a failure, and not a second extrinsic."""
    wire, url = await make_wire(world.node.url)
    client = world.new_client(url)
    await client.open()
    real = client.submit

    async def lose_the_answer(data: bytes) -> PoolAnswer:
        wire.swallow_answers = True
        answering = asyncio.ensure_future(real(data))
        while not len(world.node.chain.pool):  # noqa: ASYNC110 - the pool has no event to wait for
            await asyncio.sleep(0.01)
        wire.cut()
        answer = await answering
        wire.swallow_answers = False
        return answer

    client.submit = lose_the_answer
    lost = await advance(world, target(world), client)
    assert lost.waiting is not None
    assert lost.waiting.code == "EXTRINSIC_UNKNOWN"
    assert world.journal.statuses == ["intent"]
    found = await advance(world, target(world), client)
    assert found.waiting is not None
    assert found.waiting.code == "NOT_INCLUDED_YET"
    world.blocks()
    assert (await advance(world, None, client)).head.status == "confirmed"
    assert await world.extrinsics_of(world.validator) == 1


async def test_only_a_passed_era_allows_a_second_record_in_one_epoch(make_world: Any) -> None:
    """Bytes that never arrive stay the only ones until their era is final; then the same epoch tries again."""
    world = await make_world(tempo=360)
    client = world.new_client()

    async def lose(_: bytes) -> PoolAnswer:
        return PoolAnswer("unknown", "lost")

    client.submit = lose
    first = (await advance(world, target(world), client)).head
    assert first is not None
    world.blocks_until(first.era_end_block)
    assert (await advance(world, target(world), client)).head.extrinsic_hash == first.extrinsic_hash
    world.blocks()
    expired = await advance(world, target(world), client)
    assert expired.head is not None
    assert expired.head.status == "expired"
    assert await world.extrinsics_of(world.validator) == 0
    done = await publish_plain(world, target(world))
    assert done.head is not None
    assert (done.head.status, done.head.epoch, done.head.nonce) == ("confirmed", 0, first.nonce)
    assert done.head.publication_id != first.publication_id


async def test_a_nonce_used_elsewhere_expires_the_intent(world: Any, crash: Any) -> None:
    """If the hotkey signed something else meanwhile, the journalled bytes are dead and the epoch starts over."""
    client = world.new_client()

    async def die(_: bytes) -> PoolAnswer:
        raise crash

    client.submit = die
    with pytest.raises(crash):
        await advance(world, target(world), client)
    other = PublicationOptions(netuid=2, profile="devnet", era_blocks=32)
    elsewhere = type(world.journal)()
    await step(world.client, world.validator, elsewhere, target(world, Cid=1_000_000), other)
    world.blocks()
    result = await advance(world, target(world))
    assert result.head is not None
    assert result.head.status == "expired"
    assert "nonce 0" in result.head.reason


async def test_inclusion_in_the_next_epoch_counts_for_that_epoch(make_world: Any) -> None:
    """An extrinsic included after the epoch changed is that epoch's publication: there is no second one."""
    world = await make_world()
    world.blocks_until(19)
    await advance(world, target(world))
    world.blocks()
    done = await advance(world, None)
    assert done.head is not None
    assert (done.head.status, done.head.epoch) == ("confirmed", 1)
    world.blocks(3)
    assert (await advance(world, target(world, epoch=1, mark="b"))).head == done.head
    assert await world.extrinsics_of(world.validator) == 1


async def test_a_vanished_miner_is_not_paid_and_nor_is_the_heir_of_its_uid(make_world: Any) -> None:
    """The share of a deregistered hotkey goes to the validator, not to whoever got its UID."""
    world = await make_world(max_allowed_uids=4, immunity_period=5)
    world.blocks(9)
    await world.set_item("SubtensorModule.Emission", [2], [9, 0, 9, 9])  # Ann has to make room
    heir = await world.rpc("dev_register", 2, world.hotkey("Eve"), world.hotkey("Eve"))
    assert heir["uid"] == 1
    done = await publish_plain(world, target(world))
    assert done.head is not None
    assert done.head.status == "confirmed"
    assert await row_of(world) == {0: 65_535, 2: 21_845}


async def test_a_uid_that_changed_hands_after_signing_is_named(make_world: Any) -> None:
    """The confirmed record says which UID moved, and the next epoch publishes a row without it."""
    world = await make_world(max_allowed_uids=4, immunity_period=5)
    world.blocks(9)
    await advance(world, target(world))
    world.blocks()
    await world.set_item("SubtensorModule.Emission", [2], [9, 0, 9, 9])
    await world.rpc("dev_register", 2, world.hotkey("Eve"), world.hotkey("Eve"))
    done = await advance(world, None)
    assert done.head is not None
    assert (done.head.status, done.head.reason) == ("confirmed", "uids [1] changed hands after signing")
    world.blocks_until(20)
    options = PublicationOptions(netuid=2, profile="devnet", era_blocks=16, refresh_epochs=9)
    await step(world.client, world.validator, world.journal, target(world, epoch=1), options)
    world.blocks()
    assert await row_of(world) == {0: 65_535, 2: 21_845}


async def test_a_validator_without_permit_waits_with_the_block(world: Any) -> None:
    """No permit: nothing is signed, and the result names the next epoch's block; with the permit it goes out."""
    await world.rpc("dev_setPermit", 2, world.hotkey("Validator"), False)
    result = await advance(world, target(world))
    assert result.waiting is not None
    assert (result.waiting.code, result.waiting.at_block) == ("NOT_PERMITTED", 20)
    assert await world.journal.records() == ()
    await world.rpc("dev_setPermit", 2, world.hotkey("Validator"), True)
    assert (await publish_plain(world, target(world))).head.status == "confirmed"


async def test_a_permit_lost_before_the_reveal_drops_the_commit(make_world: Any) -> None:
    """The silent drop of an unpermitted reveal shows in the read-back."""
    world = await make_world(commit_reveal=True)
    await advance(world, target(world))
    world.blocks()
    await world.rpc("dev_setPermit", 2, world.hotkey("Validator"), False)
    world.blocks_until(20)
    dropped = await advance(world, None)
    assert dropped.head is not None
    assert dropped.head.status == "dropped"
    assert "dropped the commit" in dropped.head.reason


async def test_the_rate_limit_waits_for_its_block(make_world: Any) -> None:
    """Too early is a result that names the block; at that block the publication goes through."""
    world = await make_world(tempo=5, weights_rate_limit=12)
    first = await publish_plain(world, target(world))
    assert first.head is not None
    world.blocks_until(6)
    early = await advance(world, target(world, epoch=1))
    assert early.waiting is not None
    ready = first.head.included_block + 12
    assert (early.waiting.code, early.waiting.at_block) == ("RATE_LIMITED", ready)
    world.blocks_until(ready - 1)
    assert (await publish_plain(world, target(world, epoch=2))).head.status == "confirmed"


async def test_a_vector_of_another_epoch_waits(world: Any) -> None:
    """A vector computed before the epoch changed is not published under the new one."""
    world.blocks_until(20)
    stale = await advance(world, target(world, epoch=0))
    assert stale.waiting is not None
    assert (stale.waiting.code, stale.waiting.current, stale.waiting.needed) == ("TARGET_EPOCH_STALE", "0", "1")
    assert await world.journal.records() == ()


async def test_an_unregistered_validator_waits(world: Any) -> None:
    """A hotkey without a UID has no row to set."""
    result = await step(world.client, world.signer("Nobody"), world.journal, target(world), OPTIONS)
    assert result.waiting is not None
    assert result.waiting.code == "NOT_REGISTERED"


async def test_a_validator_deregistered_meanwhile_is_dropped(make_world: Any) -> None:
    """A publication of a hotkey that lost its UID ends with that reason."""
    world = await make_world(commit_reveal=True)
    await advance(world, target(world))
    world.blocks()
    await advance(world, None)
    await world.set_item("SubtensorModule.Uids", [2, world.hotkey("Validator")], None)
    world.blocks_until(20)
    result = await advance(world, None)
    assert result.head is not None
    assert result.head.status == "dropped"
    assert "no longer registered" in result.head.reason


async def test_a_refused_submission_says_so_and_stays_open(world: Any) -> None:
    """The pool's refusal is a reason to wait, with its words; the intent remains the only one."""
    client = world.new_client()

    async def refuse(_: bytes) -> PoolAnswer:
        return PoolAnswer("refused", "Priority is too low (pool code 1014)")

    client.submit = refuse
    result = await advance(world, target(world), client)
    assert result.waiting is not None
    assert result.waiting.code == "EXTRINSIC_REFUSED"
    assert "1014" in result.waiting.message
    assert world.journal.statuses == ["intent"]


async def test_two_writers_cannot_both_sign(world: Any) -> None:
    """The loser of the compare-and-swap submits nothing."""
    journal = world.journal
    rival = type(journal)()
    await step(world.client, world.validator, rival, target(world, mark="b"), OPTIONS)
    real_head = journal.head

    async def head_before_the_rival() -> Any:
        found = await real_head()
        journal._records = list(await rival.records())
        return found

    journal.head = head_before_the_rival
    before = await world.client.next_nonce(world.validator.ss58_address)
    with pytest.raises(InternalError) as caught:
        await advance(world, target(world))
    assert caught.value.code == "PUBLICATION_JOURNAL_MOVED"
    assert await world.client.next_nonce(world.validator.ss58_address) == before


async def test_finality_not_the_head_decides(make_world: Any) -> None:
    """Included in the head but not final is not included yet."""
    world = await make_world(finality_lag=2)
    world.blocks(3)
    await advance(world, target(world))
    world.blocks(2)
    waiting = await advance(world, None)
    assert waiting.waiting is not None
    assert waiting.waiting.code == "NOT_INCLUDED_YET"
    world.blocks(1)
    assert (await advance(world, None)).head.status == "confirmed"


async def test_nothing_wanted_does_nothing(world: Any) -> None:
    """Without a vector and without an open record a step only looks."""
    result = await advance(world, None)
    assert (result.head, result.waiting) == (None, None)
