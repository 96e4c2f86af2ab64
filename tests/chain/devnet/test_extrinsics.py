"""Extrinsics and the pool: what is taken, what is refused and with which protocol error."""

from __future__ import annotations

from typing import Any

import bittensor_core
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chain.devnet.codec import codec
from chain.devnet.extrinsics import decode_extrinsic, read_era, signing_payload
from chain.devnet.faults import DispatchError, Invalidity, PoolError
from chain.devnet.scale import Reader, ScaleError, byte_vector
from tests.chain.devnet.support import MINER, OTHER, VALIDATOR, Driver, Signing, address, compose, hot, public, sign

REMARK = compose("System", "remark", remark=b"hello")


def refusal(driver: Driver, raw: bytes) -> tuple[int, str | None]:
    with pytest.raises(PoolError) as caught:
        driver.chain.submit(raw)
    return caught.value.code, caught.value.data


def test_signing_payload_is_the_codecs(driver: Driver) -> None:
    """What the node checks the signature against is byte for byte what the SDK's codec signs."""
    for call in (REMARK, compose("System", "remark", remark=bytes(300))):
        raw = sign(driver.chain, VALIDATOR, call)
        extrinsic = decode_extrinsic(raw, codec())
        genesis = driver.chain.genesis_hash
        expected = codec()._runtime.signature_payload(
            call, era="00", nonce=0, tip=0, tip_asset_id=None, genesis_hash=genesis, era_block_hash=genesis
        )
        assert signing_payload(extrinsic, genesis, genesis) == bytes(expected)


def test_bad_signatures(driver: Driver) -> None:
    """A flipped bit, another chain's genesis and a changed call are bad proofs."""
    bad_proof = (1010, "Transaction has a bad signature")
    assert refusal(driver, sign(driver.chain, VALIDATOR, REMARK, Signing(flip_signature=True))) == bad_proof
    assert refusal(driver, sign(driver.chain, VALIDATOR, REMARK, Signing(genesis=bytes(32)))) == bad_proof
    changed = bytearray(sign(driver.chain, VALIDATOR, REMARK))
    changed[-1] ^= 1
    assert refusal(driver, bytes(changed)) == bad_proof


def test_nonces(driver: Driver) -> None:
    """A used nonce is stale; a nonce after a gap waits until the gap is filled."""
    driver.send(VALIDATOR, REMARK)
    assert refusal(driver, sign(driver.chain, VALIDATOR, REMARK, Signing(nonce=0))) == (
        1010,
        "Transaction is outdated",
    )
    driver.submit(VALIDATOR, REMARK, Signing(nonce=2))
    driver.blocks(1)
    assert (driver.nonce(VALIDATOR), len(driver.chain.pool)) == (1, 1)
    driver.submit(VALIDATOR, REMARK, Signing(nonce=1))
    assert driver.chain.next_nonce(public(VALIDATOR)) == 3
    driver.blocks(1)
    assert (driver.nonce(VALIDATOR), len(driver.chain.pool)) == (3, 0)


def test_same_nonce_needs_a_higher_tip(driver: Driver) -> None:
    """A second extrinsic with a pending nonce is refused with 1014 unless it tips more; then it replaces the first."""
    first = driver.submit(VALIDATOR, REMARK, Signing(nonce=0))
    assert refusal(driver, first.raw)[0] == 1013
    other = compose("System", "remark", remark=b"other")
    assert refusal(driver, sign(driver.chain, VALIDATOR, other, Signing(nonce=0)))[0] == 1014
    better = driver.submit(VALIDATOR, other, Signing(nonce=0, tip=5))
    block = driver.blocks(1)
    assert better.raw in block.extrinsics
    assert first.raw not in block.extrinsics


def test_poor_account_is_refused(driver: Driver) -> None:
    """An extrinsic whose fee cannot be paid does not enter the pool, and its sender hears why."""
    with pytest.raises(PoolError) as caught:
        driver.submit("//Nobody", REMARK)
    assert (caught.value.code, caught.value.data) == (1010, Invalidity.PAYMENT.value)
    assert len(driver.chain.pool) == 0


def test_an_account_that_became_poor_is_left_out(driver: Driver) -> None:
    """Two extrinsics that could each be paid: the second is dropped when the first took everything."""
    driver.submit(VALIDATOR, compose("Balances", "transfer_all", dest=address(OTHER), keep_alive=False))
    driver.submit(VALIDATOR, REMARK)
    block = driver.blocks(1)
    assert (len(block.extrinsics), len(driver.chain.pool)) == (2, 0)


def test_a_failed_intervention_keeps_the_pool(driver: Driver) -> None:
    """A block that was not made drops nothing, not even what was too old for it."""
    driver.blocks(4)
    driver.submit(VALIDATOR, REMARK, Signing(era={"period": 4, "current": 4}, birth=4, nonce=5))
    driver.blocks(3)

    def refuse(_: Any) -> None:
        raise DispatchError("System", "CallFiltered")

    with pytest.raises(DispatchError):
        driver.chain.build(refuse)
    assert len(driver.chain.pool) == 1
    driver.blocks(1)
    assert len(driver.chain.pool) == 0


