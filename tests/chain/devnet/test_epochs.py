"""The stateful epoch schedule and what an epoch computes."""

from __future__ import annotations

import pytest

from chain.devnet.genesis_document import NeuronSpec, SubnetSpec
from tests.chain.devnet.support import (
    MINER,
    NETUID,
    OTHER,
    OWNER,
    VALIDATOR,
    Driver,
    address,
    compose,
    hot,
    public,
)


def schedule(driver: Driver, netuid: int = NETUID) -> tuple[int, int, int]:
    """Return (epoch index, last epoch block, blocks since)."""
    items = ("SubnetEpochIndex", "LastEpochBlock", "BlocksSinceLastStep")
    index, last, since = (driver.get(item, netuid) for item in items)
    return index, last, since


def test_epochs_run_every_tempo(driver: Driver) -> None:
    """Epoch `k` runs in block `k * tempo`, and the counters between epochs count blocks."""
    driver.blocks(9)
    assert schedule(driver) == (0, 0, 9)
    driver.blocks(1)
    assert schedule(driver) == (1, 10, 0)
    driver.blocks(25)
    assert schedule(driver) == (3, 30, 5)


@pytest.mark.parametrize("driver", [{"tempo": 0}], indirect=True)
def test_tempo_zero_never_runs(driver: Driver) -> None:
    """A subnet with tempo 0 has no epochs."""
    driver.blocks(30)
    assert schedule(driver) == (0, 0, 0)


@pytest.mark.parametrize("driver", [{"subnets": (SubnetSpec(netuid=3, tempo=4),)}], indirect=True)
def test_subnets_have_their_own_schedules(driver: Driver) -> None:
    """Subnets of different tempo do not disturb each other."""
    driver.blocks(12)
    assert schedule(driver) == (1, 10, 2)
    assert schedule(driver, 3) == (3, 12, 0)


def test_owner_can_pull_an_epoch_forward(driver: Driver) -> None:
    """A triggered epoch runs at the pending block, and the schedule continues from there."""
    driver.chain.build(lambda context: context.state.put("SubtensorModule", "AdminFreezeWindow", value=2))
    trigger = compose("SubtensorModule", "trigger_epoch", netuid=NETUID)
    assert driver.send(VALIDATOR, trigger) == "NotSubnetOwner"
    assert driver.send(OWNER, trigger) == ""
    assert driver.get("PendingEpochAt", NETUID) == 5
    assert driver.send(OWNER, trigger) == "EpochTriggerAlreadyPending"
    driver.blocks(1)
    assert schedule(driver) == (1, 5, 0)
    assert driver.get("PendingEpochAt", NETUID) == 0
    driver.blocks(10)
    assert schedule(driver) == (2, 15, 0)


TWO_VALIDATORS = {
    "neurons": (
        NeuronSpec(address(hot(VALIDATOR)), address(VALIDATOR), permit=True, stake=300),
        NeuronSpec(address(hot(OTHER)), address(OTHER), permit=True, stake=100),
        NeuronSpec(address(hot(MINER)), address(MINER)),
        NeuronSpec(address("//miner"), address(MINER)),
    )
}


@pytest.mark.parametrize("driver", [TWO_VALIDATORS], indirect=True)
def test_incentive_is_the_stake_weighted_mean(driver: Driver) -> None:
    """When a sixth of the stake makes a consensus, three quarters of it and one quarter give just these shares."""

    def row(target: int) -> bytes:
        return compose("SubtensorModule", "set_weights", netuid=NETUID, dests=[target], weights=[9], version_key=0)

    driver.chain.build(lambda context: context.state.put("SubtensorModule", "Kappa", NETUID, value=10_000))
    driver.send(hot(VALIDATOR), row(2))
    driver.send(hot(OTHER), row(3))
    driver.blocks(7)
    assert driver.get("Incentive", NETUID) == [0, 0, 65535 * 3 // 4, 65535 // 4]


@pytest.mark.parametrize("driver", [TWO_VALIDATORS | {"max_allowed_validators": 1, "tempo": 4}], indirect=True)
def test_permits_are_given_anew_by_stake(driver: Driver) -> None:
    """At every epoch the largest stakes hold the permits: whoever is overtaken loses one, whatever a test has set."""
    assert driver.get("ValidatorPermit", NETUID) == [True, True, False, False]
    driver.blocks(4)
    assert driver.get("ValidatorPermit", NETUID) == [True, False, False, False]
    key = (public(hot(MINER)), NETUID)
    driver.chain.build(lambda context: context.state.put("SubtensorModule", "TotalHotkeyAlpha", *key, value=10**15))
    driver.blocks(3)
    assert driver.get("ValidatorPermit", NETUID) == [False, False, True, False]


@pytest.mark.parametrize("driver", [TWO_VALIDATORS | {"fixed_permits": True, "tempo": 4}], indirect=True)
def test_permits_can_be_fixed(driver: Driver) -> None:
    """A genesis with fixed permits keeps them, with or without stake."""
    driver.blocks(9)
    assert driver.get("ValidatorPermit", NETUID) == [True, True, False, False]


@pytest.mark.parametrize("driver", [TWO_VALIDATORS | {"tempo": 2}], indirect=True)
def test_silent_validators_fall_out(driver: Driver) -> None:
    """Without new weights for 13.889 tempos a validator is inactive and its row no longer counts."""
    call = compose("SubtensorModule", "set_weights", netuid=NETUID, dests=[2], weights=[9], version_key=0)
    driver.send(hot(VALIDATOR), call)
    driver.blocks(27)
    assert (driver.get("Active", NETUID), driver.get("Incentive", NETUID)[2]) == ([True, False, False, False], 65_535)
    driver.blocks(2)
    assert (driver.get("Active", NETUID), driver.get("Incentive", NETUID)[2]) == ([False] * 4, 0)


@pytest.mark.parametrize("driver", [{"commit_reveal": True}], indirect=True)
def test_commit_reveal_blocks_triggered_epochs(driver: Driver) -> None:
    """Under commit-reveal the owner cannot pull an epoch forward."""
    assert driver.send(OWNER, compose("SubtensorModule", "trigger_epoch", netuid=NETUID)) == (
        "DynamicTempoBlockedByCommitReveal"
    )


def test_imminent_epochs_cannot_be_triggered(driver: Driver) -> None:
    """With the next epoch nearer than the admin freeze window a trigger would have no effect and is refused."""
    assert driver.send(OWNER, compose("SubtensorModule", "trigger_epoch", netuid=NETUID)) == "AutoEpochAlreadyImminent"
