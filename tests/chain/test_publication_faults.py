"""Weights under what networks, endpoints, owners and other programs do: each report of the field is one test."""

from __future__ import annotations

from typing import Any

import pytest

from chain.abi import Storage
from chain.devnet.fault_plan import Fault
from chain.publication import PublicationOptions, step
from chain.rpc import PoolAnswer
from config.errors import ChainError, InternalError
from tests.chain.test_publication import OPTIONS, advance, publish_plain, row_of, target

SUBMIT = ("author_submitExtrinsic",)


async def lost(world: Any) -> Any:
    """A client whose submissions vanish without a trace."""
    client = world.new_client()

    async def lose(_: bytes) -> PoolAnswer:
        return PoolAnswer("unknown", "lost")

    client.submit = lose
    return client


async def settled(world: Any, blocks: int = 40) -> Any:
    """Make blocks, one settling step after each, until nothing is open; return the last record."""
    for _ in range(blocks):
        world.blocks()
        result = await advance(world, None)
        if result.head is not None and not result.head.is_open:
            return result.head
    pytest.fail(f"nothing settled within {blocks} blocks")


async def test_an_endpoint_that_reports_success_and_does_nothing(world: Any) -> None:
    """A hash for an answer proves nothing: the same bytes go out again until a block has them, once."""
    world.node.faults.inject(Fault(kind="false_success", methods=SUBMIT, limit=2))
    for _ in range(3):
        await advance(world, target(world))
        world.blocks()
    record = await settled(world)
    assert record.status == "confirmed"
    assert await world.extrinsics_of(world.validator) == 1


async def test_an_answer_lost_after_the_work_is_unknown_not_failed(world: Any) -> None:
    """The endpoint takes the extrinsic and drops the line: it is found in the pool or a block, not signed again."""
    world.node.faults.inject(Fault(kind="drop_after", methods=SUBMIT, limit=1))
    first = await advance(world, target(world))
    assert first.waiting is not None
    assert first.waiting.code in ("EXTRINSIC_UNKNOWN", "NOT_INCLUDED_YET")
    record = await settled(world)
    assert record.status == "confirmed"
    assert await world.extrinsics_of(world.validator) == 1


async def test_no_subscription_decides_anything(world: Any) -> None:
    """B69: with every subscription silent from the start, publication goes on as always."""
    world.node.faults.inject(Fault(kind="lose_subscription", methods=("author_submitAndWatchExtrinsic",)))
    assert (await publish_plain(world, target(world))).head.status == "confirmed"
    assert [count.offered for count in world.node.faults.counts()] == [0]


async def test_a_submission_that_hangs_ends_at_its_deadline_and_is_reconciled(world: Any) -> None:
    """B69: an endpoint that never answers costs one deadline; the chain then tells what became of the extrinsic."""
    client = world.new_client(request_timeout=2.0)
    await client.open()
    await client.finalized_head()
    fault = world.node.faults.inject(Fault(kind="half_open", methods=SUBMIT, limit=1))
    result = await advance(world, target(world), client)
    assert result.waiting is not None
    assert result.waiting.code == "EXTRINSIC_UNKNOWN"
    world.node.faults.clear(fault)
    record = await settled(world)
    assert record.status == "confirmed"
    assert await world.extrinsics_of(world.validator) == 1


async def test_a_block_that_a_fork_retracts_includes_nothing(make_world: Any) -> None:
    """Included in a branch that loses is not included; the winning branch includes the same bytes, once."""
    world = await make_world(finality_lag=3)
    world.blocks(4)
    await advance(world, target(world))
    world.blocks()
    assert (await advance(world, None)).head.included_block is None
    world.node.chain.fork(1, 2)
    record = await settled(world)
    assert record.status == "confirmed"
    assert await world.extrinsics_of(world.validator) == 1
    assert await row_of(world) == {1: 65_535, 2: 21_845}


async def test_a_runtime_upgrade_before_inclusion_is_a_typed_retry_at_once(make_world: Any) -> None:
    """Bytes signed for the old runtime can never be included: proof enough to sign anew in the same epoch."""
    world = await make_world(tempo=360)
    first = (await advance(world, target(world), await lost(world))).head
    await world.rpc("dev_upgradeRuntime", first.spec_version + 1)
    world.blocks(2)
    expired = await advance(world, None)
    assert expired.head is not None
    assert expired.head.status == "expired"
    assert f"signed for runtime {first.spec_version}" in expired.head.reason
    done = await publish_plain(world, target(world))
    assert done.head is not None
    assert (done.head.status, done.head.epoch, done.head.nonce) == ("confirmed", 0, first.nonce)
    assert await world.extrinsics_of(world.validator) == 1


