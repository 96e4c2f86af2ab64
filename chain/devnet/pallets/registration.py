"""Registration of hotkeys on subnets.

Invariants
1. A full subnet gives the place of its lowest-incentive, earliest-registered neuron that is neither immune nor the
   owner's; the successor inherits the uid but no weights, permit, stake or score.
2. `burned_register` is signed by the coldkey, which pays the subnet's burn.
3. A new neuron's `LastUpdate` is 0, so its first weights are exempt from the rate limit.
"""

from __future__ import annotations

from chain.devnet.codec import as_account
from chain.devnet.context import Context, call
from chain.devnet.pallets.balances import EXISTENTIAL_DEPOSIT, free_balance, withdraw
from chain.devnet.pallets.subtensor import (
    PALLET,
    entry_of,
    fail,
    get,
    hotkey_of,
    is_registered,
    mechanisms,
    put,
    set_entry,
    size,
    storage_index,
    subnet_exists,
)
from chain.devnet.scale import Reader
from chain.devnet.storage import Session

_SCORES = ("Incentive", "Consensus", "Dividends", "Emission", "ValidatorTrust")
_PER_MECHANISM = ("Incentive", "LastUpdate")
NO_COLDKEY = bytes(32)


def register_neuron(context: Context, netuid: int, hotkey: bytes, coldkey: bytes) -> int:
    """Give a hotkey a uid on an existing subnet and return it; `coldkey` owns the hotkey if nobody does yet."""
    state = context.state
    if as_account(get(state, "Owner", hotkey)) == NO_COLDKEY:
        _own(state, hotkey, coldkey)
    uid = size(state, netuid)
    if uid < int(get(state, "MaxAllowedUids", netuid)):
        put(state, "SubnetworkN", netuid, value=uid + 1)
    else:
        uid = _vacate(state, netuid)
    put(state, "Uids", netuid, hotkey, value=uid)
    put(state, "Keys", netuid, uid, value=hotkey)
    put(state, "BlockAtRegistration", netuid, uid, value=context.block)
    put(state, "IsNetworkMember", hotkey, netuid, value=True)
    _blank(state, netuid, uid)
    context.emit(PALLET, "NeuronRegistered", (netuid, uid, hotkey))
    return uid


def _own(state: Session, hotkey: bytes, coldkey: bytes) -> None:
    put(state, "Owner", hotkey, value=coldkey)
    for item in ("OwnedHotkeys", "StakingHotkeys"):
        owned = [as_account(other) for other in get(state, item, coldkey)]
        put(state, item, coldkey, value=[*owned, hotkey])


def _blank(state: Session, netuid: int, uid: int) -> None:
    for item in _SCORES:
        if item not in _PER_MECHANISM:
            set_entry(state, item, netuid, uid, 0)
    set_entry(state, "Active", netuid, uid, True, blank=False)
    set_entry(state, "ValidatorPermit", netuid, uid, False, blank=False)
    for mechanism in mechanisms(state, netuid):
        index = storage_index(netuid, mechanism)
        for item in _PER_MECHANISM:
            set_entry(state, item, index, uid, 0)
        state.delete(PALLET, "Weights", index, uid)
        state.delete(PALLET, "Bonds", index, uid)


def _vacate(state: Session, netuid: int) -> int:
    """Unregister the neuron that has to make room and return its uid."""
    immunity = int(get(state, "ImmunityPeriod", netuid))
    owner = as_account(get(state, "SubnetOwnerHotkey", netuid))
    candidates = []
    for uid in range(size(state, netuid)):
        registered = int(get(state, "BlockAtRegistration", netuid, uid))
        if hotkey_of(state, netuid, uid) != owner:
            immune = state.block - registered < immunity
            candidates.append((immune, int(entry_of(state, "Incentive", netuid, uid)), registered, uid))
    if not candidates:
        raise fail("NoNeuronIdAvailable")
    uid = min(candidates)[3]
    leaving = hotkey_of(state, netuid, uid)
    state.delete(PALLET, "Uids", netuid, leaving)
    state.delete(PALLET, "IsNetworkMember", leaving, netuid)
    state.delete(PALLET, "Axons", netuid, leaving)
    return uid


@call(PALLET, "burned_register")
def burned_register(context: Context, signer: bytes, arguments: Reader) -> None:
    """Register a hotkey for the signing coldkey against the subnet's burn."""
    netuid, hotkey = arguments.unsigned(2), arguments.take(32)
    state = context.state
    if netuid == 0:
        raise fail("RegistrationNotPermittedOnRootSubnet")
    if not subnet_exists(state, netuid):
        raise fail("SubnetNotExists")
    if not get(state, "NetworkRegistrationAllowed", netuid):
        raise fail("SubNetRegistrationDisabled")
    if is_registered(state, netuid, hotkey):
        raise fail("HotKeyAlreadyRegisteredInSubNet")
    owner = as_account(get(state, "Owner", hotkey))
    if owner not in (NO_COLDKEY, signer):
        raise fail("NonAssociatedColdKey")
    burn = int(get(state, "Burn", netuid))
    if free_balance(state, signer) < burn + EXISTENTIAL_DEPOSIT:
        raise fail("NotEnoughBalanceToStake")
    withdraw(context, signer, burn)
    register_neuron(context, netuid, hotkey, signer)
