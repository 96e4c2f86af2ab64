"""Commitments: storage, limits, and the reveal hook with real decryption."""

from __future__ import annotations

import bittensor_core
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chain.devnet import beacon
from chain.devnet.faults import UNDECODABLE_EXTRINSIC, PoolError
from chain.devnet.genesis_document import NeuronSpec
from chain.devnet.pallets.commitments import encode_fields, read_fields, read_reveals
from chain.devnet.scale import Reader, ScaleError
from tests.chain.devnet.support import (
    MINER,
    NETUID,
    OTHER,
    VALIDATOR,
    Driver,
    address,
    big_field,
    commitment,
    hot,
    plain_field,
    public,
    sealed_field,
)

PALLET = "Commitments"
# The same bytes sealed to a later round of the public beacon: well formed, and shut under the signature of round 1000.
OTHER_ROUND = bytes(bittensor_core.inner_ciphertext(bittensor_core.encrypt_at_round(b"later", 2_000)[0]))
NOW = beacon.GENESIS_ROUND
CROWD = {
    "neurons": tuple(NeuronSpec(address(f"//miner{number}"), address(MINER)) for number in range(6)),
    "tempo": 1_000,
}


def reveals(driver: Driver, uri: str) -> list[tuple[bytes, int]]:
    return read_reveals(driver.chain.view(), NETUID, public(uri))


def test_bytes_survive_unchanged(driver: Driver) -> None:
    """Text that looks like hexadecimal, text, and bytes that are no text are all stored as they were sent."""
    for data in (b"0x6869", b"plain text", b"\xff\x00\xfe"):
        assert driver.send(hot(MINER), commitment(plain_field(data))) == ""
        raw = driver.chain.view().get_raw(PALLET, "CommitmentOf", NETUID, public(hot(MINER)))
        assert raw is not None
        assert raw[12:] == b"\x04" + plain_field(data)


def test_new_commitment_replaces_sealed_one(driver: Driver) -> None:
    """A plain commitment removes a sealed one before it could open, and its place in the index."""
    driver.send(hot(MINER), commitment(sealed_field(beacon.seal(b"lost"), NOW + 3)))
    driver.send(hot(MINER), commitment(plain_field(b"kept")))
    driver.blocks(5)
    assert reveals(driver, hot(MINER)) == []
    assert driver.get("TimelockedIndex", pallet=PALLET) == []


def test_reveal_happens_in_the_promised_block(driver: Driver) -> None:
    """`reveal_round_after(head, n)` opens at the start of block head + n, not earlier."""
    label = beacon.reveal_round_after(driver.chain.head.number, 4)
    driver.send(hot(MINER), commitment(sealed_field(beacon.seal(b"on time"), label)))
    driver.blocks(2)
    assert reveals(driver, hot(MINER)) == []
    driver.blocks(1)
    assert reveals(driver, hot(MINER)) == [(b"on time", 4)]


@pytest.mark.parametrize("driver", [CROWD], indirect=True)
def test_reveals_come_in_account_order(driver: Driver) -> None:
    """Within a block reveals follow the account ids, whatever the order of arrival."""
    miners = [f"//miner{number}" for number in range(6)]
    for uri in reversed(miners):
        driver.submit(uri, commitment(sealed_field(beacon.seal(uri.encode()), NOW + 2)))
    driver.blocks(1)
    driver.blocks(2)
    order = [fields["who"] for _, fields in driver.named("CommitmentRevealed")]
    assert order == [address(uri) for uri in sorted(miners, key=public)]
    assert {event["phase"] for event in driver.events() if event["event_id"] == "CommitmentRevealed"} == {
        "Initialization"
    }


def test_only_ten_reveals_are_kept(driver: Driver) -> None:
    """The newest ten reveals stay, oldest first."""
    driver.chain.build(lambda context: context.state.put(PALLET, "MaxSpace", value=10**6))
    for number in range(12):
        driver.send(hot(MINER), commitment(sealed_field(beacon.seal(b"%d" % number), NOW)))
        driver.blocks(1)
    assert [data for data, _ in reveals(driver, hot(MINER))] == [b"%d" % number for number in range(2, 12)]


def test_two_sealed_fields_make_two_events(driver: Driver) -> None:
    """Every revealed field has its own event and its own entry, in field order."""
    fields = [sealed_field(beacon.seal(data), NOW) for data in (b"first", b"second")]
    driver.send(hot(MINER), commitment(*fields))
    driver.blocks(1)
    assert [data for data, _ in reveals(driver, hot(MINER))] == [b"first", b"second"]
    assert len(driver.named("CommitmentRevealed")) == 2


def test_plain_part_outlives_the_reveal(driver: Driver) -> None:
    """A commitment with a plain and a sealed field keeps the plain one and its block after the reveal."""
    driver.send(hot(MINER), commitment(plain_field(b"open"), sealed_field(beacon.seal(b"closed"), NOW)))
    driver.blocks(1)
    raw = driver.chain.view().get_raw(PALLET, "CommitmentOf", NETUID, public(hot(MINER)))
    assert raw is not None
    assert raw[8:] == (1).to_bytes(4, "little") + b"\x04" + plain_field(b"open")
    assert driver.get("TimelockedIndex", pallet=PALLET) == []


