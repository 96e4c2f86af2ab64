"""Runtime APIs that no SDK test of this folder calls: delegates, subnet records, columns, swaps."""

from __future__ import annotations

from typing import Any

import pytest

from chain.devnet import runtime_api
from chain.devnet.codec import codec
from chain.devnet.faults import RpcError
from chain.devnet.genesis_document import SubnetSpec
from chain.devnet.scale import compact, u16, u64
from tests.chain.devnet.support import MINER, NETUID, OWNER, VALIDATOR, Driver, address, hot, public

STAKE = 1_000 * 10**9
TWO_SUBNETS = {"subnets": (SubnetSpec(netuid=5, tempo=7, mechanisms=2, max_allowed_validators=9),)}


def ask(driver: Driver, name: str, data: bytes = b"") -> Any:
    """Return the decoded answer of a runtime API at the head."""
    api, _, method = name.partition("_")
    answer = runtime_api.invoke(driver.chain, name, data, driver.chain.head)
    return codec().decode(codec().api_method(api, method)["output"], answer)


def test_delegates(driver: Driver) -> None:
    """A hotkey under `Delegates` is one, with its take, its owner's stake, registrations and permits."""
    name = "DelegateInfoRuntimeApi"
    assert ask(driver, f"{name}_get_delegates") == []
    assert ask(driver, f"{name}_get_delegate", public(hot(VALIDATOR))) is None
    key = public(hot(VALIDATOR))
    driver.chain.build(lambda context: context.state.put("SubtensorModule", "Delegates", key, value=11_796))
    (delegate,) = ask(driver, f"{name}_get_delegates")
    assert delegate == ask(driver, f"{name}_get_delegate", key)
    assert (delegate["delegate_ss58"], delegate["owner_ss58"]) == (address(hot(VALIDATOR)), address(VALIDATOR))
    assert (delegate["take"], delegate["registrations"], delegate["validator_permits"]) == (11_796, [NETUID], [NETUID])
    assert delegate["nominators"] == [(address(VALIDATOR), [(NETUID, STAKE)])]
    assert ask(driver, f"{name}_get_delegated", public(VALIDATOR)) == [(delegate, (NETUID, STAKE))]
    assert ask(driver, f"{name}_get_delegated", public(MINER)) == []


@pytest.mark.parametrize("driver", [TWO_SUBNETS], indirect=True)
def test_subnet_records(driver: Driver) -> None:
    """Both records name size, tempo, validators and owner of a subnet; the lists have every subnet; others are None."""
    for suffix in ("", "_v2"):
        found = ask(driver, f"SubnetInfoRuntimeApi_get_subnet_info{suffix}", u16(NETUID))
        assert (found["netuid"], found["subnetwork_n"], found["tempo"]) == (NETUID, 2, 10)
        assert (found["max_allowed_validators"], found["owner"]) == (128, address(OWNER))
        listed = ask(driver, f"SubnetInfoRuntimeApi_get_subnets_info{suffix}")
        validators = {each["netuid"]: each["max_allowed_validators"] for each in listed}
        assert validators == {0: 128, NETUID: 128, 5: 9}
        assert ask(driver, f"SubnetInfoRuntimeApi_get_subnet_info{suffix}", u16(9)) is None
    assert found["identity"]["subnet_name"] == "devnet"


@pytest.mark.parametrize("driver", [TWO_SUBNETS], indirect=True)
def test_columns_and_mechanisms(driver: Driver) -> None:
    """The state of a subnet has one entry per neuron in each column; there is a metagraph for every mechanism."""
    state = ask(driver, "SubnetInfoRuntimeApi_get_subnet_state", u16(NETUID))
    assert state["hotkeys"] == [address(hot(VALIDATOR)), address(hot(MINER))]
    assert (state["total_stake"], state["pruning_score"]) == ([STAKE, 0], [65_535, 65_535])
    assert ask(driver, "SubnetInfoRuntimeApi_get_subnet_state", u16(9)) is None
    graphs = ask(driver, "SubnetInfoRuntimeApi_get_all_mechagraphs")
    assert [graph["netuid"] for graph in graphs] == [0, NETUID, 5, 4096 + 5]


def test_stake_and_swaps(driver: Driver) -> None:
    """Stake is free, moving it costs nothing, and one alpha is one TAO both ways."""
    asked = compact(2) + public(VALIDATOR) + public(MINER) + b"\x01" + compact(1) + u16(NETUID)
    found = ask(driver, "StakeInfoRuntimeApi_get_stake_availability_for_coldkeys", asked)
    assert found[address(VALIDATOR)] == {NETUID: {"total": STAKE, "locked": 0, "available": STAKE}}
    assert found[address(MINER)] == {NETUID: {"total": 0, "locked": 0, "available": 0}}
    assert ask(driver, "StakeInfoRuntimeApi_get_coldkey_lock", public(VALIDATOR) + u16(NETUID)) is None
    assert ask(driver, "StakeInfoRuntimeApi_get_stake_fee") == 0
    for method in ("sim_swap_tao_for_alpha", "sim_swap_alpha_for_tao"):
        swap = ask(driver, f"SwapRuntimeApi_{method}", u16(NETUID) + u64(77))
        assert (swap["tao_amount"], swap["alpha_amount"], swap["tao_fee"], swap["alpha_fee"]) == (77, 77, 0, 0)
    assert ask(driver, "AuraApi_slot_duration") == 250
    assert ask(driver, "SubnetInfoRuntimeApi_get_subnet_to_prune") is None


def test_activity_cutoff_follows_the_tempo(driver: Driver) -> None:
    """The hyperparameters and the metagraph give 13.889 tempos, not the old absolute number."""
    found = ask(driver, "SubnetInfoRuntimeApi_get_subnet_hyperparams", u16(NETUID))
    graph = ask(driver, "SubnetInfoRuntimeApi_get_metagraph", u16(NETUID))
    assert found["activity_cutoff"] == graph["activity_cutoff"] == 138


def test_unknown_apis_are_named(driver: Driver) -> None:
    """What the node does not offer is an error with its name, never an empty answer."""
    with pytest.raises(RpcError, match="BetaBasketRuntimeApi_get_beta_index"):
        ask(driver, "BetaBasketRuntimeApi_get_beta_index")


def test_nobody_has_a_basket(driver: Driver) -> None:
    """What wallets ask about root baskets is answered as for an account without one."""
    api = "BetaBasketRuntimeApi"
    assert ask(driver, f"{api}_get_root_basket_positions", public(VALIDATOR)) == []
    assert ask(driver, f"{api}_get_root_basket_owed", public(VALIDATOR)) == 0
    assert ask(driver, f"{api}_get_basket_position", public(hot(VALIDATOR)) + public(VALIDATOR)) is None
