"""The unmodified SDK 11.3.0 against the node, one test per capability."""

from __future__ import annotations

import asyncio
import time
from importlib.metadata import version
from typing import Any

import bittensor as bt
import bittensor_core
import pytest

from chain.devnet import beacon
from chain.devnet.server import Devnet
from chain.devnet.subscriptions import FINALIZED_HEAD, NEW_HEAD
from tests.chain.devnet.support import (
    MINER,
    NETUID,
    OTHER,
    VALIDATOR,
    Wallet,
    address,
    genesis,
    hot,
    public,
    row_payload,
)

RAO = 10**9
COMMIT_REVEAL = {"genesis": genesis(commit_reveal=True, tempo=5)}
VERSIONED = {"genesis": genesis(commit_reveal=True, tempo=5, version_key=7)}
TWO_MECHANISMS = {"genesis": genesis(mechanisms=2)}


async def submit(sdk: Any, call: Any, wallet: Wallet, signer: str = "hotkey", **options: Any) -> Any:
    return await sdk.submit_call(call, wallet, signer=signer, **options)


def sealed_info(data: bytes, reveal_round: int) -> dict[str, Any]:
    field = {"TimelockEncrypted": {"encrypted": beacon.seal(data), "reveal_round": reveal_round}}
    return {"fields": [[field]]}


async def new_blocks(sdk: Any, count: int) -> None:
    await sdk._substrate.raw.rpc_request("dev_newBlock", [count])


async def test_version_is_the_pinned_one() -> None:
    """These tests speak about SDK 11.3.0 and no other."""
    assert version("bittensor") == "11.3.0"


async def test_connects_and_reads_versions_and_heads(sdk: Any, devnet: Devnet) -> None:
    """The client connects and reads spec version, head, finalized head, block time and chain time."""
    assert await sdk.spec_version() == 461
    assert await sdk.block() == 0
    devnet.produce_block()
    assert (await sdk.block(), await sdk.finalized_block()) == (1, 1)
    assert await sdk.block_time() == 0.25
    assert abs((await sdk.timestamp()).timestamp() - time.time()) < 60


async def test_blocking_facade_works(devnet: Devnet) -> None:
    """The blocking `Subtensor` facade reads from another thread while the node runs here."""

    def read() -> int:
        subtensor = bt.Subtensor(devnet.url, fallback_endpoints=[], archive_endpoints=[])
        try:
            return int(subtensor.block)
        finally:
            subtensor.close()
            subtensor._loop_thread._loop.close()  # the SDK stops its private loop and leaves it open

    assert await asyncio.to_thread(read) == 0


async def test_balance_and_transfer(sdk: Any, validator: Wallet) -> None:
    """A transfer intent moves TAO, charges a fee and shows both in the result."""
    before = await sdk.balances.get(validator.coldkey.ss58_address)
    result = await sdk.execute(bt.Transfer(dest_ss58=address(MINER), amount_tao=5), validator)
    assert result.success, result.message
    after = await sdk.balances.get(validator.coldkey.ss58_address)
    assert (await sdk.balances.get(address(MINER))).rao == 1_005 * RAO
    assert before.rao - after.rao == 5 * RAO + result.fee.rao
    assert result.fee.rao > 0


async def test_batch_of_intents(sdk: Any, validator: Wallet) -> None:
    """`Utility.batch_all` with a transfer and a remark is one extrinsic whose id and events name it."""
    transfer = await sdk.compose(bt.calls.Balances.transfer_keep_alive(dest=address(OTHER), value=RAO))
    remark = await sdk.compose(bt.calls.System.remark_with_event(remark=b"payment:1"))
    result = await submit(sdk, bt.calls.Utility.batch_all(calls=[transfer, remark]), validator, "coldkey")
    assert result.success
    assert result.extrinsic_id == "1-0001"
    block = await sdk.block_info(1)
    call = block.extrinsics[1]["call"]
    assert (call["call_module"], call["call_function"]) == ("Utility", "batch_all")
    names = [event["event_id"] for event in result.events]
    assert names.count("ItemCompleted") == 2
    assert {"Remarked", "BatchCompleted", "TransactionFeePaid", "ExtrinsicSuccess"} <= set(names)


