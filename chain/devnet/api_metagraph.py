"""Runtime APIs that return a whole subnet: the metagraph and its selective form.

Invariants
1. Lists are indexed by uid and have one entry per registered neuron.
2. Fields about pools, emission and collateral are zero: the devnet has no token economy.
"""

from __future__ import annotations

from typing import Any

from chain.devnet.api_registry import api
from chain.devnet.chain import Chain
from chain.devnet.pallets import epochs, subtensor
from chain.devnet.pallets.commitments import PALLET as COMMITMENTS
from chain.devnet.scale import Reader
from chain.devnet.storage import StorageView

# Metagraph field -> storage item of SubtensorModule keyed by netuid.
SUBNET_FIELDS = {
    "network_registered_at": "NetworkRegisteredAt",
    "owner_hotkey": "SubnetOwnerHotkey",
    "owner_coldkey": "SubnetOwner",
    "tempo": "Tempo",
    "last_step": "LastMechansimStepBlock",
    "blocks_since_last_step": "BlocksSinceLastStep",
    "rho": "Rho",
    "kappa": "Kappa",
    "min_allowed_weights": "MinAllowedWeights",
    "max_weights_limit": "MaxWeightsLimit",
    "weights_version": "WeightsVersionKey",
    "weights_rate_limit": "WeightsSetRateLimit",
    "activity_cutoff": "ActivityCutoff",
    "max_validators": "MaxAllowedValidators",
    "num_uids": "SubnetworkN",
    "max_uids": "MaxAllowedUids",
    "burn": "Burn",
    "difficulty": "Difficulty",
    "registration_allowed": "NetworkRegistrationAllowed",
    "pow_registration_allowed": "NetworkPowRegistrationAllowed",
    "immunity_period": "ImmunityPeriod",
    "min_difficulty": "MinDifficulty",
    "max_difficulty": "MaxDifficulty",
    "min_burn": "MinBurn",
    "max_burn": "MaxBurn",
    "adjustment_alpha": "AdjustmentAlpha",
    "adjustment_interval": "AdjustmentInterval",
    "target_regs_per_interval": "TargetRegistrationsPerInterval",
    "max_regs_per_block": "MaxRegistrationsPerBlock",
    "serving_rate_limit": "ServingRateLimit",
    "commit_reveal_weights_enabled": "CommitRevealWeightsEnabled",
    "commit_reveal_period": "RevealPeriodEpochs",
    "liquid_alpha_enabled": "LiquidAlphaOn",
    "bonds_moving_avg": "BondsMovingAverage",
}
# Global values: the runtime keeps one for all subnets.
_GLOBAL_ITEMS = frozenset({"ServingRateLimit"})
_VECTORS = {
    "active": "Active",
    "validator_permit": "ValidatorPermit",
    "emission": "Emission",
    "dividends": "Dividends",
    "consensus": "Consensus",
}
_MECHANISM_VECTORS = {"last_update": "LastUpdate", "incentives": "Incentive"}
_NO_AXON = {
    "block": 0,
    "version": 0,
    "ip": 0,
    "port": 0,
    "ip_type": 0,
    "protocol": 0,
    "placeholder1": 0,
    "placeholder2": 0,
}
ARGUMENT_NETUID_BYTES = 2
# Ranks, trust and pruning scores left the runtime's storage; its records keep their places with these values.
NO_PRUNING_SCORE = subtensor.U16_MAX


def subnet_value(state: StorageView, item: str, netuid: int) -> Any:
    """Return a subnet's value of a storage item, the one value of a global item, or what the runtime derives."""
    if item == "ActivityCutoff":
        return min(epochs.activity_cutoff(state, netuid), subtensor.U16_MAX)
    return subtensor.get(state, item) if item in _GLOBAL_ITEMS else subtensor.get(state, item, netuid)


def subnet_name(state: StorageView, netuid: int) -> list[int]:
    """Return a subnet's name as the bytes of its text."""
    identity = subtensor.get(state, "SubnetIdentitiesV3", netuid)
    return list(str(identity["subnet_name"]).encode()) if identity else []


def axon_of(state: StorageView, netuid: int, hotkey: bytes) -> dict[str, Any]:
    """Return what a neuron serves, or zeros."""
    found: dict[str, Any] | None = subtensor.get(state, "Axons", netuid, hotkey)
    return found or dict(_NO_AXON)


def padded(state: StorageView, item: str, index: int, count: int, blank: Any) -> list[Any]:
    """Return a per-uid vector with exactly `count` entries."""
    vector = list(subtensor.get(state, item, index))[:count]
    return vector + [blank] * (count - len(vector))


def metagraph(state: StorageView, netuid: int, mechanism: int = 0) -> dict[str, Any] | None:
    """Return the whole metagraph as plain values, or None for a subnet that is not there."""
    if not subtensor.subnet_exists(state, netuid) or mechanism not in subtensor.mechanisms(state, netuid):
        return None
    output = state.codec.api_method("SubnetInfoRuntimeApi", "get_metagraph")["output"]
    graph: dict[str, Any] = state.codec.template(output, optional=True)
    graph.update({field: subnet_value(state, item, netuid) for field, item in SUBNET_FIELDS.items()})
    high_low = subtensor.get(state, "AlphaValues", netuid)
    graph.update(
        netuid=subtensor.storage_index(netuid, mechanism),
        block=state.block,
        name=subnet_name(state, netuid),
        symbol=list(str(subtensor.get(state, "TokenSymbol", netuid)).encode()),
        identity=subtensor.get(state, "SubnetIdentitiesV3", netuid),
        alpha_low=high_low[0],
        alpha_high=high_low[1],
        moving_price={"bits": 0},
    )
    graph.update(_neuron_columns(state, netuid, mechanism))
    return graph


