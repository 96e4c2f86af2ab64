"""Registration: prices, limits, refusals, a full subnet, and what a successor finds on its uid."""

from __future__ import annotations

from typing import Any

import pytest

from chain.devnet.context import Context
from chain.devnet.pallets import subtensor
from tests.chain.devnet.support import (
    MINER,
    NETUID,
    OTHER,
    OWNER,
    VALIDATOR,
    Driver,
    Signing,
    address,
    compose,
    hot,
    public,
)

FULL = {"max_allowed_uids": 3, "immunity_period": 5, "tempo": 4}


def register(hotkey: str, netuid: int = NETUID) -> bytes:
    return compose("SubtensorModule", "burned_register", netuid=netuid, hotkey=address(hotkey))


def weights(uid: int) -> bytes:
    return compose("SubtensorModule", "set_weights", netuid=NETUID, dests=[uid], weights=[1], version_key=0)


def change(driver: Driver, item: str, value: Any) -> None:
    def write(context: Context) -> None:
        subtensor.put(context.state, item, NETUID, value=value)

    driver.chain.build(write)


def test_registration_fills_every_table(driver: Driver) -> None:
    """A new neuron stands in uids, keys, owner and membership, without permit, and is announced."""
    driver.blocks(2)
    assert driver.send(OTHER, register(hot(OTHER))) == ""
    assert driver.get("Uids", NETUID, address(hot(OTHER))) == 2
    assert driver.get("Keys", NETUID, 2) == address(hot(OTHER))
    assert driver.get("Owner", address(hot(OTHER))) == address(OTHER)
    assert driver.get("OwnedHotkeys", address(OTHER)) == [address(hot(OTHER))]
    assert driver.get("IsNetworkMember", address(hot(OTHER)), NETUID) is True
    assert driver.get("BlockAtRegistration", NETUID, 2) == 3
    assert driver.get("ValidatorPermit", NETUID) == [True, False, False]
    assert driver.get("LastUpdate", NETUID) == [0, 0, 3]
    assert driver.get("RegistrationsThisBlock", NETUID) == 1
    assert driver.named("NeuronRegistered") == [("NeuronRegistered", (NETUID, 2, address(hot(OTHER))))]


def test_onboarding_waits_for_the_rate_limit(driver: Driver) -> None:
    """A registration counts as an update, so a newcomer's first row waits as long as any other's next one."""
    driver.send(OTHER, register(hot(OTHER)))
    outcomes = [driver.send(hot(OTHER), weights(2)) for _ in range(3)]
    assert outcomes == ["1010 Custom error: 6", "1010 Custom error: 6", ""]


@pytest.mark.parametrize(
    ("signer", "hotkey", "netuid", "error"),
    [
        (OTHER, hot(MINER), NETUID, "HotKeyAlreadyRegisteredInSubNet"),
        (OTHER, hot(OTHER), 9, "SubnetNotExists"),
        (OTHER, hot(OTHER), 0, "RegistrationNotPermittedOnRootSubnet"),
        (OTHER, "//Alice//hot", NETUID, None),
    ],
)
def test_refused_registrations(driver: Driver, signer: str, hotkey: str, netuid: int, error: str | None) -> None:
    """Twice, nowhere and on root are refused; an unowned hotkey is taken."""
    assert driver.send(signer, register(hotkey, netuid)) == (error or "")


def test_another_coldkeys_hotkey_is_refused(driver: Driver) -> None:
    """A hotkey stays with the coldkey that brought it, also when it is registered nowhere."""
    key = driver.chain.codec.key("SubtensorModule", "Uids", (NETUID, public(hot(MINER))))
    driver.chain.build(lambda context: context.state.put_raw(key, None))
    assert driver.send(OTHER, register(hot(MINER))) == "NonAssociatedColdKey"


def test_poor_coldkey_is_refused(driver: Driver) -> None:
    """A coldkey that cannot pay the burn does not register and loses only the fee."""
    change(driver, "MaxBurn", 10**15)
    change(driver, "Burn", 10**15)
    assert driver.send(OTHER, register(hot(OTHER))) == "NotEnoughBalanceToStake"


def test_burn_rises_with_registrations_and_decays_with_time(driver: Driver) -> None:
    """A registration makes the next one 26 % dearer; after a half-life of blocks without one the price has halved."""
    driver.send(OTHER, register(hot(OTHER)))
    raised = driver.get("Burn", NETUID)
    paid = driver.get("RAORecycledForRegistration", NETUID)
    assert raised == paid * 126 // 100
    driver.blocks(360)
    assert driver.get("Burn", NETUID) == pytest.approx(raised / 2, rel=1e-4)
    change(driver, "BurnHalfLife", 1)
    driver.blocks(10)
    assert driver.get("Burn", NETUID) == driver.get("MinBurn", NETUID)


@pytest.mark.parametrize("driver", [{"burn_half_life": 0}], indirect=True)
def test_burn_can_be_constant(driver: Driver) -> None:
    """A genesis with half-life 0 keeps the price as it is."""
    driver.send(OTHER, register(hot(OTHER)))
    driver.blocks(20)
    assert driver.get("Burn", NETUID) == 100_000_000


