"""Runtime APIs about delegates: the hotkeys under `Delegates`, which a genesis leaves empty and `dev_setItem` can fill.

Invariants
1. Nobody nominates here: a delegate's whole stake is its owner's. Returns are zero, since emission is not paid out.
"""

from __future__ import annotations

from typing import Any

from chain.devnet.api_registry import api
from chain.devnet.chain import Chain
from chain.devnet.codec import as_account
from chain.devnet.pallets import subtensor
from chain.devnet.scale import Reader
from chain.devnet.storage import StorageView


def _delegates(state: StorageView) -> list[bytes]:
    return sorted(as_account(hotkey) for hotkey, _ in state.entries(subtensor.PALLET, "Delegates"))


def _stakes(state: StorageView, hotkey: bytes) -> list[tuple[int, int]]:
    stakes = ((netuid, subtensor.stake_of(state, netuid, hotkey)) for netuid in subtensor.netuids(state))
    return [(netuid, stake) for netuid, stake in stakes if stake]


def _delegate(state: StorageView, hotkey: bytes) -> dict[str, Any]:
    owner, stakes = subtensor.coldkey_of(state, hotkey), _stakes(state, hotkey)
    uids = {netuid: subtensor.uid_of(state, netuid, hotkey) for netuid in subtensor.netuids(state)}
    registered = {netuid: uid for netuid, uid in uids.items() if uid is not None}
    return {
        "delegate_ss58": hotkey,
        "take": subtensor.get(state, "Delegates", hotkey),
        "nominators": [(owner, stakes)] if stakes else [],
        "owner_ss58": owner,
        "registrations": list(registered),
        "validator_permits": [
            netuid
            for netuid, uid in registered.items()
            if subtensor.entry_of(state, "ValidatorPermit", netuid, uid, blank=False)
        ],
        "return_per_1000": 0,
        "total_daily_return": 0,
    }


@api("DelegateInfoRuntimeApi", "get_delegates")
def get_delegates(_chain: Chain, state: StorageView, _arguments: Reader) -> list[dict[str, Any]]:
    """Return every delegate."""
    return [_delegate(state, hotkey) for hotkey in _delegates(state)]


@api("DelegateInfoRuntimeApi", "get_delegate")
def get_delegate(_chain: Chain, state: StorageView, arguments: Reader) -> dict[str, Any] | None:
    """Return one delegate, or None."""
    hotkey = arguments.take(32)
    return _delegate(state, hotkey) if hotkey in _delegates(state) else None


@api("DelegateInfoRuntimeApi", "get_delegated")
def get_delegated(
    _chain: Chain, state: StorageView, arguments: Reader
) -> list[tuple[dict[str, Any], tuple[int, int]]]:
    """Return the delegates behind which an account has stake, once for each subnet, with the stake in rao."""
    account = arguments.take(32)
    return [
        (_delegate(state, hotkey), position)
        for hotkey in _delegates(state)
        if subtensor.coldkey_of(state, hotkey) == account
        for position in _stakes(state, hotkey)
    ]
