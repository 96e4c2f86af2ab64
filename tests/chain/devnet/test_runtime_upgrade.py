"""Another runtime from the next block on: what it is at every hash, and what stops being valid."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from chain.devnet import beacon
from chain.devnet.codec import codec, codec_of
from chain.devnet.config import DevnetConfig
from chain.devnet.faults import PoolError
from chain.devnet.runtime_spec import CODE_KEY, REAL_METADATA, RuntimeSpec, metadata_of, read_code, real_metadata
from chain.devnet.server import Devnet
from chain.devnet.startup import open_chain
from tests.chain.devnet.support import (
    MINER,
    NETUID,
    OTHER,
    VALIDATOR,
    Driver,
    RawClient,
    Signing,
    Wallet,
    address,
    commitment,
    compose,
    genesis,
    hot,
    plain_field,
    row_payload,
    sealed_field,
    sign,
)
from tests.chain.devnet.test_commitments import reveals
from tests.chain.devnet.test_extrinsics import REMARK

OLD = RuntimeSpec()
LATER = RuntimeSpec(462, 439)  # numbered anew: another call table, other event and error numbers
MANUAL: dict[str, Any] = {"manual": True, "finality_lag": 3}


def test_the_block_that_changes_the_code_is_the_old_runtimes_last(driver: Driver) -> None:
    """Event and digest are in that block; the next one notes the upgrade; each hash names its runtime."""
    chain = driver.chain
    parent = chain.build()
    block = chain.upgrade()
    assert driver.named("CodeUpdated", block=block)
    assert block.header.logs[1:] == (b"\x08",)
    specs = [chain.codec_at(where).spec for where in (parent, block)]
    assert specs == [OLD, RuntimeSpec(462)]
    for expected in (461, 462):
        assert driver.get("LastRuntimeUpgrade", pallet="System")["spec_version"] == expected
        later = chain.build()
    assert later.header.logs[1:] == ()
    assert chain.view(block).get("System", "Number") == block.number


@pytest.mark.parametrize("spec", [RuntimeSpec(v, m) for v in (461, 462, 2**32 - 1) for m in REAL_METADATA])
@pytest.mark.parametrize("form", [14, 15])
def test_restamped_metadata_differs_in_one_number(spec: RuntimeSpec, form: int) -> None:
    """A served runtime's metadata is real but for the version, and says the version that is served."""
    real, served = real_metadata(spec.metadata, form), metadata_of(spec, form)
    assert len(real) == len(served)
    assert sum(a != b for a, b in zip(real, served, strict=True)) <= 4
    assert codec_of(spec).constant("System", "Version")["spec_version"] == spec.version
    assert read_code(spec.code()) == spec


@pytest.mark.parametrize("raw", [None, b"", b"\x00asm", OLD.code()[:-1], RuntimeSpec(5, 6).code()])
def test_code_that_is_none_of_ours_is_the_default_runtime(raw: bytes | None) -> None:
    """Whatever a developer writes under `:code`, the chain goes on."""
    assert read_code(raw) == OLD


@pytest.mark.parametrize(("version", "metadata"), [(461, None), (460, None), (2**32, None), (None, 300)])
def test_impossible_upgrades(driver: Driver, version: int | None, metadata: int | None) -> None:
    """A version rises, fits its type, and stands on metadata that exists; otherwise no block is made."""
    with pytest.raises(ValueError):
        driver.chain.upgrade(version, metadata)
    assert driver.chain.head.number == 0


def test_what_was_signed_for_the_old_runtime_is_refused(driver: Driver) -> None:
    """An upgrade empties the pool of old signatures; later ones are 1010, bad signature; new ones pass."""
    chain = driver.chain
    driver.submit(VALIDATOR, REMARK)
    waiting = driver.submit(VALIDATOR, REMARK, Signing(nonce=2))
    block = chain.upgrade()
    assert len(block.extrinsics) == 2  # executed by the old runtime, to which it was signed
    assert list(chain.pool) == []
    assert waiting.nonce == 2
    with pytest.raises(PoolError) as caught:
        driver.submit(OTHER, REMARK, Signing(spec=OLD))
    assert (caught.value.code, caught.value.data) == (1010, "Transaction has a bad signature")
    with pytest.raises(PoolError):
        driver.submit(OTHER, REMARK, Signing(spec=RuntimeSpec(463)))
    assert driver.send(OTHER, REMARK) == ""


