"""Runtime APIs that return neurons one by one."""

from __future__ import annotations

from typing import Any

from chain.devnet.api_metagraph import ARGUMENT_NETUID_BYTES, NO_PRUNING_SCORE, axon_of
from chain.devnet.api_registry import api
from chain.devnet.chain import Chain
from chain.devnet.pallets import subtensor
from chain.devnet.scale import Reader
from chain.devnet.storage import StorageView

_NO_PROMETHEUS = {"block": 0, "version": 0, "ip": 0, "port": 0, "ip_type": 0}
_SCORES = {
    "emission": "Emission",
    "incentive": "Incentive",
    "consensus": "Consensus",
    "validator_trust": "ValidatorTrust",
    "dividends": "Dividends",
    "last_update": "LastUpdate",
}


def neuron(state: StorageView, netuid: int, uid: int, *, lite: bool) -> dict[str, Any]:
    """Return one neuron as plain values; `lite` leaves out weights and bonds."""
    hotkey = subtensor.hotkey_of(state, netuid, uid)
    coldkey = subtensor.coldkey_of(state, hotkey)
    record: dict[str, Any] = {
        "hotkey": hotkey,
        "coldkey": coldkey,
        "uid": uid,
        "netuid": netuid,
        "active": subtensor.entry_of(state, "Active", netuid, uid, blank=False),
        "axon_info": axon_of(state, netuid, hotkey),
        "prometheus_info": dict(_NO_PROMETHEUS),
        "stake": [(coldkey, subtensor.stake_of(state, netuid, hotkey))],
        "trust": 0,
        "validator_permit": subtensor.entry_of(state, "ValidatorPermit", netuid, uid, blank=False),
        "pruning_score": NO_PRUNING_SCORE,
        "rank": 0,
    }
    record.update({name: subtensor.entry_of(state, item, netuid, uid) for name, item in _SCORES.items()})
    if not lite:
        record["weights"] = subtensor.get(state, "Weights", netuid, uid)
        record["bonds"] = subtensor.get(state, "Bonds", netuid, uid)
    return record


def _all(state: StorageView, netuid: int, *, lite: bool) -> list[dict[str, Any]]:
    return [neuron(state, netuid, uid, lite=lite) for uid in range(subtensor.size(state, netuid))]


def _one(state: StorageView, arguments: Reader, *, lite: bool) -> dict[str, Any] | None:
    netuid, uid = arguments.unsigned(ARGUMENT_NETUID_BYTES), arguments.unsigned(2)
    return neuron(state, netuid, uid, lite=lite) if uid < subtensor.size(state, netuid) else None


@api("NeuronInfoRuntimeApi", "get_neurons")
def get_neurons(_chain: Chain, state: StorageView, arguments: Reader) -> list[dict[str, Any]]:
    """Return all neurons with weights and bonds."""
    return _all(state, arguments.unsigned(ARGUMENT_NETUID_BYTES), lite=False)


@api("NeuronInfoRuntimeApi", "get_neurons_lite")
def get_neurons_lite(_chain: Chain, state: StorageView, arguments: Reader) -> list[dict[str, Any]]:
    """Return all neurons."""
    return _all(state, arguments.unsigned(ARGUMENT_NETUID_BYTES), lite=True)


@api("NeuronInfoRuntimeApi", "get_neuron")
def get_neuron(_chain: Chain, state: StorageView, arguments: Reader) -> dict[str, Any] | None:
    """Return one neuron with weights and bonds."""
    return _one(state, arguments, lite=False)


@api("NeuronInfoRuntimeApi", "get_neuron_lite")
def get_neuron_lite(_chain: Chain, state: StorageView, arguments: Reader) -> dict[str, Any] | None:
    """Return one neuron."""
    return _one(state, arguments, lite=True)