async def test_failed_batch_is_undone(sdk: Any, validator: Wallet) -> None:
    """`batch_all` keeps nothing of a batch whose second call fails, and reports the chain's error."""
    first = await sdk.compose(bt.calls.Balances.transfer_keep_alive(dest=address(OTHER), value=RAO))
    second = await sdk.compose(bt.calls.Balances.transfer_keep_alive(dest=address(OTHER), value=10**18))
    result = await submit(sdk, bt.calls.Utility.batch_all(calls=[first, second]), validator, "coldkey")
    assert (result.success, result.error.name) == (False, "InsufficientBalance")
    assert (await sdk.balances.get(address(OTHER))).rao == 1_000 * RAO


async def test_burned_register(sdk: Any, outsider: Wallet) -> None:
    """A signed `burned_register` gives a uid, burns the price and shows in every registration read."""
    result = await submit(
        sdk,
        bt.calls.SubtensorModule.burned_register(netuid=NETUID, hotkey=outsider.hotkey.ss58_address),
        outsider,
        "coldkey",
    )
    assert result.success
    hotkey = outsider.hotkey.ss58_address
    assert await sdk.read("uid", hotkey_ss58=hotkey, netuid=NETUID) == 2
    assert await sdk.read("hotkey_owner", hotkey_ss58=hotkey) == outsider.coldkey.ss58_address
    assert await sdk.read("netuids_for_hotkey", hotkey_ss58=hotkey) == [NETUID]
    burn = await sdk.query(bt.storage.SubtensorModule.RAORecycledForRegistration, [NETUID])
    left = await sdk.balances.get(outsider.coldkey.ss58_address)
    assert left.rao == 1_000 * RAO - int(burn) - result.fee.rao


async def test_burned_register_intent_needs_the_shield(sdk: Any, outsider: Wallet) -> None:
    """The SDK's registration intent insists on the MEV shield, which the node does not run, and says so."""
    with pytest.raises(bt.ChainError, match="MEV Shield"):
        await sdk.execute(bt.BurnedRegister(netuid=NETUID), outsider)
    assert await sdk.block() == 0


async def test_metagraph(sdk: Any, devnet: Devnet) -> None:
    """`subnets.metagraph` returns every neuron with permit, stake, registration block and keys."""
    devnet.produce_block()
    graph = await sdk.subnets.metagraph(NETUID)
    assert (graph.netuid, graph.block, graph.tempo, graph.num_uids) == (NETUID, 1, 10, 2)
    assert graph.hotkeys == [address(hot(VALIDATOR)), address(hot(MINER))]
    assert graph.coldkeys == [address(VALIDATOR), address(MINER)]
    assert [neuron.validator_permit for neuron in graph] == [True, False]
    assert graph.neuron(0).total_stake.rao == 1_000 * RAO
    assert graph.owner_hotkey == address("//Alice//hot")
    assert graph.name == "devnet"
    assert graph.identity["subnet_name"] == "devnet"
    assert await sdk.subnets.metagraph(99) is None


async def test_selective_metagraph(sdk: Any) -> None:
    """The selective metagraph returns the asked fields and no others."""
    names = ["netuid", "tempo", "hotkeys", "validators"]
    indexes = {"netuid": 0, "tempo": 8, "hotkeys": 52, "validators": 72}
    found = await sdk.runtime(
        bt.runtime_api.SubnetInfoRuntimeApi.get_selective_metagraph, [NETUID, [indexes[name] for name in names]]
    )
    assert found["hotkeys"] == [address(hot(VALIDATOR)), address(hot(MINER))]
    assert (found["tempo"], found["validators"]) == (10, [0])
    assert found["coldkeys"] is None


async def test_stakes(sdk: Any, validator: Wallet) -> None:
    """The stake reads see the genesis stake as the coldkey's position."""
    coldkey, hotkey = validator.coldkey.ss58_address, validator.hotkey.ss58_address
    (position,) = await sdk.staking.positions(coldkey)
    assert (position.hotkey, position.netuid, position.stake.rao) == (hotkey, NETUID, 1_000 * RAO)
    assert (await sdk.staking.get(coldkey, hotkey, NETUID)).rao == 1_000 * RAO


async def test_neurons(sdk: Any) -> None:
    """Both neuron listings decode, and the full one carries the weight rows."""
    lite = await sdk.neurons.all(NETUID)
    full = await sdk.neurons.all(NETUID, lite=False)
    assert [neuron.hotkey for neuron in lite] == [neuron.hotkey for neuron in full]
    assert lite[0].total_stake.rao == 1_000 * RAO
    assert full[0].raw["weights"] == []


