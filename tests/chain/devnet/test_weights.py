"""Weights in the clear and under commit-reveal: every check, every silent loss."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chain.devnet import beacon
from chain.devnet.context import Context
from chain.devnet.pallets import subtensor
from chain.devnet.pallets.weights import upscale
from tests.chain.devnet.support import MINER, NETUID, OTHER, VALIDATOR, Driver, compose, hot, public, row_payload

V, M = hot(VALIDATOR), hot(MINER)
POOR, TOO_FAST, OLD_ROUND = (f"1010 Custom error: {number}" for number in (1, 6, 15))
COMMIT_REVEAL = {"commit_reveal": True, "tempo": 5, "version_key": 7}


def plain(row: dict[int, int], *, version_key: int = 0, netuid: int = NETUID) -> bytes:
    return compose(
        "SubtensorModule",
        "set_weights",
        netuid=netuid,
        dests=list(row),
        weights=list(row.values()),
        version_key=version_key,
    )


def commit(ciphertext: bytes, *, label: int = beacon.GENESIS_ROUND + 4, version: int = 4) -> bytes:
    return compose(
        "SubtensorModule",
        "commit_timelocked_weights",
        netuid=NETUID,
        commit=ciphertext,
        reveal_round=label,
        commit_reveal_version=version,
    )


def sealed(row: dict[int, int], *, who: str = V, version_key: int = 7) -> bytes:
    return beacon.seal(row_payload(who, row, version_key))


def rows(driver: Driver) -> dict[int, list[tuple[int, int]]]:
    return {uid: driver.get("Weights", NETUID, uid) for uid in range(2) if driver.get("Weights", NETUID, uid)}


def change(driver: Driver, item: str, value: object) -> None:
    def write(context: Context) -> None:
        subtensor.put(context.state, item, NETUID, value=value)

    driver.chain.build(write)


def test_first_row_is_exempt_then_limit_is_inclusive(driver: Driver) -> None:
    """The first submission passes at once; the next passes exactly when `limit` blocks have gone by."""
    assert driver.send(V, plain({1: 1})) == ""
    assert driver.send(V, plain({1: 2})) == TOO_FAST
    assert driver.send(V, b"\x0b\x02\x04" + plain({1: 2})) == "SettingWeightsTooFast"
    assert driver.send(V, plain({1: 2})) == ""


@pytest.mark.parametrize(
    ("uri", "call", "error"),
    [
        (V, plain({1: 1}, netuid=9), "CommitRevealEnabled"),
        (hot(OTHER), plain({1: 1}), "HotKeyNotRegisteredInSubNet"),
        (M, plain({0: 1}), "NeuronNoValidatorPermit"),
        (V, plain({5: 1}), "UidVecContainInvalidOne"),
    ],
)
def test_refused_rows(driver: Driver, uri: str, call: bytes, error: str) -> None:
    """Rows for nowhere (commit-reveal is on by default there), by strangers, without permit or for unknown uids."""
    assert driver.send(uri, call) == error
    assert rows(driver) == {}


def test_malformed_rows_are_refused(driver: Driver) -> None:
    """Duplicate uids and vectors of different lengths are refused."""
    twice = compose("SubtensorModule", "set_weights", netuid=NETUID, dests=[1, 1], weights=[1, 2], version_key=0)
    uneven = compose("SubtensorModule", "set_weights", netuid=NETUID, dests=[1], weights=[1, 2], version_key=0)
    assert driver.send(V, twice) == "DuplicateUids"
    assert driver.send(V, uneven) == "WeightVecNotEqualSize"


def test_own_row_needs_no_permit(driver: Driver) -> None:
    """A neuron without permit may weight itself, and only itself."""
    assert driver.send(M, plain({1: 5})) == ""
    assert rows(driver) == {1: [(1, 65535)]}


def test_version_key_must_not_be_older(driver: Driver) -> None:
    """A plain row with a version key below the subnet's is refused, an equal or newer one passes."""
    change(driver, "WeightsVersionKey", 4)
    change(driver, "WeightsSetRateLimit", 0)
    assert driver.send(V, plain({1: 1}, version_key=3)) == "IncorrectWeightVersionKey"
    assert driver.send(V, plain({1: 1}, version_key=4)) == ""
    assert driver.send(V, plain({1: 1}, version_key=5)) == ""


def test_shape_limits(driver: Driver) -> None:
    """Too few entries and an entry above the maximum share are refused."""
    change(driver, "MinAllowedWeights", 2)
    assert driver.send(V, plain({1: 1})) == "WeightVecLengthIsLow"
    change(driver, "MaxWeightsLimit", 40_000)
    assert driver.send(V, plain({0: 1, 1: 9})) == "MaxWeightExceeded"
    assert driver.send(V, plain({0: 5, 1: 5})) == ""