def test_the_pallets_run_on_the_other_metadata(driver: Driver) -> None:
    """Commitments, reveals, weights and failures work after an upgrade to metadata with other numbers."""
    chain = driver.chain
    driver.send(hot(MINER), commitment(plain_field(b"before")))
    chain.upgrade(462, 439)
    assert driver.get("CommitmentOf", NETUID, address(hot(MINER)), pallet="Commitments")["block"] == 1
    label = chain.view().get("Drand", "LastStoredRound") + 2
    assert driver.send(hot(MINER), commitment(sealed_field(beacon.seal(b"secret"), label))) == ""
    weights = compose(
        "SubtensorModule", "set_mechanism_weights", netuid=NETUID, mecid=0, dests=[1], weights=[1], version_key=0
    )
    assert driver.send(hot(VALIDATOR), weights) == ""
    driver.blocks(12)
    assert [data for data, _ in reveals(driver, hot(MINER))] == [b"secret"]
    raw = chain.view().get_raw("SubtensorModule", "Weights", NETUID, 0)
    assert raw == bytes.fromhex("040100ffff")
    assert driver.send(hot(MINER), commitment(*[plain_field(b"x")] * 3)) == ""


@pytest.mark.parametrize("driver", [{"commit_reveal": True}], indirect=True)
def test_a_stale_runtime_misreads_the_events(driver: Driver) -> None:
    """Event numbers moved: who decodes with the runtime of before reads another event, which is the point."""
    chain = driver.chain
    chain.upgrade(462, 439)
    sealed = beacon.seal(row_payload(hot(VALIDATOR), {1: 1}))
    call = compose(
        "SubtensorModule",
        "commit_timelocked_mechanism_weights",
        netuid=NETUID,
        mecid=0,
        commit=sealed,
        reveal_round=int(chain.view().get("Drand", "LastStoredRound")),
        commit_reveal_version=4,
    )
    assert driver.send(hot(VALIDATOR), call) == ""
    assert driver.named("TimelockedWeightsCommitted")
    raw = chain.view().get_raw("System", "Events")
    try:
        stale = [event["event_id"] for event in codec().decode_value("System", "Events", raw)]
    except ValueError:
        stale = []
    assert "TimelockedWeightsCommitted" not in stale


def test_an_upgrade_survives_a_restart_and_is_undone_by_a_fork(tmp_path: Path) -> None:
    """The runtime is part of the state: reloaded with it, and gone with the branch that had it."""
    settings = DevnetConfig(state=tmp_path / "chain.state", genesis=genesis(), finality_lag=4)
    with open_chain(settings) as chain:
        Driver(chain).blocks(2)
        block = chain.upgrade(470, 439)
        driver = Driver(chain)
        sent = driver.submit(VALIDATOR, REMARK)
        chain.build()
    with open_chain(settings) as chain:
        assert chain.codec.spec == RuntimeSpec(470, 439)
        chain.fork(2)
        assert chain.codec.spec == OLD
        old = chain.block_by_hash(block.hash)
        assert old is not None
        assert chain.codec_at(old).spec == RuntimeSpec(470, 439)
        assert sent.hash not in {extrinsic.hash for extrinsic in chain.pool}
        assert Driver(chain).send(VALIDATOR, REMARK) == ""