def test_price_limit(driver: Driver) -> None:
    """`register_limit` registers at the limit and not one rao above it."""
    change(driver, "BurnHalfLife", 0)
    burn = driver.get("Burn", NETUID)
    calls = [
        compose("SubtensorModule", "register_limit", netuid=NETUID, hotkey=address(hot(OTHER)), limit_price=price)
        for price in (burn - 1, burn)
    ]
    assert [driver.send(OTHER, call) for call in calls] == ["RegistrationPriceLimitExceeded", ""]


def test_registrations_per_block_are_limited(driver: Driver) -> None:
    """The second registration of a block fails with its own error, and the next block takes it."""
    first = driver.submit(OTHER, register("//first"))
    second = driver.submit(OTHER, register("//second"), Signing(nonce=1))
    block = driver.chain.build()
    outcomes = [driver.outcome(block, block.extrinsics.index(each.raw)) for each in (first, second)]
    assert outcomes == ["", "TooManyRegistrationsThisBlock"]
    assert driver.send(OTHER, register("//second")) == ""


@pytest.mark.parametrize("driver", [FULL], indirect=True)
def test_full_subnet_replaces_the_weakest(driver: Driver) -> None:
    """The neuron with the least emission makes room; its successor finds the uid's weights, last update and permit."""
    driver.send(hot(VALIDATOR), weights(1))
    assert driver.send(OTHER, register(hot(OTHER))) == ""
    driver.blocks(6)
    emission = driver.get("Emission", NETUID)
    assert emission[0] == pytest.approx(emission[1])
    assert emission[2] == 0
    assert driver.send(OTHER, register("//late")) == ""
    assert driver.get("Uids", NETUID, address(hot(OTHER))) is None
    assert driver.get("Keys", NETUID, 2) == address("//late")
    assert driver.get("SubnetworkN", NETUID) == 3
    driver.blocks(8 - driver.chain.head.number % 4)  # right after an epoch, so that none comes in between
    change(driver, "Emission", [0, 5, 5])
    change(driver, "LastUpdate", [7, 0, 0])
    assert driver.send(OTHER, register("//later")) == ""
    assert driver.get("Keys", NETUID, 0) == address("//later")
    assert driver.get("Weights", NETUID, 0) == [(1, 65535)]
    assert driver.get("LastUpdate", NETUID)[0] == 7
    assert driver.get("ValidatorPermit", NETUID)[0] is True
    assert driver.get("Bonds", NETUID, 0) == []
    assert driver.get("Emission", NETUID)[0] == 0
    driver.blocks(4)
    assert driver.get("ValidatorPermit", NETUID)[0] is False


@pytest.mark.parametrize("driver", [FULL], indirect=True)
def test_old_rows_do_not_pay_the_successor(driver: Driver) -> None:
    """A row on a uid stays stored when the uid changes hands, but counts again only after a newer update."""
    driver.send(hot(VALIDATOR), weights(1))
    driver.send(OTHER, register(hot(OTHER)))
    driver.blocks(3)
    assert driver.get("Incentive", NETUID) == [0, 65535, 0]
    driver.blocks(8 - driver.chain.head.number % 4)
    change(driver, "Emission", [9, 0, 9])
    assert driver.send(OTHER, register("//heir")) == ""
    assert driver.get("Keys", NETUID, 1) == address("//heir")
    driver.blocks(4)
    assert driver.get("Weights", NETUID, 0) == [(1, 65535)]
    assert driver.get("Incentive", NETUID) == [0, 0, 0]
    assert driver.send(hot(VALIDATOR), weights(1)) == ""
    driver.blocks(4)
    assert driver.get("Incentive", NETUID) == [0, 65535, 0]


@pytest.mark.parametrize("driver", [FULL | {"max_allowed_uids": 2, "immunity_period": 1_000}], indirect=True)
def test_immune_neurons_go_last_and_the_owner_never(driver: Driver) -> None:
    """When all are immune the weakest of them goes; the owner's hotkey stays, so a subnet of its own takes nobody."""
    assert driver.send(OTHER, register("//a")) == ""
    assert driver.get("Keys", NETUID, 0) == address("//a")
    change(driver, "SubnetOwnerHotkey", public("//a"))
    change(driver, "MaxAllowedUids", 1)
    change(driver, "SubnetworkN", 1)
    assert driver.send(OWNER, register("//b")) == "NoNeuronIdAvailable"


@pytest.mark.parametrize("driver", [FULL | {"min_non_immune_uids": 2}], indirect=True)
def test_enough_neurons_stay_beyond_immunity(driver: Driver) -> None:
    """With no more neurons past immunity than the minimum, the immune one makes room although it is younger."""
    driver.blocks(5)
    assert driver.send(OTHER, register(hot(OTHER))) == ""
    assert driver.send(OTHER, register("//late")) == ""
    assert driver.get("Keys", NETUID, 2) == address("//late")
