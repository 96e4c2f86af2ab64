"""SubtensorModule, the parts every other file of this pallet needs: who is registered, and per-uid vectors.

Invariants
1. `Uids` and `Keys` of a subnet are inverse to each other, for uids below `SubnetworkN`.
2. Vectors indexed by uid have one entry per registered neuron, in every mechanism.
3. A mechanism's vectors and weights live under `mechanism * MECHANISM_STRIDE + netuid`.
"""

from __future__ import annotations

from typing import Any

from chain.devnet.codec import as_account
from chain.devnet.faults import DispatchError
from chain.devnet.storage import Session, StorageView

PALLET = "SubtensorModule"
MECHANISM_STRIDE = 4096
U16_MAX = 65_535


def fail(name: str) -> DispatchError:
    """Return this pallet's error of that name."""
    return DispatchError(PALLET, name)


def get(state: StorageView, item: str, *params: Any) -> Any:
    """Return a decoded value of this pallet."""
    return state.get(PALLET, item, *params)


def put(state: Session, item: str, *params: Any, value: Any) -> None:
    """Write a value of this pallet."""
    state.put(PALLET, item, *params, value=value)


def storage_index(netuid: int, mechanism: int) -> int:
    """Return the key of a mechanism's vectors; mechanism 0 has the netuid itself."""
    return mechanism * MECHANISM_STRIDE + netuid


def mechanisms(state: StorageView, netuid: int) -> range:
    """Return the mechanisms of a subnet."""
    return range(int(get(state, "MechanismCountCurrent", netuid)))


def subnet_exists(state: StorageView, netuid: int) -> bool:
    """Say whether the subnet is there."""
    return bool(get(state, "NetworksAdded", netuid))


def require_mechanism(state: StorageView, netuid: int, mechanism: int) -> None:
    """Raise `SubnetNotExists` or `MechanismDoesNotExist`."""
    if not subnet_exists(state, netuid):
        raise fail("SubnetNotExists")
    if mechanism not in mechanisms(state, netuid):
        raise fail("MechanismDoesNotExist")


def netuids(state: StorageView) -> list[int]:
    """Return the existing subnets in ascending order."""
    return sorted(int(netuid) for netuid, raw in state.entries(PALLET, "NetworksAdded") if raw == b"\x01")


def size(state: StorageView, netuid: int) -> int:
    """Return the number of registered neurons."""
    return int(get(state, "SubnetworkN", netuid))


def uid_of(state: StorageView, netuid: int, hotkey: bytes) -> int | None:
    """Return the uid of a hotkey, or None."""
    found = get(state, "Uids", netuid, hotkey)
    return None if found is None else int(found)


def require_uid(state: StorageView, netuid: int, hotkey: bytes) -> int:
    """Return the uid of a hotkey or raise `HotKeyNotRegisteredInSubNet`."""
    uid = uid_of(state, netuid, hotkey)
    if uid is None:
        raise fail("HotKeyNotRegisteredInSubNet")
    return uid


def is_registered(state: StorageView, netuid: int, hotkey: bytes) -> bool:
    """Say whether a hotkey is registered on a subnet."""
    return uid_of(state, netuid, hotkey) is not None


def hotkey_of(state: StorageView, netuid: int, uid: int) -> bytes:
    """Return the hotkey of a registered uid."""
    return as_account(get(state, "Keys", netuid, uid))


def coldkey_of(state: StorageView, hotkey: bytes) -> bytes:
    """Return the owner of a hotkey."""
    return as_account(get(state, "Owner", hotkey))


def stake_of(state: StorageView, netuid: int, hotkey: bytes) -> int:
    """Return the alpha staked to a hotkey on a subnet, in rao."""
    return int(get(state, "TotalHotkeyAlpha", hotkey, netuid))


def _fixed_permits_key(netuid: int) -> bytes:
    # No item of the runtime says this, so it stands under a key outside all pallets.
    return b":devnet:fixed_permits:" + netuid.to_bytes(2, "little")


def fix_permits(state: Session, netuid: int) -> None:
    """Keep the validator permits of a subnet from changing at epochs."""
    state.put_raw(_fixed_permits_key(netuid), b"\x01")


def permits_are_fixed(state: StorageView, netuid: int) -> bool:
    """Say whether epochs leave the validator permits of a subnet alone."""
    return state.raw(_fixed_permits_key(netuid)) is not None


def set_entry(state: Session, item: str, index: int, uid: int, value: Any, *, blank: Any = 0) -> None:
    """Set one entry of a per-uid vector, growing it with `blank`."""
    vector = list(get(state, item, index))
    vector.extend([blank] * (uid + 1 - len(vector)))
    vector[uid] = value
    put(state, item, index, value=vector)


def entry_of(state: StorageView, item: str, index: int, uid: int, *, blank: Any = 0) -> Any:
    """Return one entry of a per-uid vector."""
    vector = get(state, item, index)
    return vector[uid] if uid < len(vector) else blank