def test_stake_threshold(driver: Driver) -> None:
    """With a stake threshold set, a validator below it cannot set weights."""
    driver.chain.build(lambda context: subtensor.put(context.state, "StakeThreshold", value=10**15))
    assert driver.send(V, plain({1: 1})) == POOR
    assert driver.send(V, b"\x0b\x02\x04" + plain({1: 1})) == "NotEnoughStakeToSetWeights"


@pytest.mark.parametrize("driver", [COMMIT_REVEAL], indirect=True)
def test_stake_threshold_of_commits_spares_the_owner(driver: Driver) -> None:
    """Below the threshold no commit is taken either, but the subnet owner's hotkey is exempt."""
    driver.chain.build(lambda context: subtensor.put(context.state, "StakeThreshold", value=10**15))
    assert driver.send(V, commit(sealed({1: 1}))) == POOR
    assert driver.send(V, b"\x0b\x02\x04" + commit(sealed({1: 1}))) == "NotEnoughStakeToSetWeights"
    change(driver, "SubnetOwnerHotkey", public(V))
    assert driver.send(V, commit(sealed({1: 1}), label=beacon.GENESIS_ROUND + 9)) == ""


def test_row_longer_than_the_subnet_is_refused(driver: Driver) -> None:
    """More entries than neurons are refused before anything else about the row is looked at."""
    assert driver.send(V, plain(dict.fromkeys(range(3), 1))) == "UidsLengthExceedUidsInSubNet"


@pytest.mark.parametrize("driver", [COMMIT_REVEAL], indirect=True)
def test_bounds_of_a_commit(driver: Driver) -> None:
    """A commit of more than 5,000 bytes is no call of the runtime; a reveal round of the past is refused at once."""
    assert driver.send(V, commit(bytes(5_001))).startswith("1002")
    driver.blocks(2)
    assert driver.send(V, commit(sealed({1: 1}), label=beacon.GENESIS_ROUND + 2)) == OLD_ROUND
    assert driver.send(V, commit(bytes(5_000), label=beacon.GENESIS_ROUND + 4)) == ""


@pytest.mark.parametrize("driver", [COMMIT_REVEAL], indirect=True)
def test_commit_reveal_refuses_plain_rows(driver: Driver) -> None:
    """With commit-reveal on, a plain row is refused; with it off, a commit is."""
    assert driver.send(V, plain({1: 1}, version_key=7)) == "CommitRevealEnabled"
    change(driver, "CommitRevealWeightsEnabled", False)
    assert driver.send(V, commit(sealed({1: 1}))) == "CommitRevealDisabled"


@pytest.mark.parametrize("driver", [COMMIT_REVEAL], indirect=True)
def test_commit_applies_at_its_epoch(driver: Driver) -> None:
    """A commit of epoch 0 applies at the start of the block that enters epoch 1, with both events."""
    assert driver.send(V, commit(sealed({0: 1, 1: 3}))) == ""
    driver.blocks(3)
    assert rows(driver) == {}
    block = driver.blocks(1)
    assert block.number == 5
    assert rows(driver) == {0: [(0, 21845), (1, 65535)]}
    names = [name for name, _ in driver.named("WeightsSet", "TimelockedWeightsRevealed")]
    assert names == ["WeightsSet", "TimelockedWeightsRevealed"]


@pytest.mark.parametrize("driver", [COMMIT_REVEAL | {"reveal_period": 3}], indirect=True)
def test_reveal_period_counts_epochs(driver: Driver) -> None:
    """With a reveal period of three, a commit waits for the third next epoch."""
    driver.send(V, commit(sealed({1: 1})))
    driver.blocks(13)
    assert rows(driver) == {}
    driver.blocks(1)
    assert (driver.chain.head.number, rows(driver)) == (15, {0: [(1, 65535)]})


@pytest.mark.parametrize("driver", [COMMIT_REVEAL], indirect=True)
def test_commit_in_the_epoch_block_belongs_to_the_new_epoch(driver: Driver) -> None:
    """Epochs run before extrinsics, so a commit in the epoch's own block waits for the next one."""
    driver.blocks(4)
    assert driver.send(V, commit(sealed({1: 1}))) == ""
    assert (driver.chain.head.number, driver.get("SubnetEpochIndex", NETUID)) == (5, 1)
    driver.blocks(4)
    assert rows(driver) == {}
    driver.blocks(1)
    assert rows(driver) == {0: [(1, 65535)]}


