"""Runtime APIs about subnets: hyperparameters, schedule and registration cost."""

from __future__ import annotations

from typing import Any

from chain.devnet.api_metagraph import ARGUMENT_NETUID_BYTES, SUBNET_FIELDS, subnet_name, subnet_value
from chain.devnet.api_registry import api
from chain.devnet.chain import Chain
from chain.devnet.codec import as_account
from chain.devnet.pallets import epochs, subtensor
from chain.devnet.scale import Reader
from chain.devnet.storage import StorageView

_REGISTRATION_COST_RAO = 1_000 * 10**9
# name -> (type tag of HyperparamValue, storage item)
_HYPERPARAMETERS: dict[str, tuple[str, str]] = {
    "rho": ("U16", "Rho"),
    "kappa": ("U16", "Kappa"),
    "immunity_period": ("U16", "ImmunityPeriod"),
    "min_allowed_weights": ("U16", "MinAllowedWeights"),
    "max_weights_limit": ("U16", "MaxWeightsLimit"),
    "tempo": ("U16", "Tempo"),
    "min_difficulty": ("U64", "MinDifficulty"),
    "max_difficulty": ("U64", "MaxDifficulty"),
    "weights_version": ("U64", "WeightsVersionKey"),
    "weights_rate_limit": ("U64", "WeightsSetRateLimit"),
    "adjustment_interval": ("U16", "AdjustmentInterval"),
    "activity_cutoff": ("U16", "ActivityCutoff"),
    "registration_allowed": ("Bool", "NetworkRegistrationAllowed"),
    "target_regs_per_interval": ("U16", "TargetRegistrationsPerInterval"),
    "min_burn": ("TaoBalance", "MinBurn"),
    "max_burn": ("TaoBalance", "MaxBurn"),
    "bonds_moving_avg": ("U64", "BondsMovingAverage"),
    "max_regs_per_block": ("U16", "MaxRegistrationsPerBlock"),
    "serving_rate_limit": ("U64", "ServingRateLimit"),
    "max_validators": ("U16", "MaxAllowedValidators"),
    "adjustment_alpha": ("U64", "AdjustmentAlpha"),
    "difficulty": ("U64", "Difficulty"),
    "commit_reveal_period": ("U64", "RevealPeriodEpochs"),
    "commit_reveal_weights_enabled": ("Bool", "CommitRevealWeightsEnabled"),
    "liquid_alpha_enabled": ("Bool", "LiquidAlphaOn"),
    "bonds_reset_enabled": ("Bool", "BondsResetOn"),
    "transfers_enabled": ("Bool", "TransferToggle"),
    "max_allowed_uids": ("U16", "MaxAllowedUids"),
}


def _netuid(arguments: Reader) -> int:
    return arguments.unsigned(ARGUMENT_NETUID_BYTES)


@api("SubnetInfoRuntimeApi", "get_subnet_hyperparams_v3")
def get_subnet_hyperparams_v3(_chain: Chain, state: StorageView, arguments: Reader) -> list[dict[str, Any]] | None:
    """Return the hyperparameters as named, tagged values."""
    netuid = _netuid(arguments)
    if not subtensor.subnet_exists(state, netuid):
        return None
    return [
        {"name": name.encode(), "value": {tag: subnet_value(state, item, netuid)}}
        for name, (tag, item) in _HYPERPARAMETERS.items()
    ]


def _record(state: StorageView, netuid: int, method: str) -> dict[str, Any] | None:
    if not subtensor.subnet_exists(state, netuid):
        return None
    output = state.codec.api_method("SubnetInfoRuntimeApi", method)["output"]
    record: dict[str, Any] = state.codec.template(output, optional=True)
    low, high = subtensor.get(state, "AlphaValues", netuid)
    known = {name: item for name, (_, item) in _HYPERPARAMETERS.items()} | SUBNET_FIELDS
    record.update({name: subnet_value(state, known[name], netuid) for name in record if name in known})
    if "alpha_low" in record:
        record.update(alpha_low=low, alpha_high=high)
    return record


@api("SubnetInfoRuntimeApi", "get_subnet_hyperparams")
def get_subnet_hyperparams(_chain: Chain, state: StorageView, arguments: Reader) -> dict[str, Any] | None:
    """Return the hyperparameters in the first fixed record."""
    return _record(state, _netuid(arguments), "get_subnet_hyperparams")