async def test_hyperparameters(sdk: Any) -> None:
    """`subnet_hyperparameters` and the single reads agree with the genesis document."""
    found = await sdk.read("subnet_hyperparameters", netuid=NETUID)
    assert (found["tempo"], found["weights_rate_limit"], found["weights_version"]) == (10, 3, 0)
    assert (found["commit_reveal_weights_enabled"], found["commit_reveal_period"]) == (False, 1)
    assert found["min_allowed_weights"] == 1
    assert await sdk.read("subnet_hyperparameters", netuid=99) is None
    assert await sdk.read("weights_rate_limit", netuid=NETUID) == 3
    assert await sdk.subnets.commit_reveal_enabled(NETUID) is False
    version_key = await sdk.query(bt.storage.SubtensorModule.WeightsVersionKey, [NETUID])
    assert version_key == 0


async def test_subnet_listing(sdk: Any) -> None:
    """Subnet reads list root and the devnet's subnet."""
    assert [item.netuid for item in await sdk.subnets.all()] == [0, NETUID]
    assert (await sdk.subnets.info(NETUID)).neuron_count == 2


async def test_plain_commitment(sdk: Any, miner: Wallet) -> None:
    """A plain commitment is stored, read back with its block, and announced by its event."""
    call = bt.calls.Commitments.set_commitment(netuid=NETUID, info={"fields": [[{"Raw11": b"hello-world"}]]})
    result = await submit(sdk, call, miner)
    assert (result.success, result.fee.rao) == (True, 0)
    (found,) = await sdk.read("commitments", netuid=NETUID)
    assert (found["hotkey"], found["commitment"], found["block"]) == (miner.hotkey.ss58_address, "hello-world", 1)
    assert found["status"] == "plain"
    assert "Commitment" in [event["event_id"] for event in result.events]


async def test_commitment_of_a_stranger_is_refused(sdk: Any, outsider: Wallet) -> None:
    """An unregistered hotkey cannot commit, and the SDK maps the error to its own code."""
    call = bt.calls.Commitments.set_commitment(netuid=NETUID, info={"fields": [[{"Raw2": b"hi"}]]})
    result = await submit(sdk, call, outsider)
    assert (result.success, result.error.name) == (False, "AccountNotAllowedCommit")
    assert result.error.code == bt.ErrorCode.NOT_AUTHORIZED


async def test_timelocked_commitment_reveals(sdk: Any, miner: Wallet) -> None:
    """A commitment sealed by the beacon convention stays sealed until its round and then really opens."""
    stored = await sdk.query(bt.storage.Drand.LastStoredRound)
    call = bt.calls.Commitments.set_commitment(netuid=NETUID, info=sealed_info(b"sealed payload", stored + 2))
    result = await submit(sdk, call, miner)
    assert result.success
    assert "TimelockCommitment" in [event["event_id"] for event in result.events]
    (sealed,) = await sdk.read("commitments", netuid=NETUID)
    assert sealed["status"] == "sealed"
    index = await sdk.query(bt.storage.Commitments.TimelockedIndex)
    assert index == [(NETUID, miner.hotkey.ss58_address)]
    await new_blocks(sdk, 2)
    revealed = await sdk.query(bt.storage.Commitments.RevealedCommitments, [NETUID, miner.hotkey.ss58_address])
    assert revealed == [("sealed payload", 3)]
    events = await sdk.query(bt.storage.System.Events, block=3)
    assert (events[0]["phase"], events[0]["event_id"]) == ("Initialization", "CommitmentRevealed")
    assert await sdk.query(bt.storage.Commitments.CommitmentOf, [NETUID, miner.hotkey.ss58_address]) is None
    (shown,) = await sdk.read("commitments", netuid=NETUID)
    assert shown["status"] == "revealed"


async def test_failed_reveal_is_visible(sdk: Any, miner: Wallet) -> None:
    """Bytes that do not decrypt become a failed commitment that the SDK shows as failed."""
    field = {"TimelockEncrypted": {"encrypted": b"\x01" * 120, "reveal_round": beacon.GENESIS_ROUND}}
    call = bt.calls.Commitments.set_commitment(netuid=NETUID, info={"fields": [[field]]})
    assert (await submit(sdk, call, miner)).success
    await new_blocks(sdk, 1)
    (shown,) = await sdk.read("commitments", netuid=NETUID)
    assert shown["status"] == "failed"
    events = await sdk.query(bt.storage.System.Events, block=2)
    assert "CommitmentRevealFailed" in [event["event_id"] for event in events]