@pytest.mark.parametrize("devnet", [MANUAL], indirect=True)
async def test_what_the_protocol_answers(devnet: Devnet, raw: RawClient) -> None:
    """Version and metadata at a hash are those of its state; subscribers hear each change, forks included."""
    await raw.result("state_subscribeRuntimeVersion")
    before = await raw.result("dev_newBlock")
    block = await raw.result("dev_upgradeRuntime", 465, 439)
    for at, spec in ((before, OLD), (block, RuntimeSpec(465, 439)), (None, RuntimeSpec(465, 439))):
        version = await raw.result("state_getRuntimeVersion", at)
        assert (version["specVersion"], version["transactionVersion"]) == (spec.version, 1)
        assert ["0xdf6acb689907609b", 5] in version["apis"]
        assert await raw.result("state_getMetadata", at) == "0x" + metadata_of(spec, 14).hex()
        answer = bytes.fromhex((await raw.result("state_call", "Metadata_metadata_at_version", "0x0f000000", at))[2:])
        assert answer.endswith(metadata_of(spec, 15))
        assert answer[0] == 1
    await raw.result("dev_newBlock")
    await raw.result("dev_fork", 2)
    assert [version["specVersion"] for version in await raw.drain()] == [461, 465, 461]
    assert (await raw.ask("dev_upgradeRuntime", 461))["error"]["message"].startswith("refused: ")
    key = "0x" + CODE_KEY.hex()
    assert await raw.result("state_getStorage", key, block) == "0x" + RuntimeSpec(465, 439).code().hex()


@pytest.mark.parametrize("devnet", [{"manual": True}], indirect=True)
async def test_watchers_hear_that_an_upgrade_made_them_invalid(devnet: Devnet, raw: RawClient) -> None:
    """An extrinsic that an upgrade leaves in the pool ends as invalid."""
    text = "0x" + sign(devnet.chain, VALIDATOR, REMARK, Signing(nonce=1)).hex()
    await raw.result("author_submitAndWatchExtrinsic", text)
    await raw.result("dev_upgradeRuntime")
    assert await raw.drain() == ["future", "invalid"]


async def test_the_sdk_notices_an_upgrade(devnet: Devnet, sdk: Any, validator: Wallet) -> None:
    """Inside its caching time the SDK signs for the old runtime and is refused; after it, it follows by itself."""
    import bittensor

    call = bittensor.calls.System.remark(remark=b"r")
    async with asyncio.timeout(100):
        assert await sdk.submit_call(call, validator, signer="coldkey")
        async with connect(devnet.url) as connection:
            await RawClient(connection).result("dev_upgradeRuntime", 462, 439)
        stale = await sdk.submit_call(call, validator, signer="coldkey")
        assert (stale.success, "signature does not match" in stale.message) == (False, True)
        sdk._substrate._substrate._runtimes._head_checked_at = float("-inf")  # as if the caching time were over
        assert await sdk.submit_call(call, validator, signer="coldkey")
        head = devnet.chain.head.number
        names = [event["event_id"] for event in await sdk.query(bittensor.storage.System.Events, block=head)]
        assert "ExtrinsicSuccess" in names
        old = await sdk.query(bittensor.storage.System.Events, block=1)
        assert "ExtrinsicSuccess" in [event["event_id"] for event in old]
        assert (await sdk.subnets.metagraph(NETUID)).neurons[1].hotkey == address(hot(MINER))


def test_a_failed_reveal_under_the_older_metadata_leaves_no_trace(driver: Driver) -> None:
    """Spec 439 knows no failed reveals: what does not open is deleted, and no event says so."""
    chain = driver.chain
    chain.upgrade(462, 439)
    label = chain.view().get("Drand", "LastStoredRound") + 2
    assert driver.send(hot(MINER), commitment(sealed_field(b"\x07" * 100, label))) == ""
    assert driver.get("TimelockedIndex", pallet="Commitments")
    driver.blocks(5)
    assert driver.get("TimelockedIndex", pallet="Commitments") == []
    assert driver.get("CommitmentOf", NETUID, address(hot(MINER)), pallet="Commitments") is None
    assert reveals(driver, hot(MINER)) == []