@pytest.mark.parametrize(("before", "error"), [(False, "CommitRevealEnabled"), (True, "CommitRevealDisabled")])
async def test_commit_reveal_switched_between_signing_and_inclusion(make_world: Any, before: bool, error: str) -> None:
    """The chain refuses by name, the epoch is over, and the next one uses the convention that holds then."""
    world = await make_world(commit_reveal=before)
    await advance(world, target(world), await lost(world))
    await world.set_item("SubtensorModule.CommitRevealWeightsEnabled", [2], not before)
    record = await settled(world)
    assert (record.status, record.reason) == ("dropped", f"the chain refused it: {error}")
    world.blocks_until(20)
    await advance(world, target(world, epoch=1))
    assert (await world.journal.head()).commit_reveal is not before
    assert (await settled(world)).status == "confirmed"
    assert await row_of(world) == {1: 65_535, 2: 21_845}


async def test_another_commit_reveal_version_is_refused_by_name_and_then_used(make_world: Any) -> None:
    """A commit of the old version fails on the chain; the next epoch carries the new one."""
    world = await make_world(commit_reveal=True)
    await advance(world, target(world), await lost(world))
    await world.set_item("SubtensorModule.CommitRevealWeightsVersion", [], 5)
    record = await settled(world)
    assert (record.status, record.reason) == ("dropped", "the chain refused it: IncorrectCommitRevealVersion")
    world.blocks_until(20)
    await advance(world, target(world, epoch=1))
    assert (await settled(world)).status == "confirmed"


async def test_a_version_key_that_the_subnet_raised_is_used_before_anything_is_signed(world: Any) -> None:
    """B46: the live key is read with everything else; a key below the subnet's is never signed."""
    await world.set_item("SubtensorModule.WeightsVersionKey", [2], 29)
    done = await publish_plain(world, target(world))
    assert done.head is not None
    assert (done.head.status, done.head.version_key) == ("confirmed", 29)


async def test_too_early_is_a_reason_with_its_block_and_costs_no_extrinsic(make_world: Any) -> None:
    """B39: `SettingWeightsTooFast` never happens; the step waits, and at the named block it works."""
    world = await make_world(tempo=6, weights_rate_limit=15)
    first = await publish_plain(world, target(world))
    ready = first.head.included_block + 15
    world.blocks_until(6)
    while world.node.chain.head.number < ready - 1:
        head = await world.client.finalized_head()
        (epoch,) = await world.client.read(head, [(Storage.EPOCH_INDEX, [2])])
        result = await advance(world, target(world, epoch=epoch, mark="b"))
        assert result.waiting is not None
        assert (result.waiting.code, result.waiting.at_block) == ("RATE_LIMITED", ready)
        world.blocks()
    (epoch,) = await world.client.read(await world.client.finalized_head(), [(Storage.EPOCH_INDEX, [2])])
    await advance(world, target(world, epoch=epoch, mark="b"))
    record = await settled(world)
    assert (record.status, record.included_block) == ("confirmed", ready)
    assert await world.extrinsics_of(world.validator) == 2


async def test_the_schedule_is_the_journals_whenever_last_update_moves(make_world: Any) -> None:
    """B40: a runtime that moves `LastUpdate` at the reveal instead of the commit changes nothing."""
    world = await make_world(commit_reveal=True)
    await advance(world, target(world))
    world.blocks()
    await world.set_item("SubtensorModule.LastUpdate", [2], [0, 0, 0, 0])  # not at the commit ...
    world.blocks_until(20)
    await world.set_item("SubtensorModule.LastUpdate", [2], [20, 0, 0, 0])  # ... but at the reveal
    done = await advance(world, None)
    assert done.head is not None
    assert (done.head.status, done.head.epoch) == ("confirmed", 0)


async def test_one_value_that_is_no_number_stops_publication(world: Any) -> None:
    """B42: NaN in the shares is a defect with a code, and nothing is signed."""
    with pytest.raises(InternalError) as caught:
        await advance(world, target(world, Ann=float("nan"), Bob=1_000_000))
    assert caught.value.code == "WEIGHT_VECTOR_INVALID"
    assert await world.journal.records() == ()


async def test_an_outdated_transaction_is_replaced_without_a_restart(make_world: Any) -> None:
    """B66: when the era is over without the extrinsic, the same process signs with a fresh era and nonce."""
    world = await make_world(tempo=360)
    first = (await advance(world, target(world), await lost(world))).head
    world.blocks_until(first.era_end_block + 1)
    assert (await advance(world, None)).head.status == "expired"
    done = await publish_plain(world, target(world))
    assert done.head is not None
    assert done.head.status == "confirmed"
    assert done.head.era_end_block > first.era_end_block


