"""Registration: prices, refusals and a full subnet."""

from __future__ import annotations

import pytest

from tests.chain.devnet.support import (
    MINER,
    NETUID,
    OTHER,
    VALIDATOR,
    Driver,
    address,
    compose,
    hot,
)


def register(hotkey: str, netuid: int = NETUID) -> bytes:
    return compose("SubtensorModule", "burned_register", netuid=netuid, hotkey=address(hotkey))


def test_registration_fills_every_table(driver: Driver) -> None:
    """A new neuron stands in uids, keys, owner and membership, without permit, and is announced."""
    assert driver.send(OTHER, register(hot(OTHER))) == ""
    assert driver.get("Uids", NETUID, address(hot(OTHER))) == 2
    assert driver.get("Keys", NETUID, 2) == address(hot(OTHER))
    assert driver.get("Owner", address(hot(OTHER))) == address(OTHER)
    assert driver.get("OwnedHotkeys", address(OTHER)) == [address(hot(OTHER))]
    assert driver.get("IsNetworkMember", address(hot(OTHER)), NETUID) is True
    assert driver.get("BlockAtRegistration", NETUID, 2) == 1
    assert driver.get("ValidatorPermit", NETUID) == [True, False, False]
    assert driver.named("NeuronRegistered") == [("NeuronRegistered", (NETUID, 2, address(hot(OTHER))))]


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


def test_poor_coldkey_is_refused(driver: Driver) -> None:
    """A coldkey that cannot pay the burn does not register and loses only the fee."""
    driver.chain.build(lambda context: context.state.put("SubtensorModule", "Burn", NETUID, value=10**15))
    assert driver.send(OTHER, register(hot(OTHER))) == "NotEnoughBalanceToStake"


@pytest.mark.parametrize("driver", [{"max_allowed_uids": 3, "immunity_period": 5}], indirect=True)
def test_full_subnet_replaces_the_weakest(driver: Driver) -> None:
    """On a full subnet the weakest non-immune neuron makes room, and its successor inherits no weights or permit."""
    weights = compose("SubtensorModule", "set_weights", netuid=NETUID, dests=[1], weights=[1], version_key=0)
    driver.send(hot(VALIDATOR), weights)
    assert driver.send(OTHER, register(hot(OTHER))) == ""
    driver.blocks(10)
    assert driver.get("Incentive", NETUID) == [0, 65535, 0]
    assert driver.send(OTHER, register("//late")) == ""
    assert driver.get("Uids", NETUID, address(hot(VALIDATOR))) is None
    assert driver.get("Keys", NETUID, 0) == address("//late")
    assert driver.get("Weights", NETUID, 0) == []
    assert driver.get("ValidatorPermit", NETUID) == [False, False, False]
    assert driver.get("SubnetworkN", NETUID) == 3