def test_free_calls_need_no_balance(driver: Driver) -> None:
    """A hotkey without any balance can commit."""
    call = compose("Commitments", "set_commitment", netuid=2, info={"fields": [[{"Raw1": b"x"}]]})
    assert driver.send(hot(MINER), call) == ""
    assert driver.nonce(hot(MINER)) == 1


def test_mortal_era_ends(driver: Driver) -> None:
    """A mortal extrinsic is included within its era and dropped after it."""
    driver.blocks(3)
    era = {"period": 4, "current": 3}
    driver.submit(VALIDATOR, REMARK, Signing(era=era, birth=3))
    driver.blocks(1)
    assert driver.nonce(VALIDATOR) == 1
    driver.submit(OTHER, REMARK, Signing(era={"period": 4, "current": 4}, birth=4, nonce=1))
    driver.blocks(3)
    assert len(driver.chain.pool) == 1
    driver.blocks(1)
    assert len(driver.chain.pool) == 0
    old = sign(driver.chain, VALIDATOR, REMARK, Signing(era=era, birth=3))
    assert refusal(driver, old) == (1010, "Transaction has a bad signature")


@settings(deadline=None)
@given(st.integers(2, 16), st.integers(0, 4_000), st.integers(0, 70_000))
def test_era_birth_matches_the_codec(exponent: int, current: int, later: int) -> None:
    """The birth block that the node reads from an era is the one the SDK anchors to, all through the era."""
    period = 1 << exponent
    encoded = bytes(codec()._runtime.encode_era({"period": period, "current": current}))
    era = read_era(Reader(encoded))
    assert era.period == period
    birth = era.birth(current)
    assert birth == bittensor_core.era_birth(period, current)
    assert birth <= current < birth + period
    if current + later < birth + period:
        assert era.birth(current + later) == birth


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_arbitrary_bytes_never_break_the_decoder(data: bytes) -> None:
    """Bytes that are not an extrinsic raise `ScaleError`, also behind a right length prefix and version."""
    for raw in (data, byte_vector(data), byte_vector(b"\x84\x00" + data)):
        with pytest.raises(ScaleError):
            decode_extrinsic(raw, codec())


def test_unsigned_and_undecodable_are_refused(driver: Driver) -> None:
    """Inherents from outside and calls that do not decode are refused as undecodable."""
    assert refusal(driver, byte_vector(b"\x04\x02\x00\x04"))[0] == 1002
    assert refusal(driver, sign(driver.chain, VALIDATOR, b"\xff\xff"))[0] == 1002
    assert refusal(driver, sign(driver.chain, VALIDATOR, REMARK + b"\x00"))[0] == 1002


def test_deep_nesting_fails_the_call_only(driver: Driver) -> None:
    """A hundred nested batches fail as one call; the block and the account go on."""
    nested = bytes([11, 2, 4]) * 100 + REMARK
    assert driver.send(VALIDATOR, nested) == "CallFiltered"
    assert driver.nonce(VALIDATOR) == 1


def test_unknown_call_is_filtered(driver: Driver) -> None:
    """A call that the node does not implement is included and fails with `CallFiltered`."""
    assert driver.send(VALIDATOR, compose("SubtensorModule", "root_register", hotkey=address(OTHER))) == "CallFiltered"


def test_batch_stops_at_the_first_failure(driver: Driver) -> None:
    """`batch` keeps what ran before the failure and reports the place."""
    give = compose("Balances", "transfer_keep_alive", dest=address(OTHER), value=10**9)
    too_much = compose("Balances", "transfer_keep_alive", dest=address(OTHER), value=10**18)
    assert driver.send(VALIDATOR, compose("Utility", "batch", calls=[give, too_much, give])) == ""
    ((_, fields),) = driver.named("BatchInterrupted")
    assert fields["index"] == 1
    assert len(driver.named("ItemCompleted")) == 1
    assert driver.get("Account", address(OTHER), pallet="System")["data"]["free"] == 1_001 * 10**9


def test_transfers(driver: Driver) -> None:
    """Transfers keep the total issuance up to burnt fees and respect the existential deposit."""
    issuance = driver.get("TotalIssuance", pallet="Balances")
    fresh = "//Fresh"
    assert driver.send(VALIDATOR, compose("Balances", "transfer_allow_death", dest=address(fresh), value=10)) == (
        "ExistentialDeposit"
    )
    assert driver.send(VALIDATOR, compose("Balances", "transfer_allow_death", dest=address(fresh), value=10**9)) == ""
    assert driver.send(fresh, compose("Balances", "transfer_keep_alive", dest=address(OTHER), value=999_800_000)) == ""
    assert driver.send(VALIDATOR, compose("Balances", "transfer_all", dest=address(OTHER), keep_alive=False)) == ""
    assert driver.get("Account", address(VALIDATOR), pallet="System")["data"]["free"] == 0
    spent = issuance - driver.get("TotalIssuance", pallet="Balances")
    assert 0 < spent < 10**9