async def test_a_uid_recycled_between_scoring_and_publishing_pays_nobody_else(make_world: Any) -> None:
    """B41: the heir of a UID gets nothing; where the missing share goes is the target's to say."""
    world = await make_world(max_allowed_uids=4, immunity_period=5)
    world.blocks(9)
    await world.set_item("SubtensorModule.Emission", [2], [9, 0, 9, 9])
    assert (await world.rpc("dev_register", 2, world.hotkey("Eve"), world.hotkey("Eve")))["uid"] == 1
    done = await publish_plain(world, target(world))
    assert world.hotkey("Eve") not in done.head.hotkeys
    assert await row_of(world) == {0: 65_535, 2: 21_845}


async def test_a_uid_about_to_change_hands_is_not_signed(make_world: Any) -> None:
    """Recycled in the newest block but not final yet: the step waits until the change is final."""
    world = await make_world(max_allowed_uids=4, immunity_period=5, finality_lag=2)
    world.blocks(11)
    await world.set_item("SubtensorModule.Emission", [2], [9, 0, 9, 9])
    await world.rpc("dev_register", 2, world.hotkey("Eve"), world.hotkey("Eve"))
    result = await advance(world, target(world))
    assert result.waiting is not None
    assert result.waiting.code == "UID_REASSIGNED"
    assert await world.journal.records() == ()
    world.blocks(3)
    await advance(world, target(world))
    assert (await settled(world)).status == "confirmed"
    assert await row_of(world) == {0: 65_535, 2: 21_845}


async def test_bytes_that_name_a_recycled_uid_are_not_submitted_again(make_world: Any) -> None:
    """A signed row that never arrived is left to expire once one of its UIDs is a stranger's."""
    world = await make_world(tempo=360, max_allowed_uids=4, immunity_period=5)
    world.blocks(9)
    first = (await advance(world, target(world), await lost(world))).head
    await world.set_item("SubtensorModule.Emission", [2], [9, 0, 9, 9])
    await world.rpc("dev_register", 2, world.hotkey("Eve"), world.hotkey("Eve"))
    result = await advance(world, target(world))
    assert result.waiting is not None
    assert result.waiting.code == "UID_REASSIGNED"
    world.blocks_until(first.era_end_block + 1)
    assert (await advance(world, None)).head.status == "expired"
    assert (await publish_plain(world, target(world))).head.status == "confirmed"
    assert await row_of(world) == {0: 65_535, 2: 21_845}


async def test_a_uid_recycled_before_the_reveal_is_seen_and_corrected_in_the_next_epoch(make_world: Any) -> None:
    """The waiting says so, the record says so, and the next row is without the stranger."""
    world = await make_world(commit_reveal=True, max_allowed_uids=4, immunity_period=5)
    world.blocks(9)
    await advance(world, target(world))
    world.blocks()
    await world.set_item("SubtensorModule.Emission", [2], [9, 0, 9, 9])
    await world.rpc("dev_register", 2, world.hotkey("Eve"), world.hotkey("Eve"))
    pending = await advance(world, None)
    assert pending.waiting is not None
    assert "UIDs [1] changed hands" in pending.waiting.message
    world.blocks_until(20)
    record = (await advance(world, None)).head
    assert (record.status, record.reason) == ("confirmed", "uids [1] changed hands after signing")
    await advance(world, target(world, epoch=1))
    assert (await settled(world)).uids == (0, 2)


async def test_too_little_stake_waits_with_both_amounts(world: Any) -> None:
    """Below the chain's threshold nothing is signed; with enough stake the same epoch publishes."""
    await world.set_item("SubtensorModule.StakeThreshold", [], 5_000_000_000)
    result = await advance(world, target(world))
    assert result.waiting is not None
    assert (result.waiting.code, result.waiting.needed) == ("STAKE_TOO_LOW", "5.000000000")
    await world.rpc("dev_setStake", 2, world.hotkey("Validator"), 5_000_000_000)
    assert (await publish_plain(world, target(world))).head.status == "confirmed"


async def test_a_mechanism_that_is_not_there_waits_and_one_that_is_gets_its_own_row(make_world: Any) -> None:
    """Weights of mechanism 1 are set, confirmed and stored under mechanism 1."""
    options = PublicationOptions(netuid=2, profile="devnet", era_blocks=16, mechanism=1)
    poor = await make_world()
    result = await step(poor.client, poor.validator, poor.journal, target(poor), options)
    assert result.waiting is not None
    assert result.waiting.code == "MECHANISM_MISSING"
    world = await make_world(mechanisms=2)
    for _ in range(2):
        result = await step(world.client, world.validator, world.journal, target(world), options)
        world.blocks()
    assert result.head is not None
    assert (result.head.status, result.head.mechanism) == ("confirmed", 1)
    (row,) = await world.client.read(await world.client.head(), [(Storage.WEIGHTS, [4096 + 2, 0])])
    assert len(row) == 2


