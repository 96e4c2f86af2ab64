"""Registration of hotkeys on subnets.

Invariants
1. A full subnet gives the place of the neuron with the least emission (then the oldest) that is neither immune nor
   the owner's; an immune one only when no more than `MinNonImmuneUids` others are left.
2. The successor begins with scores of zero and without bonds, but finds the uid's weights, last update and permit as
   its predecessor left them: only epochs change those. A neuron on a new uid begins with `LastUpdate` of this block.
3. `burned_register` is signed by the coldkey, which pays the subnet's burn.
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
    netuids,
    put,
    set_entry,
    size,
    storage_index,
    subnet_exists,
    uid_of,
)
from chain.devnet.scale import Reader
from chain.devnet.storage import Session, StorageView

_SCORES = ("Consensus", "Dividends", "Emission")
NO_COLDKEY = bytes(32)
_Q32 = 2**32


def register_neuron(context: Context, netuid: int, hotkey: bytes, coldkey: bytes) -> int:
    """Give a hotkey a uid on an existing subnet and return it; `coldkey` owns the hotkey if nobody does yet."""
    state = context.state
    if as_account(get(state, "Owner", hotkey)) == NO_COLDKEY:
        _own(state, hotkey, coldkey)
    uid = size(state, netuid)
    if uid < int(get(state, "MaxAllowedUids", netuid)):
        put(state, "SubnetworkN", netuid, value=uid + 1)
        _append(state, netuid, uid)
    else:
        uid = _uid_to_prune(state, netuid)
        _clear(state, netuid, uid)
    put(state, "Uids", netuid, hotkey, value=uid)
    put(state, "Keys", netuid, uid, value=hotkey)
    put(state, "BlockAtRegistration", netuid, uid, value=context.block)
    put(state, "IsNetworkMember", hotkey, netuid, value=True)
    set_entry(state, "Active", netuid, uid, True, blank=False)
    context.emit(PALLET, "NeuronRegistered", (netuid, uid, hotkey))
    return uid


def _own(state: Session, hotkey: bytes, coldkey: bytes) -> None:
    put(state, "Owner", hotkey, value=coldkey)
    for item in ("OwnedHotkeys", "StakingHotkeys"):
        owned = [as_account(other) for other in get(state, item, coldkey)]
        put(state, item, coldkey, value=[*owned, hotkey])


def _append(state: Session, netuid: int, uid: int) -> None:
    for item in (*_SCORES, "ValidatorTrust"):
        set_entry(state, item, netuid, uid, 0)
    set_entry(state, "ValidatorPermit", netuid, uid, False, blank=False)
    for mechanism in mechanisms(state, netuid):
        index = storage_index(netuid, mechanism)
        set_entry(state, "Incentive", index, uid, 0)
        set_entry(state, "LastUpdate", index, uid, state.block)


def _clear(state: Session, netuid: int, uid: int) -> None:
    leaving = hotkey_of(state, netuid, uid)
    state.delete(PALLET, "Uids", netuid, leaving)
    state.delete(PALLET, "IsNetworkMember", leaving, netuid)
    state.delete(PALLET, "Axons", netuid, leaving)
    for item in _SCORES:
        set_entry(state, item, netuid, uid, 0)
    for mechanism in mechanisms(state, netuid):
        index = storage_index(netuid, mechanism)
        set_entry(state, "Incentive", index, uid, 0)
        state.delete(PALLET, "Bonds", index, uid)


def _immortal(state: StorageView, netuid: int) -> set[bytes]:
    """Return the owner's hotkeys that are never pruned: the subnet's own first, then the oldest."""
    coldkey = as_account(get(state, "SubnetOwner", netuid))
    own = as_account(get(state, "SubnetOwnerHotkey", netuid))
    ranked = []
    for hotkey in {own, *map(as_account, get(state, "OwnedHotkeys", coldkey))}:
        uid = uid_of(state, netuid, hotkey)
        if uid is not None:
            ranked.append((hotkey != own, int(get(state, "BlockAtRegistration", netuid, uid)), uid, hotkey))
    return {each[3] for each in sorted(ranked)[: int(get(state, "ImmuneOwnerUidsLimit", netuid))]}


def _uid_to_prune(state: StorageView, netuid: int) -> int:
    """Return the uid of the neuron that has to make room; raises `NoNeuronIdAvailable`."""
    immunity, immortal = int(get(state, "ImmunityPeriod", netuid)), _immortal(state, netuid)
    immune: list[tuple[int, int, int]] = []
    free: list[tuple[int, int, int]] = []
    for uid in range(size(state, netuid)):
        if hotkey_of(state, netuid, uid) not in immortal:
            registered = int(get(state, "BlockAtRegistration", netuid, uid))
            rank = (int(entry_of(state, "Emission", netuid, uid)), registered, uid)
            (immune if state.block - registered < immunity else free).append(rank)
    candidates = free if len(free) > int(get(state, "MinNonImmuneUids", netuid)) else immune
    if not candidates:
        raise fail("NoNeuronIdAvailable")
    return min(candidates)[2]


def start_block(context: Context) -> None:
    """Let the burn of every subnet decay and count its registrations anew."""
    state = context.state
    for netuid in netuids(state):
        half_life, burn = int(get(state, "BurnHalfLife", netuid)), int(get(state, "Burn", netuid))
        if half_life:
            decayed = burn * int(_Q32 * 0.5 ** (1 / half_life)) // _Q32
            _set_burn(state, netuid, burn, decayed)
        if int(get(state, "RegistrationsThisBlock", netuid)):
            put(state, "RegistrationsThisBlock", netuid, value=0)


def _set_burn(state: Session, netuid: int, old: int, new: int) -> None:
    bounded = min(max(new, int(get(state, "MinBurn", netuid))), int(get(state, "MaxBurn", netuid)))
    if bounded != old:
        put(state, "Burn", netuid, value=bounded)


def _burned_register(context: Context, signer: bytes, netuid: int, hotkey: bytes, limit_price: int | None) -> None:
    state = context.state
    if netuid == 0:
        raise fail("RegistrationNotPermittedOnRootSubnet")
    if not subnet_exists(state, netuid):
        raise fail("SubnetNotExists")
    if not get(state, "NetworkRegistrationAllowed", netuid):
        raise fail("SubNetRegistrationDisabled")
    made = int(get(state, "RegistrationsThisBlock", netuid))
    if made >= int(get(state, "MaxRegistrationsPerBlock", netuid)):
        raise fail("TooManyRegistrationsThisBlock")
    if is_registered(state, netuid, hotkey):
        raise fail("HotKeyAlreadyRegisteredInSubNet")
    burn = int(get(state, "Burn", netuid))
    if limit_price is not None and burn > limit_price:
        raise fail("RegistrationPriceLimitExceeded")
    if free_balance(state, signer) < burn + EXISTENTIAL_DEPOSIT:
        raise fail("NotEnoughBalanceToStake")
    if as_account(get(state, "Owner", hotkey)) not in (NO_COLDKEY, signer):
        raise fail("NonAssociatedColdKey")
    withdraw(context, signer, burn)
    register_neuron(context, netuid, hotkey, signer)
    put(state, "RegistrationsThisBlock", netuid, value=made + 1)
    for item in ("RegistrationsThisInterval", "BurnRegistrationsThisInterval"):
        put(state, item, netuid, value=int(get(state, item, netuid)) + 1)
    recycled = int(get(state, "RAORecycledForRegistration", netuid))
    put(state, "RAORecycledForRegistration", netuid, value=recycled + burn)
    if int(get(state, "BurnHalfLife", netuid)):
        raised = burn * int(get(state, "BurnIncreaseMult", netuid)["bits"]) >> 64
        _set_burn(state, netuid, burn, raised)


@call(PALLET, "burned_register")
def burned_register(context: Context, signer: bytes, arguments: Reader) -> None:
    """Register a hotkey for the signing coldkey against the subnet's burn."""
    _burned_register(context, signer, arguments.unsigned(2), arguments.take(32), None)


@call(PALLET, "register_limit")
def register_limit(context: Context, signer: bytes, arguments: Reader) -> None:
    """Register like `burned_register`, unless the burn is above the limit the signer names (rao)."""
    _burned_register(context, signer, arguments.unsigned(2), arguments.take(32), arguments.unsigned(8))
