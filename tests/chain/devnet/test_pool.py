"""What the pool answers: every refusal with its code and words, and who is refused unread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from chain.devnet.codec import codec
from chain.devnet.config import DevnetConfig
from chain.devnet.faults import PoolError
from chain.devnet.server import Devnet
from chain.devnet.startup import open_chain
from tests.chain.devnet.support import OTHER, VALIDATOR, Driver, RawClient, Signing, address, compose, genesis, sign
from tests.chain.devnet.test_extrinsics import REMARK

ANOTHER = compose("System", "remark", remark=b"another")
Refusal = tuple[int, str, object]


class Clock:
    """Milliseconds that pass when told."""

    def __init__(self) -> None:
        self.now = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def small(clock: Clock) -> Iterator[Driver]:
    """A chain whose pool holds three extrinsics."""
    with open_chain(DevnetConfig(genesis=genesis(), pool_limit=3), clock=clock) as chain:
        yield Driver(chain)


def refused(driver: Driver, raw: bytes) -> Refusal:
    """Return how the pool refuses bytes."""
    with pytest.raises(PoolError) as caught:
        driver.chain.submit(raw)
    return caught.value.code, caught.value.message, caught.value.data


def stale(driver: Driver) -> bytes:
    driver.send(VALIDATOR, REMARK)
    return sign(driver.chain, VALIDATOR, ANOTHER, Signing(nonce=0))


def bad_proof(driver: Driver) -> bytes:
    return sign(driver.chain, VALIDATOR, REMARK, Signing(flip_signature=True))


def ancient(driver: Driver) -> bytes:
    """An era that begins above the next block: no hash is known for its birth."""
    driver.blocks(2)
    return sign(driver.chain, VALIDATOR, REMARK, Signing(era={"period": 64, "current": 40}, birth=2))


def poor(driver: Driver) -> bytes:
    return sign(driver.chain, "//Nobody", REMARK)


def undecodable(driver: Driver) -> bytes:
    return sign(driver.chain, VALIDATOR, b"\xff\xff")


def imported(driver: Driver) -> bytes:
    return driver.submit(VALIDATOR, REMARK).raw


def outbid(driver: Driver) -> bytes:
    driver.submit(VALIDATOR, REMARK, Signing(nonce=0, tip=7))
    return sign(driver.chain, VALIDATOR, ANOTHER, Signing(nonce=0, tip=7))


def full(driver: Driver) -> bytes:
    for nonce in range(3):
        driver.submit(VALIDATOR, REMARK, Signing(nonce=nonce))
    return sign(driver.chain, OTHER, REMARK)


def included(driver: Driver) -> bytes:
    sent = driver.submit(VALIDATOR, REMARK)
    driver.chain.build()
    return sent.raw


INVALID = "Invalid Transaction"
CASES: list[tuple[Callable[[Driver], bytes], Refusal]] = [
    (stale, (1010, INVALID, "Transaction is outdated")),
    (bad_proof, (1010, INVALID, "Transaction has a bad signature")),
    (ancient, (1010, INVALID, "Transaction has an ancient birth block")),
    (poor, (1010, INVALID, "Inability to pay some fees (e.g. account balance too low)")),
    (imported, (1013, "Transaction Already Imported", None)),
    (
        outbid,
        (
            1014,
            "Priority is too low: (7 vs 7)",
            "The transaction has too low priority to replace another transaction already in the pool.",
        ),
    ),
    (full, (1016, "Immediately Dropped", "The transaction couldn't enter the pool because of the limit")),
    (included, (1012, "Transaction is temporarily banned", None)),
]


@pytest.mark.parametrize(("arrange", "expected"), CASES, ids=[arrange.__name__ for arrange, _ in CASES])
def test_refusals(small: Driver, arrange: Callable[[Driver], bytes], expected: Refusal) -> None:
    """Each refusal has the code, the message and the data of the real pool, and the pool stays as it was."""
    raw = arrange(small)
    before = list(small.chain.pool)
    assert refused(small, raw) == expected
    assert list(small.chain.pool) == before


def test_bytes_that_are_no_extrinsic(small: Driver) -> None:
    """What does not decode is 1002, and is not banned: it never was a transaction."""
    raw = undecodable(small)
    assert [refused(small, raw)[0] for _ in range(2)] == [1002, 1002]


@pytest.mark.parametrize("arrange", [stale, bad_proof, ancient, poor, included])
def test_a_ban_ends(small: Driver, clock: Clock, arrange: Callable[[Driver], bytes]) -> None:
    """Invalid and included bytes are refused unread for half an hour, and judged again after it."""
    raw = arrange(small)
    first = "" if arrange is included else refused(small, raw)[2]
    assert refused(small, raw)[0] == 1012
    clock.now += 1_799_999
    assert refused(small, raw)[0] == 1012
    clock.now += 1
    assert refused(small, raw)[2] == (first or "Transaction is outdated")
    assert refused(small, raw)[0] == 1012


def test_a_ban_is_for_the_bytes_alone(small: Driver) -> None:
    """A refused signer signs again, and is heard."""
    raw = poor(small)
    assert refused(small, raw)[0] == 1010
    assert (
        small.send(VALIDATOR, compose("Balances", "transfer_keep_alive", dest=address("//Nobody"), value=10**9)) == ""
    )
    assert refused(small, raw)[0] == 1012
    assert small.send("//Nobody", ANOTHER) == ""


def test_what_an_era_outlives_is_banned(small: Driver) -> None:
    """A mortal extrinsic that died in the pool does not come back with the same bytes."""
    small.blocks(4)
    sent = small.submit(VALIDATOR, REMARK, Signing(era={"period": 4, "current": 4}, birth=4, nonce=5))
    small.blocks(4)
    assert len(small.chain.pool) == 0
    assert refused(small, sent.raw)[0] == 1012


def test_birth_blocks_are_known_for_so_long(driver: Driver) -> None:
    """A long era anchored to the oldest block whose hash the runtime keeps passes; one block later it is ancient."""
    kept = int(codec().constant("System", "BlockHashCount"))
    era = {"period": 8_192, "current": 2}
    driver.blocks(2 + kept)
    head = driver.chain.head.number
    assert head - 2 == kept
    # A period of 8192 blocks is anchored in steps of two blocks.
    young = sign(driver.chain, VALIDATOR, REMARK, Signing(era=era, birth=2))
    late = sign(driver.chain, OTHER, REMARK, Signing(era=era, birth=2))
    driver.chain.submit(young)
    driver.chain.build()
    assert refused(driver, late)[2] == "Transaction has an ancient birth block"


def test_nonces_after_a_gap_wait(small: Driver) -> None:
    """A nonce from the future is taken and waits; it is no error of the pool."""
    later = small.submit(VALIDATOR, REMARK, Signing(nonce=2))
    assert small.blocks(1).extrinsics[1:] == ()
    for nonce in (0, 1):
        small.submit(VALIDATOR, REMARK, Signing(nonce=nonce))
    assert small.blocks(1).extrinsics[3] == later.raw


@pytest.mark.parametrize("devnet", [{"manual": True}], indirect=True)
async def test_pending_extrinsics_over_the_wire(devnet: Devnet, raw: RawClient) -> None:
    """What waits is listed, what was included is not, and a refusal without data has none."""
    texts = ["0x" + sign(devnet.chain, VALIDATOR, REMARK, Signing(nonce=nonce)).hex() for nonce in (0, 2)]
    for text in texts:
        await raw.result("author_submitExtrinsic", text)
    assert (await raw.ask("author_submitExtrinsic", texts[0]))["error"] == {
        "code": 1013,
        "message": "Transaction Already Imported",
    }
    assert await raw.result("author_pendingExtrinsics") == texts
    await raw.result("dev_newBlock")
    assert await raw.result("author_pendingExtrinsics") == texts[1:]


PRUNED: dict[str, Any] = {"manual": True, "keep_state": 3}


@pytest.mark.parametrize("devnet", [PRUNED], indirect=True)
@pytest.mark.parametrize(
    ("method", "before"),
    [
        ("state_getStorage", ["0x00"]),
        ("state_getStorageAt", ["0x00"]),
        ("state_getStorageSize", ["0x00"]),
        ("state_queryStorageAt", [["0x00"]]),
        ("state_getKeys", ["0x"]),
        ("state_getKeysPaged", ["0x", 5, None]),
        ("state_getPairs", ["0x"]),
        ("state_call", ["Metadata_metadata_versions", "0x"]),
        ("state_getMetadata", []),
        ("state_getRuntimeVersion", []),
    ],
)
async def test_pruned_state(devnet: Devnet, raw: RawClient, method: str, before: list[Any]) -> None:
    """Whatever needs the state of a pruned block says that it is discarded and names the block; the rest is there."""
    await raw.result("dev_newBlock", 6)
    old, kept = devnet.chain.blocks[3].hash_hex, devnet.chain.blocks[4].hash_hex
    error = (await raw.ask(method, *before, old))["error"]
    assert error == {"code": 4003, "message": f"Client error: UnknownBlock: State already discarded for {old}"}
    assert "error" not in await raw.ask(method, *before, kept)
    assert (await raw.result("chain_getHeader", old))["number"] == "0x3"
    assert (await raw.result("chain_getBlock", old))["block"]["extrinsics"]
    assert await raw.result("chain_getBlockHash", 3) == old
    unknown = (await raw.ask(method, *before, "0x" + "11" * 32))["error"]
    assert unknown["message"].startswith("Client error: UnknownBlock: Header was not found in the database: 0x1111")