async def test_plain_weights(sdk: Any, validator: Wallet) -> None:
    """`set_weights` stores an upscaled row, moves `LastUpdate`, and every weight read shows it."""
    call = bt.calls.SubtensorModule.set_weights(netuid=NETUID, dests=[0, 1], weights=[1, 3], version_key=0)
    assert (await submit(sdk, call, validator)).success
    assert await sdk.read("weights", netuid=NETUID) == {
        0: {0: pytest.approx(0.25, abs=1e-4), 1: pytest.approx(0.75, abs=1e-4)}
    }
    assert await sdk.query(bt.storage.SubtensorModule.Weights, [NETUID, 0]) == [(0, 21845), (1, 65535)]
    assert await sdk.query(bt.storage.SubtensorModule.LastUpdate, [NETUID]) == [1, 0]
    assert await sdk.read("blocks_since_last_update", netuid=NETUID, uid=0) == 0


async def test_weights_rate_limit_and_permit_errors(sdk: Any, validator: Wallet, miner: Wallet) -> None:
    """A second row too early is refused by the pool, a row without permit by the runtime; the SDK knows both."""
    call = bt.calls.SubtensorModule.set_weights(netuid=NETUID, dests=[1], weights=[1], version_key=0)
    assert (await submit(sdk, call, validator)).success
    early = await submit(sdk, call, validator)
    assert (early.error.name, early.error.code) == ("RateLimitExceeded", bt.ErrorCode.RATE_LIMITED)
    other = bt.calls.SubtensorModule.set_weights(netuid=NETUID, dests=[0], weights=[1], version_key=0)
    refused = await submit(sdk, other, miner)
    assert refused.error.name == "NeuronNoValidatorPermit"


@pytest.mark.parametrize("devnet", [TWO_MECHANISMS], indirect=True)
async def test_mechanism_weights(sdk: Any, validator: Wallet) -> None:
    """Weights of a second mechanism live apart from the first's."""
    call = bt.calls.SubtensorModule.set_mechanism_weights(netuid=NETUID, mecid=1, dests=[1], weights=[9], version_key=0)
    assert (await submit(sdk, call, validator)).success
    assert await sdk.read("weights", netuid=NETUID, mechid=1) == {0: {1: 1.0}}
    assert await sdk.read("weights", netuid=NETUID) == {}


@pytest.mark.parametrize("devnet", [COMMIT_REVEAL], indirect=True)
async def test_commit_reveal_by_composed_call(sdk: Any, validator: Wallet) -> None:
    """A timelocked commit shows as pending, moves `LastUpdate`, and is applied at the next epoch."""
    ciphertext = beacon.seal(row_payload(hot(VALIDATOR), {0: 1, 1: 1}))
    call = bt.calls.SubtensorModule.commit_timelocked_mechanism_weights(
        netuid=NETUID, mecid=0, commit=ciphertext, reveal_round=beacon.GENESIS_ROUND, commit_reveal_version=4
    )
    assert (await submit(sdk, call, validator)).success
    pending = await sdk.read("timelocked_weight_commits", netuid=NETUID)
    assert [(item["hotkey"], item["commit_block"]) for item in pending[0]] == [(validator.hotkey.ss58_address, 1)]
    assert await sdk.query(bt.storage.SubtensorModule.LastUpdate, [NETUID]) == [1, 0]
    await new_blocks(sdk, 4)
    assert await sdk.read("weights", netuid=NETUID) == {0: {0: 0.5, 1: 0.5}}
    assert await sdk.read("timelocked_weight_commits", netuid=NETUID) == {}


@pytest.mark.parametrize("devnet", [COMMIT_REVEAL], indirect=True)
async def test_commit_reveal_by_the_sdk_builder(sdk: Any, validator: Wallet) -> None:
    """The SDK's own commit builder reads the schedule and seals a row that the node opens at the epoch."""
    from bittensor.intents import weights as intents

    # The builder adds (blocks until reveal) x (block time) to the wall clock to find the drand round. Only round
    # 1000 (in 2023) has a public signature here, so the block time is chosen to make the sum land there.
    now, sealed_at = time.time(), 1692803367 + 3 * beacon.SEAL_ROUND
    blocks_until_reveal = 5 + 3
    sdk._substrate._block_time = -(now - sealed_at) / blocks_until_reveal
    built = await intents._build_timelocked(
        sdk._substrate, public(hot(VALIDATOR)), NETUID, 0, [0, 1], [65535, 65535], 0, 4
    )
    assert built.extras["reveal_round"] == beacon.SEAL_ROUND
    result = await sdk._substrate.submit(built.call, validator.hotkey)
    assert result.success
    await new_blocks(sdk, 4)
    assert await sdk.read("weights", netuid=NETUID) == {0: {0: 0.5, 1: 0.5}}