async def test_ten_unrevealed_commits_of_another_program_wait_for_the_next_epoch(make_world: Any) -> None:
    """The eleventh commit would be refused: the reason names the count and the block."""
    world = await make_world(commit_reveal=True, weights_rate_limit=0)
    for number in range(10):
        elsewhere = type(world.journal)()
        options = PublicationOptions(netuid=2, profile="devnet", era_blocks=16)
        share = 100_000 + number
        shares = target(world, Ann=share, Bob=1_000_000 - share)
        await step(world.client, world.validator, elsewhere, shares, options)
        world.blocks()
    result = await advance(world, target(world))
    assert result.waiting is not None
    assert (result.waiting.code, result.waiting.current, result.waiting.at_block) == ("TOO_MANY_COMMITS", "10", 20)


async def test_a_pool_that_prefers_another_extrinsic_of_the_nonce_is_waited_out(world: Any) -> None:
    """1014 from a rival with the same nonce: none signed again until the rival used it, then one in the same epoch."""
    client = world.new_client()

    async def refuse(_: bytes) -> PoolAnswer:
        return PoolAnswer("refused", "Priority is too low: (0 vs 0) (pool code 1014)")

    client.submit = refuse
    first = await advance(world, target(world), client)
    assert first.waiting is not None
    assert (first.waiting.code, "1014" in first.waiting.current) == ("EXTRINSIC_REFUSED", True)
    rival = type(world.journal)()
    await step(world.client, world.validator, rival, target(world, Cid=1_000_000), OPTIONS)
    world.blocks()
    assert (await advance(world, None)).head.status == "expired"
    world.blocks(2)
    await advance(world, target(world))
    assert (await settled(world)).status == "confirmed"
    assert await row_of(world) == {1: 65_535, 2: 21_845}


async def test_a_row_that_another_program_overwrote_is_named_and_published_again(world: Any) -> None:
    """A foreign row between inclusion and confirmation: dropped with the block, corrected in the next epoch."""
    await advance(world, target(world))
    world.blocks()
    await world.set_item("SubtensorModule.Weights", [2, 0], [[3, 65_535]])
    await world.set_item("SubtensorModule.LastUpdate", [2], [9, 0, 0, 0])
    record = (await advance(world, None)).head
    assert (record.status, record.reason) == ("dropped", "another program replaced the row in block 9")
    world.blocks_until(20)
    await advance(world, target(world, epoch=1))
    assert (await settled(world)).status == "confirmed"


@pytest.mark.parametrize("applied", [True, False])
async def test_blocks_pruned_during_an_outage_leave_the_decision_to_the_row(world: Any, applied: bool) -> None:
    """No endpoint has the blocks any more: a standing row confirms, else a later epoch ends it, without a person."""
    await advance(world, target(world))
    if not applied:
        await world.set_item("SubtensorModule.WeightsVersionKey", [2], 7)
    world.blocks_until(19)
    client = world.new_client()

    async def gone(_block: Any, _hash: str) -> int | None:
        raise ChainError("CHAIN_STATE_PRUNED", "The endpoint no longer has the block.")

    client.extrinsic_index = gone
    result = await advance(world, None, client)
    if applied:
        assert (result.head.status, result.head.reason[:14]) == ("confirmed", "the block that")
        return
    assert result.waiting is not None
    assert (result.waiting.code, result.waiting.at_block) == ("ARCHIVE_NEEDED", 20)
    world.blocks_until(41)
    ended = (await advance(world, None, client)).head
    assert ended.status == "dropped"
    assert "pruned" in ended.reason


async def test_a_step_that_only_waits_costs_one_request(make_world: Any) -> None:
    """While the epoch is covered or a reveal is pending, a step reads one block once."""
    world = await make_world(commit_reveal=True)
    await advance(world, target(world))
    block = world.blocks()
    await step(world.client, world.validator, world.journal, None, OPTIONS, block)
    for _ in range(3):
        block = world.blocks()
        before = world.client.rpc_calls
        result = await step(world.client, world.validator, world.journal, None, OPTIONS, block)
        assert result.waiting is not None
        assert result.waiting.code == "REVEAL_PENDING"
        assert world.client.rpc_calls - before <= 2  # the read, and that the block is still the chain's