def _neuron_columns(state: StorageView, netuid: int, mechanism: int) -> dict[str, Any]:
    count = subtensor.size(state, netuid)
    uids = range(count)
    hotkeys = [subtensor.hotkey_of(state, netuid, uid) for uid in uids]
    stakes = [subtensor.stake_of(state, netuid, hotkey) for hotkey in hotkeys]
    index = subtensor.storage_index(netuid, mechanism)
    coldkeys = [subtensor.coldkey_of(state, hotkey) for hotkey in hotkeys]
    columns: dict[str, Any] = {
        "hotkeys": hotkeys,
        "coldkeys": coldkeys,
        "identities": [subtensor.get(state, "IdentitiesV2", coldkey) for coldkey in coldkeys],
        "axons": [axon_of(state, netuid, hotkey) for hotkey in hotkeys],
        "block_at_registration": [subtensor.get(state, "BlockAtRegistration", netuid, uid) for uid in uids],
        "alpha_stake": stakes,
        "tao_stake": [0] * count,
        "total_stake": stakes,
        "tao_dividends_per_hotkey": [(hotkey, 0) for hotkey in hotkeys],
        "alpha_dividends_per_hotkey": [(hotkey, 0) for hotkey in hotkeys],
    }
    for field, item in _VECTORS.items():
        blank: Any = False if item in ("Active", "ValidatorPermit") else 0
        columns[field] = padded(state, item, netuid, count, blank)
    for field, item in _MECHANISM_VECTORS.items():
        columns[field] = padded(state, item, index, count, 0)
    for field in ("rank", "trust", "collateral_locked", "collateral_min", "collateral_earned"):
        columns[field] = [0] * count
    columns["pruning_score"] = [NO_PRUNING_SCORE] * count
    return columns


@api("SubnetInfoRuntimeApi", "get_metagraph")
def get_metagraph(_chain: Chain, state: StorageView, arguments: Reader) -> dict[str, Any] | None:
    """Return the metagraph of a subnet."""
    return metagraph(state, arguments.unsigned(ARGUMENT_NETUID_BYTES))


@api("SubnetInfoRuntimeApi", "get_mechagraph")
def get_mechagraph(_chain: Chain, state: StorageView, arguments: Reader) -> dict[str, Any] | None:
    """Return the metagraph of one mechanism."""
    return metagraph(state, arguments.unsigned(ARGUMENT_NETUID_BYTES), arguments.unsigned(1))


@api("SubnetInfoRuntimeApi", "get_all_metagraphs")
def get_all_metagraphs(_chain: Chain, state: StorageView, _arguments: Reader) -> list[dict[str, Any] | None]:
    """Return every subnet's metagraph."""
    return [metagraph(state, netuid) for netuid in subtensor.netuids(state)]


@api("SubnetInfoRuntimeApi", "get_all_mechagraphs")
def get_all_mechagraphs(_chain: Chain, state: StorageView, _arguments: Reader) -> list[dict[str, Any] | None]:
    """Return the metagraph of every mechanism of every subnet."""
    return [
        metagraph(state, netuid, mechanism)
        for netuid in subtensor.netuids(state)
        for mechanism in subtensor.mechanisms(state, netuid)
    ]


@api("SubnetInfoRuntimeApi", "get_subnet_state")
def get_subnet_state(_chain: Chain, state: StorageView, arguments: Reader) -> dict[str, Any] | None:
    """Return the neurons of a subnet column by column; there is no history of emissions."""
    netuid = arguments.unsigned(ARGUMENT_NETUID_BYTES)
    graph = metagraph(state, netuid)
    if graph is None:
        return None
    output = state.codec.api_method("SubnetInfoRuntimeApi", "get_subnet_state")["output"]
    empty: dict[str, Any] = state.codec.template(output, optional=True)
    return {**empty, **{name: graph[name] for name in empty if name in graph}, "netuid": netuid}


def _selected(state: StorageView, arguments: Reader, *, mechanism: bool) -> dict[str, Any] | None:
    netuid = arguments.unsigned(ARGUMENT_NETUID_BYTES)
    mecid = arguments.unsigned(1) if mechanism else 0
    wanted = set(arguments.u16_vector())
    graph = metagraph(state, netuid, mecid)
    if graph is None:
        return None
    permits = graph["validator_permit"]
    graph["validators"] = [uid for uid, permit in enumerate(permits) if permit]
    graph["commitments"] = [
        (hotkey, list(state.get_raw(COMMITMENTS, "CommitmentOf", netuid, hotkey) or b""))
        for hotkey in graph["hotkeys"]
        if state.get_raw(COMMITMENTS, "CommitmentOf", netuid, hotkey) is not None
    ]
    output = state.codec.api_method("SubnetInfoRuntimeApi", "get_selective_metagraph")["output"]
    empty: dict[str, Any] = state.codec.template(output, optional=True)
    chosen = {name: graph[name] for position, name in enumerate(empty) if position in wanted and name in graph}
    return {**empty, **chosen, "netuid": graph["netuid"]}


@api("SubnetInfoRuntimeApi", "get_selective_metagraph")
def get_selective_metagraph(_chain: Chain, state: StorageView, arguments: Reader) -> dict[str, Any] | None:
    """Return the chosen fields of a metagraph; fields are numbered in the order of the record."""
    return _selected(state, arguments, mechanism=False)


@api("SubnetInfoRuntimeApi", "get_selective_mechagraph")
def get_selective_mechagraph(_chain: Chain, state: StorageView, arguments: Reader) -> dict[str, Any] | None:
    """Return the chosen fields of one mechanism's metagraph."""
    return _selected(state, arguments, mechanism=True)