@pytest.mark.parametrize(
    ("ciphertext", "label", "failure"),
    [
        (b"\x07" * 100, NOW, "CiphertextDeserialize"),
        (b"", NOW, "CiphertextDeserialize"),
        (OTHER_ROUND, NOW, "Decrypt"),
        (beacon.seal(b"too late"), NOW - 1, "PulseExpired"),
        (beacon.seal(b""), NOW, "EmptyPlaintext"),
    ],
    ids=["garbage", "empty", "other round", "expired label", "empty plaintext"],
)
def test_failed_reveal_stays_as_failed_field(driver: Driver, ciphertext: bytes, label: int, failure: str) -> None:
    """What cannot be opened is not lost: it becomes a failed field with an event that says why."""
    driver.send(hot(MINER), commitment(sealed_field(ciphertext, label)))
    driver.blocks(1)
    ((_, fields),) = driver.named("CommitmentRevealFailed")
    assert (fields["reveal_round"], fields["error"]) == (label, failure)
    (field,) = driver.get("CommitmentOf", NETUID, address(hot(MINER)), pallet=PALLET)["info"]["fields"]
    assert set(field) == {"TimelockRevealFailed"}
    assert reveals(driver, hot(MINER)) == []
    driver.blocks(2)
    assert driver.named("CommitmentRevealFailed") == []


@pytest.mark.parametrize(
    ("uri", "fields", "error"),
    [
        (hot(OTHER), [plain_field(b"x")], "AccountNotAllowedCommit"),
        (hot(MINER), [b"\x89" + sealed_field(b"abc", 5)[1:]], "TimelockRevealFailedNotAllowed"),
    ],
    ids=["stranger", "failed field"],
)
def test_refused_commitments(driver: Driver, uri: str, fields: list[bytes], error: str) -> None:
    """Strangers and hand-made failed fields are refused."""
    assert driver.send(uri, commitment(*fields)) == error


@pytest.mark.parametrize(
    ("longest", "too_long"),
    [
        ([sealed_field(bytes(1_024), 5)], [sealed_field(bytes(1_025), 5)]),
        ([big_field(bytes(512))], [big_field(bytes(513))]),
        ([plain_field(b"x")] * 3, [plain_field(b"x")] * 4),
    ],
    ids=["ciphertext", "big raw", "fields"],
)
def test_bounds_of_the_decoder(driver: Driver, longest: list[bytes], too_long: list[bytes]) -> None:
    """What the runtime's bounded vectors hold passes; one more is no call at all, and a batch of it fails."""
    assert driver.send(hot(MINER), commitment(*longest)) == ""
    with pytest.raises(PoolError) as refused:
        driver.submit(hot(MINER), commitment(*too_long))
    assert refused.value.code == UNDECODABLE_EXTRINSIC
    assert driver.send(hot(MINER), b"\x0b\x02\x04" + commitment(*too_long)) == "Other"


def test_longest_payload_that_can_be_sealed(driver: Driver) -> None:
    """Sealing adds 244 bytes, so 780 bytes of plaintext fit into a commitment and 781 do not."""
    assert driver.send(hot(MINER), commitment(sealed_field(beacon.seal(bytes(780)), NOW + 9))) == ""
    assert driver.send(hot(MINER), commitment(sealed_field(beacon.seal(bytes(781)), NOW + 9))).startswith("1002")


def test_space_is_limited_per_epoch(driver: Driver) -> None:
    """A hotkey may write 3,100 bytes of data per epoch, at least 100 per call, and starts afresh in the next epoch."""
    big = commitment(*[big_field(bytes(500))] * 3)
    small = commitment(plain_field(b"x"))
    outcomes = [driver.send(hot(MINER), call) for call in (big, big, small, small)]
    assert outcomes == ["", "", "", "SpaceLimitExceeded"]
    usage = driver.get("UsedSpaceOf", NETUID, address(hot(MINER)), pallet=PALLET)
    assert usage == {"last_epoch": 0, "used_space": 3_100}
    driver.blocks(6)
    assert driver.send(hot(MINER), big) == ""


def test_deregistered_hotkey_still_reveals(driver: Driver) -> None:
    """A sealed commitment opens even when its hotkey has lost its place in the meantime."""
    driver.send(hot(MINER), commitment(sealed_field(beacon.seal(b"orphan"), NOW + 2)))
    key = driver.chain.codec.key("SubtensorModule", "Uids", (NETUID, public(hot(MINER))))
    driver.chain.build(lambda context: context.state.put_raw(key, None))
    driver.blocks(1)
    assert reveals(driver, hot(MINER)) == [(b"orphan", 3)]


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_field_parser_never_over_reads(data: bytes) -> None:
    """Arbitrary bytes either parse and re-encode to what was read, or raise `ScaleError`."""
    reader = Reader(data)
    try:
        fields = read_fields(reader)
    except ScaleError:
        return
    assert read_fields(Reader(encode_fields(fields))) == fields


def test_validator_may_commit_too(driver: Driver) -> None:
    """Any registered hotkey may commit, with or without permit."""
    assert driver.send(hot(VALIDATOR), commitment(plain_field(b"v"))) == ""
    assert driver.get("LastCommitment", NETUID, address(hot(VALIDATOR)), pallet=PALLET) == 1