@pytest.mark.parametrize("devnet", [VERSIONED], indirect=True)
async def test_stale_version_key_is_lost_silently(sdk: Any, validator: Wallet) -> None:
    """A commit with a stale version key succeeds, moves `LastUpdate` and never changes the weights."""
    ciphertext = beacon.seal(row_payload(hot(VALIDATOR), {1: 1}, version_key=6))
    call = bt.calls.SubtensorModule.commit_timelocked_weights(
        netuid=NETUID, commit=ciphertext, reveal_round=beacon.GENESIS_ROUND, commit_reveal_version=4
    )
    assert (await submit(sdk, call, validator)).success
    await new_blocks(sdk, 10)
    assert await sdk.read("weights", netuid=NETUID) == {}
    assert await sdk.query(bt.storage.SubtensorModule.LastUpdate, [NETUID]) == [1, 0]
    assert await sdk.read("timelocked_weight_commits", netuid=NETUID) == {}


async def test_set_weights_intent_needs_newer_metadata(sdk: Any, validator: Wallet) -> None:
    """The SDK's weight intent asks for storage that spec 461 does not have, exactly as on the real runtime."""
    with pytest.raises(ValueError, match="SubnetEpochConsensus"):
        await sdk.execute(bt.SetWeights(netuid=NETUID, weights={1: 1.0}), validator)


async def test_epoch_status(sdk: Any, devnet: Devnet) -> None:
    """The epoch reads follow the stateful schedule: next start, index, last block."""
    await new_blocks(sdk, 4)
    status = await sdk.read("epoch_status", netuid=NETUID)
    assert (status["epoch_index"], status["next_epoch_start_block"], status["blocks_remaining"]) == (0, 10, 6)
    await new_blocks(sdk, 6)
    status = await sdk.read("epoch_status", netuid=NETUID)
    assert (status["epoch_index"], status["last_epoch_block"], status["next_epoch_start_block"]) == (1, 10, 20)
    assert await sdk.read("blocks_until_next_epoch", netuid=NETUID) == 10


async def test_wait_for_epoch(sdk: Any, devnet: Devnet) -> None:
    """`wait_for_epoch` sees the epoch through its head subscription."""
    waiting = asyncio.create_task(sdk.wait_for_epoch(NETUID, timeout=120))
    while not waiting.done():
        devnet.produce_block()
        await asyncio.sleep(0.01)
    assert (await waiting).block == 10


@pytest.mark.parametrize("devnet", [{"finality_lag": 2, "manual": True}], indirect=True)
async def test_head_and_finalized_subscriptions(sdk: Any, devnet: Devnet) -> None:
    """`blocks()` follows the head, `blocks(finalized=True)` trails it by the finality lag."""

    async def numbers(finalized: bool, last: int) -> list[int]:
        seen = []
        async for header in sdk.blocks(finalized=finalized):
            seen.append(header.number)
            if header.number == last:
                break
        return seen

    heads, final = asyncio.create_task(numbers(False, 5)), asyncio.create_task(numbers(True, 3))
    while not {NEW_HEAD, FINALIZED_HEAD} <= {each.method for each in devnet.hub._open.values()}:  # noqa: ASYNC110 - nothing tells that a subscription was opened
        await asyncio.sleep(0.01)
    for _ in range(5):
        devnet.produce_block()
    assert await heads == [0, 1, 2, 3, 4, 5]
    assert await final == [0, 1, 2, 3]


@pytest.mark.parametrize("devnet", [{"finality_lag": 2, "manual": True}], indirect=True)
async def test_submit_waits_for_finality(sdk: Any, devnet: Devnet, miner: Wallet) -> None:
    """Waiting for finalization ends only after as many further blocks as the finality lag."""
    call = bt.calls.System.remark(remark=b"x")
    waiting = asyncio.create_task(submit(sdk, call, miner, "coldkey"))
    while not len(devnet.chain.pool):  # noqa: ASYNC110 - the pool has no event to wait for
        await asyncio.sleep(0.01)
    devnet.produce_block()
    devnet.produce_block()
    await asyncio.sleep(0.05)
    assert not waiting.done()
    devnet.produce_block()
    assert (await asyncio.wait_for(waiting, 120)).success