@api("SubnetInfoRuntimeApi", "get_subnet_hyperparams_v2")
def get_subnet_hyperparams_v2(_chain: Chain, state: StorageView, arguments: Reader) -> dict[str, Any] | None:
    """Return the hyperparameters in the second fixed record."""
    return _record(state, _netuid(arguments), "get_subnet_hyperparams_v2")


@api("SubnetInfoRuntimeApi", "get_dynamic_info")
def get_dynamic_info(_chain: Chain, state: StorageView, arguments: Reader) -> dict[str, Any] | None:
    """Return a subnet's identity and (zero) pool."""
    return _dynamic(state, _netuid(arguments))


@api("SubnetInfoRuntimeApi", "get_all_dynamic_info")
def get_all_dynamic_info(_chain: Chain, state: StorageView, _arguments: Reader) -> list[dict[str, Any] | None]:
    """Return every subnet's identity and pool."""
    return [_dynamic(state, netuid) for netuid in subtensor.netuids(state)]


def _dynamic(state: StorageView, netuid: int) -> dict[str, Any] | None:
    record = _record(state, netuid, "get_dynamic_info")
    if record is not None:
        symbol = str(subtensor.get(state, "TokenSymbol", netuid)).encode()
        record.update(netuid=netuid, subnet_name=subnet_name(state, netuid), token_symbol=list(symbol))
    return record


@api("SubnetInfoRuntimeApi", "get_next_epoch_start_block")
def get_next_epoch_start_block(_chain: Chain, state: StorageView, arguments: Reader) -> int | None:
    """Return the block in which the subnet's next epoch is due."""
    return epochs.next_epoch_block(state, _netuid(arguments))


@api("SubnetRegistrationRuntimeApi", "get_network_registration_cost")
def get_network_registration_cost(_chain: Chain, _state: StorageView, _arguments: Reader) -> int:
    """Return a fixed cost, in rao."""
    return _REGISTRATION_COST_RAO


def _subnet_info(state: StorageView, netuid: int, method: str) -> dict[str, Any] | None:
    record = _record(state, netuid, method)
    if record is not None:
        record.update(
            netuid=netuid,
            max_allowed_validators=subtensor.get(state, "MaxAllowedValidators", netuid),
            scaling_law_power=subtensor.get(state, "ScalingLawPower", netuid),
            subnetwork_n=subtensor.size(state, netuid),
            owner=as_account(subtensor.get(state, "SubnetOwner", netuid)),
        )
        if "identity" in record:
            record["identity"] = subtensor.get(state, "SubnetIdentitiesV3", netuid)
    return record


def _subnet_infos(state: StorageView, method: str) -> list[dict[str, Any] | None]:
    return [_subnet_info(state, netuid, method) for netuid in subtensor.netuids(state)]


@api("SubnetInfoRuntimeApi", "get_subnet_info")
def get_subnet_info(_chain: Chain, state: StorageView, arguments: Reader) -> dict[str, Any] | None:
    """Return a subnet in the first record."""
    return _subnet_info(state, _netuid(arguments), "get_subnet_info")


@api("SubnetInfoRuntimeApi", "get_subnet_info_v2")
def get_subnet_info_v2(_chain: Chain, state: StorageView, arguments: Reader) -> dict[str, Any] | None:
    """Return a subnet in the second record."""
    return _subnet_info(state, _netuid(arguments), "get_subnet_info_v2")


@api("SubnetInfoRuntimeApi", "get_subnets_info")
def get_subnets_info(_chain: Chain, state: StorageView, _arguments: Reader) -> list[dict[str, Any] | None]:
    """Return every subnet in the first record."""
    return _subnet_infos(state, "get_subnet_info")


@api("SubnetInfoRuntimeApi", "get_subnets_info_v2")
def get_subnets_info_v2(_chain: Chain, state: StorageView, _arguments: Reader) -> list[dict[str, Any] | None]:
    """Return every subnet in the second record."""
    return _subnet_infos(state, "get_subnet_info_v2")


@api("SubnetInfoRuntimeApi", "get_subnet_to_prune")
def get_subnet_to_prune(_chain: Chain, _state: StorageView, _arguments: Reader) -> None:
    """Return None: no subnet ever makes room for another here."""


@api("AuraApi", "slot_duration")
def slot_duration(_chain: Chain, state: StorageView, _arguments: Reader) -> int:
    """Return the milliseconds of a slot, as the metadata states them."""
    return int(state.codec.constant("Aura", "SlotDuration"))
