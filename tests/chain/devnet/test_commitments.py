"""Commitments: storage, limits, and the reveal hook with real decryption."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chain.devnet import beacon
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
    commitment,
    hot,
    plain_field,
    public,
    sealed_field,
)

PALLET = "Commitments"
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
        (b"\x07" * 100, NOW, "Decrypt"),
        (b"", NOW, "Decrypt"),
        (beacon.seal(b"too late"), NOW - 1, "PulseExpired"),
        (beacon.seal(b""), NOW, "EmptyPlaintext"),
    ],
    ids=["garbage", "empty", "expired label", "empty plaintext"],
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
        (hot(MINER), [plain_field(b"x")] * 4, "TooManyFieldsInCommitmentInfo"),
        (hot(MINER), [b"\x89" + sealed_field(b"abc", 5)[1:]], "TimelockRevealFailedNotAllowed"),
    ],
    ids=["stranger", "too many fields", "failed field"],
)
def test_refused_commitments(driver: Driver, uri: str, fields: list[bytes], error: str) -> None:
    """Strangers, more than three fields and hand-made failed fields are refused."""
    assert driver.send(uri, commitment(*fields)) == error


def test_space_is_limited_per_epoch(driver: Driver) -> None:
    """A hotkey may write 3,100 bytes per epoch, at least 100 per call, and starts afresh in the next epoch."""
    big = commitment(bytes([136]) + b"\x01\x10" + bytes(1_024))
    outcomes = [driver.send(hot(MINER), big) for _ in range(4)]
    assert outcomes == ["", "", "", "SpaceLimitExceeded"]
    small = commitment(plain_field(b"x"))
    assert driver.send(hot(MINER), small) == "SpaceLimitExceeded"
    driver.blocks(10)
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