@pytest.mark.parametrize("driver", [COMMIT_REVEAL], indirect=True)
@pytest.mark.parametrize(
    "call",
    [
        commit(sealed({1: 1}, version_key=6)),
        commit(sealed({1: 1}, who=M)),
        commit(b"\x05" * 200),
        commit(beacon.seal(b"not a row")),
        commit(sealed({1: 1}), label=10**9),
        commit(sealed({9: 1})),
    ],
    ids=["stale version key", "other hotkey", "garbage", "no row inside", "label never reached", "unknown uid"],
)
def test_lost_commits_leave_no_trace(driver: Driver, call: bytes) -> None:
    """A commit that cannot be applied succeeds, moves `LastUpdate`, and then vanishes without event or error."""
    assert driver.send(V, call) == ""
    assert driver.get("LastUpdate", NETUID) == [1, 0]
    driver.blocks(4)
    assert driver.get("TimelockedWeightCommits", NETUID, 0) == []
    assert driver.named("WeightsSet", "TimelockedWeightsRevealed") == []
    assert rows(driver) == {}


@pytest.mark.parametrize("driver", [COMMIT_REVEAL | {"weights_rate_limit": 0, "tempo": 50}], indirect=True)
def test_queue_of_unrevealed_commits_is_bounded(driver: Driver) -> None:
    """A hotkey may have ten unrevealed commits per epoch, and the last of them wins."""
    for value in range(10):
        assert driver.send(V, commit(sealed({0: value + 1, 1: 10}), label=beacon.GENESIS_ROUND + 40)) == ""
    assert driver.send(V, commit(sealed({1: 1}), label=beacon.GENESIS_ROUND + 40)) == "TooManyUnrevealedCommits"
    driver.blocks(39)
    assert rows(driver) == {0: [(0, 65535), (1, 65535)]}


@pytest.mark.parametrize("driver", [COMMIT_REVEAL], indirect=True)
def test_commit_checks(driver: Driver) -> None:
    """The wrong commit-reveal version, a stranger and a second commit too early are refused."""
    assert driver.send(V, commit(sealed({1: 1}), version=3)) == "IncorrectCommitRevealVersion"
    assert driver.send(hot(OTHER), commit(sealed({1: 1}))) == "HotKeyNotRegisteredInSubNet"
    assert driver.send(V, commit(sealed({1: 1}))) == ""
    assert driver.send(V, commit(sealed({1: 1}))) == TOO_FAST
    assert driver.send(V, b"\x0b\x02\x04" + commit(sealed({1: 1}))) == "CommittingWeightsTooFast"


@pytest.mark.parametrize("driver", [COMMIT_REVEAL], indirect=True)
def test_permit_is_checked_at_the_reveal(driver: Driver) -> None:
    """A commit without permit is taken and lost unless the permit comes before the epoch."""
    driver.send(M, commit(sealed({0: 1}, who=M)))
    driver.blocks(4)
    assert rows(driver) == {}
    driver.send(M, commit(sealed({0: 1}, who=M), label=beacon.GENESIS_ROUND + 9))
    change(driver, "ValidatorPermit", [True, True])
    driver.blocks(3)
    assert rows(driver) == {1: [(0, 65535)]}


@settings(deadline=None)
@given(st.lists(st.integers(0, 65535), min_size=1, max_size=40))
def test_upscale_keeps_proportions(values: list[int]) -> None:
    """Upscaling makes the largest value 65535, keeps zero zero and never swaps an order."""
    scaled = [value for _, value in upscale(list(enumerate(values)))]
    assert max(scaled) == (65535 if max(values) else 0)
    pairs = sorted(zip(values, scaled, strict=True))
    assert [after for _, after in pairs] == sorted(scaled)
    assert all(after == 0 for before, after in pairs if before == 0)


def test_public_key_is_inside_the_payload() -> None:
    """The plaintext of a commit starts with the committer's public key."""
    assert row_payload(V, {1: 1})[1:33] == public(V)


@pytest.mark.parametrize("driver", [COMMIT_REVEAL | {"reveal_period": 3}], indirect=True)
def test_expired_commits_are_removed_unopened(driver: Driver) -> None:
    """When the reveal period shrinks below a commit's age, the commit is gone at the next epoch and changes nothing."""
    assert driver.send(V, commit(sealed({1: 1}))) == ""
    driver.blocks(5)
    assert len(driver.get("TimelockedWeightCommits", NETUID, 0)) == 1
    change(driver, "RevealPeriodEpochs", 1)
    driver.blocks(3)
    assert (driver.chain.head.number, driver.get("SubnetEpochIndex", NETUID)) == (10, 2)
    assert driver.get("TimelockedWeightCommits", NETUID, 0) == []
    assert driver.named("WeightsSet", "TimelockedWeightsRevealed") == []
    driver.blocks(10)
    assert rows(driver) == {}