async def test_history_of_storage(sdk: Any, validator: Wallet) -> None:
    """Storage and snapshots answer for any past block."""
    call = bt.calls.SubtensorModule.set_weights(netuid=NETUID, dests=[1], weights=[1], version_key=0)
    await new_blocks(sdk, 2)
    assert (await submit(sdk, call, validator)).success
    history = [await sdk.query(bt.storage.SubtensorModule.LastUpdate, [NETUID], block=n) for n in (0, 2, 3)]
    assert history == [[0, 0], [0, 0], [3, 0]]
    snapshot = await sdk.at(2)
    assert await snapshot.read("weights", netuid=NETUID) == {}


async def test_storage_map_pages(sdk: Any, devnet: Devnet) -> None:
    """A map larger than a page of keys is listed completely."""
    await new_blocks(sdk, 1_200)
    pulses = await sdk.query_map(bt.storage.Drand.Pulses)
    assert sorted(number for number, _ in pulses) == [beacon.round_of_block(n) for n in range(1_201)]


async def test_block_info(sdk: Any, miner: Wallet) -> None:
    """A block decodes: hash, timestamp inherent and signed extrinsic."""
    result = await submit(sdk, bt.calls.System.remark(remark=b"hello"), miner, "coldkey")
    info = await sdk.block_info(1)
    assert info.hash == result.block_hash
    assert info.timestamp == await sdk.timestamp(block=1)
    assert [item["call"]["call_function"] for item in info.extrinsics] == ["set", "remark"]


async def test_fee_estimate_matches_charge(sdk: Any, validator: Wallet) -> None:
    """The fee that the SDK estimates without a signature is the fee that is charged."""
    call = await sdk.compose(bt.calls.System.remark(remark=b"12345"))
    estimate = await sdk._substrate.estimate_fee(call, validator.coldkey)
    result = await submit(sdk, bt.calls.System.remark(remark=b"12345"), validator, "coldkey")
    assert abs(estimate.rao - result.fee.rao) <= 400


async def test_plan_is_a_dry_run(sdk: Any, validator: Wallet) -> None:
    """`plan` previews a transfer without submitting anything."""
    plan = await sdk.plan(bt.Transfer(dest_ss58=address(MINER), amount_tao=1), validator)
    assert plan.ok
    assert await sdk.block() == 0


async def test_concurrent_submissions_get_consecutive_nonces(sdk: Any, validator: Wallet) -> None:
    """Extrinsics that one client submits at once are all included, in nonce order."""
    calls = [bt.calls.System.remark(remark=bytes([number])) for number in range(8)]
    results = await asyncio.gather(*(submit(sdk, call, validator, "coldkey") for call in calls))
    assert all(result.success for result in results)
    account = await sdk.query(bt.storage.System.Account, [validator.coldkey.ss58_address])
    assert account["nonce"] == 8


async def test_external_signature(sdk: Any, validator: Wallet) -> None:
    """An extrinsic prepared here and signed elsewhere is accepted."""
    unsigned = await sdk.prepare_call(
        bt.calls.System.remark(remark=b"elsewhere"), address=validator.coldkey.ss58_address
    )
    result = await sdk.submit_signature(unsigned, validator.coldkey.sign(unsigned.payload))
    assert result.success


async def test_constants(sdk: Any) -> None:
    """Pallet constants decode from the served metadata."""
    assert await sdk.constant(bt.constants.Commitments.MaxFields) == 3
    assert int(await sdk.constant(bt.constants.Balances.ExistentialDeposit)) == 500


async def test_commit_signed_with_ed25519_is_accepted(sdk: Any, devnet: Devnet) -> None:
    """An account with an ed25519 key signs as well as one with sr25519."""
    key = bittensor_core.Keypair.create_from_seed(b"\x11" * 32, crypto_type=bittensor_core.CRYPTO_ED25519)
    await sdk._substrate.raw.rpc_request("dev_setBalance", [key.ss58_address, RAO])
    wallet = Wallet(VALIDATOR)
    wallet.coldkey = wallet.coldkeypub = key
    assert (await submit(sdk, bt.calls.System.remark(remark=b"ed"), wallet, "coldkey")).success
