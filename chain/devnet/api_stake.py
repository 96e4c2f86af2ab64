"""Runtime APIs about stake: a hotkey's whole stake is its owner's."""

from __future__ import annotations

from typing import Any

from chain.devnet.api_registry import api
from chain.devnet.chain import Chain
from chain.devnet.codec import as_account
from chain.devnet.pallets import subtensor
from chain.devnet.scale import Reader
from chain.devnet.storage import StorageView


def _position(state: StorageView, coldkey: bytes, hotkey: bytes, netuid: int) -> dict[str, Any]:
    return {
        "hotkey": hotkey,
        "coldkey": coldkey,
        "netuid": netuid,
        "stake": subtensor.stake_of(state, netuid, hotkey),
        "locked": 0,
        "emission": 0,
        "tao_emission": 0,
        "drain": 0,
        "is_registered": subtensor.is_registered(state, netuid, hotkey),
    }


def _positions(state: StorageView, coldkey: bytes) -> list[dict[str, Any]]:
    hotkeys = [as_account(hotkey) for hotkey in subtensor.get(state, "OwnedHotkeys", coldkey)]
    return [
        _position(state, coldkey, hotkey, netuid)
        for hotkey in hotkeys
        for netuid in subtensor.netuids(state)
        if subtensor.stake_of(state, netuid, hotkey)
    ]


@api("StakeInfoRuntimeApi", "get_stake_info_for_coldkey")
def get_stake_info_for_coldkey(_chain: Chain, state: StorageView, arguments: Reader) -> list[dict[str, Any]]:
    """Return the stakes of a coldkey's own hotkeys."""
    return _positions(state, arguments.take(32))


@api("StakeInfoRuntimeApi", "get_stake_info_for_coldkeys")
def get_stake_info_for_coldkeys(
    _chain: Chain, state: StorageView, arguments: Reader
) -> list[tuple[bytes, list[dict[str, Any]]]]:
    """Return the stakes of several coldkeys."""
    coldkeys = [arguments.take(32) for _ in range(arguments.compact())]
    return [(coldkey, _positions(state, coldkey)) for coldkey in coldkeys]


@api("StakeInfoRuntimeApi", "get_stake_info_for_hotkey_coldkey_netuid")
def get_stake_info_for_hotkey_coldkey_netuid(
    _chain: Chain, state: StorageView, arguments: Reader
) -> dict[str, Any]:
    """Return one stake; zero when the coldkey does not own the hotkey."""
    hotkey, coldkey, netuid = arguments.take(32), arguments.take(32), arguments.unsigned(2)
    position = _position(state, coldkey, hotkey, netuid)
    if subtensor.coldkey_of(state, hotkey) != coldkey:
        position["stake"] = 0
    return position


@api("StakeInfoRuntimeApi", "get_stake_availability_for_coldkeys")
def get_stake_availability_for_coldkeys(
    _chain: Chain, state: StorageView, arguments: Reader
) -> dict[bytes, dict[int, dict[str, int]]]:
    """Return, per coldkey and subnet, the whole stake in rao and how much of it is free; nothing is ever locked."""
    coldkeys = [arguments.take(32) for _ in range(arguments.compact())]
    netuids = arguments.u16_vector() if arguments.unsigned(1) else subtensor.netuids(state)
    found = {}
    for coldkey in sorted(coldkeys):
        totals = {
            netuid: sum(each["stake"] for each in _positions(state, coldkey) if each["netuid"] == netuid)
            for netuid in sorted(set(netuids))
        }
        found[coldkey] = {
            netuid: {"total": total, "locked": 0, "available": total} for netuid, total in totals.items()
        }
    return found


@api("StakeInfoRuntimeApi", "get_coldkey_lock")
def get_coldkey_lock(_chain: Chain, _state: StorageView, _arguments: Reader) -> None:
    """Return None: stake cannot be locked here."""


@api("StakeInfoRuntimeApi", "get_stake_fee")
def get_stake_fee(_chain: Chain, _state: StorageView, _arguments: Reader) -> int:
    """Return no fee."""
    return 0
