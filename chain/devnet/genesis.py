"""The genesis state, built from a genesis document.

Invariants
1. The state holds the creation time, so two chains made from the same document have different genesis hashes.
2. Genesis neurons registered in block 0 and are exempt from the rate limit until they first set weights.
"""

from __future__ import annotations

from chain.devnet.codec import SPEC_VERSION, account_id
from chain.devnet.context import Context
from chain.devnet.genesis_document import Genesis, SubnetSpec
from chain.devnet.pallets.balances import RAO_PER_TAO, set_free
from chain.devnet.pallets.drand import store_pulse
from chain.devnet.pallets.registration import NO_COLDKEY, register_neuron
from chain.devnet.pallets.subtensor import fix_permits, is_registered, netuids, put, set_entry, subnet_exists
from chain.devnet.storage import Session
from config.errors import ConfigurationError

_SPEC_FIELDS = (
    ("Tempo", "tempo"),
    ("CommitRevealWeightsEnabled", "commit_reveal"),
    ("RevealPeriodEpochs", "reveal_period"),
    ("WeightsSetRateLimit", "weights_rate_limit"),
    ("WeightsVersionKey", "version_key"),
    ("MinAllowedWeights", "min_allowed_weights"),
    ("MaxWeightsLimit", "max_weights_limit"),
    ("MaxAllowedUids", "max_allowed_uids"),
    ("ImmunityPeriod", "immunity_period"),
    ("MechanismCountCurrent", "mechanisms"),
    ("Burn", "burn_rao"),
    ("BurnHalfLife", "burn_half_life"),
    ("MaxRegistrationsPerBlock", "max_registrations_per_block"),
    ("MinNonImmuneUids", "min_non_immune_uids"),
    ("MaxAllowedValidators", "max_allowed_validators"),
)
_COMMIT_REVEAL_VERSION = 4
SPEC_NAME = "node-subtensor"
_SYMBOL = "α"
_IDENTITY = (
    "subnet_name",
    "github_repo",
    "subnet_contact",
    "subnet_url",
    "discord",
    "description",
    "logo_url",
    "additional",
)


def write_genesis(state: Session, genesis: Genesis, created_ms: int) -> None:
    """Write the whole genesis state; raises `ConfigurationError` (GENESIS_INVALID)."""
    context = Context(state)
    state.put("System", "Number", value=0)
    state.put("Timestamp", "Now", value=created_ms)
    upgrade = {"spec_version": SPEC_VERSION, "spec_name": SPEC_NAME}
    state.put("System", "LastRuntimeUpgrade", value=upgrade)
    put(state, "CommitRevealWeightsVersion", value=_COMMIT_REVEAL_VERSION)
    put(state, "NetworksAdded", 0, value=True)
    put(state, "Tempo", 0, value=0)
    store_pulse(state, 0)
    for address, tao in genesis.balances.items():
        set_free(state, _account(address), tao * RAO_PER_TAO)
    for subnet in genesis.all_subnets():
        write_subnet(context, subnet)
    put(state, "TotalNetworks", value=len(netuids(state)))


def write_subnet(context: Context, spec: SubnetSpec) -> None:
    """Add one subnet with its neurons."""
    state, netuid = context.state, spec.netuid
    if netuid == 0 or subnet_exists(state, netuid):
        raise ConfigurationError("GENESIS_INVALID", f"netuid {netuid} is reserved or stands there twice.")
    if len(spec.neurons) > spec.max_allowed_uids:  # registering them would silently push out the first ones
        raise ConfigurationError(
            "GENESIS_INVALID",
            f"subnet {netuid} has {len(spec.neurons)} neurons and room for {spec.max_allowed_uids}.",
            hint="raise `max_allowed_uids`, or name fewer neurons",
        )
    put(state, "NetworksAdded", netuid, value=True)
    for item, field in _SPEC_FIELDS:
        put(state, item, netuid, value=getattr(spec, field))
    owner_hotkey = _account(spec.owner.hotkey) if spec.owner else NO_COLDKEY
    put(state, "SubnetOwner", netuid, value=_account(spec.owner.coldkey) if spec.owner else NO_COLDKEY)
    put(state, "SubnetOwnerHotkey", netuid, value=owner_hotkey)
    put(state, "NetworkRegisteredAt", netuid, value=context.block)
    put(state, "LastEpochBlock", netuid, value=context.block)
    put(state, "SubtokenEnabled", netuid, value=True)
    put(state, "TokenSymbol", netuid, value=_SYMBOL.encode())
    identity = dict.fromkeys(_IDENTITY, b"") | {"subnet_name": spec.name.encode()}
    put(state, "SubnetIdentitiesV3", netuid, value=identity)
    if spec.fixed_permits:
        fix_permits(state, netuid)
    for neuron in spec.neurons:
        hotkey = _account(neuron.hotkey)
        if is_registered(state, netuid, hotkey):
            raise ConfigurationError("GENESIS_INVALID", f"neuron {neuron.hotkey} stands in subnet {netuid} twice.")
        uid = register_neuron(context, netuid, hotkey, _account(neuron.coldkey))
        set_entry(state, "ValidatorPermit", netuid, uid, neuron.permit, blank=False)
        if neuron.stake:
            put(state, "TotalHotkeyAlpha", hotkey, netuid, value=neuron.stake * RAO_PER_TAO)


def _account(address: str) -> bytes:
    try:
        return account_id(address)
    except ValueError as error:
        raise ConfigurationError("GENESIS_INVALID", f"{address!r} is not an ss58 address.") from error
