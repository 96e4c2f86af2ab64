"""The `dev_*` methods: what a test does to the chain from outside the protocol.

Invariants
1. Every change is made in a block of its own, so it has history, survives a restart and is announced like any other.
   A fork makes several.
2. They exist only on the loopback listener and can be switched off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from chain.devnet import faults
from chain.devnet.chain import ForkError
from chain.devnet.codec import account_id
from chain.devnet.context import Context
from chain.devnet.faults import DispatchError, RpcError
from chain.devnet.genesis import write_subnet
from chain.devnet.genesis_document import SubnetSpec
from chain.devnet.pallets import balances, registration, subtensor
from chain.devnet.rpc import Call, method
from chain.devnet.scale import from_hex
from config.errors import ConfigurationError

_BLOCKS_AT_ONCE = 10_000


@method("dev_newBlock")
def new_block(call: Call) -> str:
    """Make `count` blocks (default 1) and return the hash of the last."""
    count = 1 if call.get(0) is None else call.number(0)
    if not 1 <= count <= _BLOCKS_AT_ONCE:
        raise RpcError(faults.INVALID_PARAMS, f"between 1 and {_BLOCKS_AT_ONCE} blocks can be made at once")
    for _ in range(count):
        block = call.chain.build()
    return block.hash_hex


@method("dev_fork")
def fork(call: Call) -> dict[str, Any]:
    """Retract the newest `depth` blocks and make `blocks` others (default: one more): `[depth, blocks]`."""
    try:
        done = call.chain.fork(call.number(0), None if call.get(1) is None else call.number(1))
    except ForkError as error:
        raise RpcError(faults.SERVER_ERROR, f"refused: {error}") from error
    return {
        "retracted": [block.hash_hex for block in done.retracted],
        "enacted": [block.hash_hex for block in done.enacted],
    }


def _change(call: Call, change: Callable[[Context], None]) -> str:
    try:
        return call.chain.build(change).hash_hex
    except DispatchError as error:
        raise RpcError(faults.SERVER_ERROR, f"refused: {error}") from error


@method("dev_upgradeRuntime")
def upgrade_runtime(call: Call) -> str:
    """Change the runtime in a block: `[spec_version, metadata]`, by default the next number with today's metadata."""
    version, metadata = (None if call.get(index) is None else call.number(index) for index in (0, 1))
    try:
        return call.chain.upgrade(version, metadata).hash_hex
    except ValueError as error:
        raise RpcError(faults.SERVER_ERROR, f"refused: {error}") from error


@method("dev_register")
def register(call: Call) -> dict[str, Any]:
    """Register `[netuid, hotkey, coldkey]` without a fee and return its uid."""
    netuid, hotkey, coldkey = call.number(0), account_id(call.text(1)), account_id(call.text(2))

    def change(context: Context) -> None:
        if not subtensor.subnet_exists(context.state, netuid):
            raise subtensor.fail("SubnetNotExists")
        if subtensor.is_registered(context.state, netuid, hotkey):
            raise subtensor.fail("HotKeyAlreadyRegisteredInSubNet")
        registration.register_neuron(context, netuid, hotkey, coldkey)

    block_hash = _change(call, change)
    return {"uid": subtensor.uid_of(call.chain.view(), netuid, hotkey), "block": block_hash}


@method("dev_setPermit")
def set_permit(call: Call) -> str:
    """Give or take the validator permit: `[netuid, hotkey, permit]`."""
    netuid, hotkey, permit = call.number(0), account_id(call.text(1)), bool(call.get(2))

    def change(context: Context) -> None:
        uid = subtensor.require_uid(context.state, netuid, hotkey)
        subtensor.set_entry(context.state, "ValidatorPermit", netuid, uid, permit, blank=False)

    return _change(call, change)


@method("dev_setStake")
def set_stake(call: Call) -> str:
    """Set the stake of a hotkey in rao: `[netuid, hotkey, rao]`."""
    netuid, hotkey, rao = call.number(0), account_id(call.text(1)), call.number(2)
    return _change(call, lambda context: subtensor.put(context.state, "TotalHotkeyAlpha", hotkey, netuid, value=rao))


@method("dev_setBalance")
def set_balance(call: Call) -> str:
    """Set a free balance in rao: `[address, rao]`."""
    account, rao = account_id(call.text(0)), call.number(1)
    return _change(call, lambda context: balances.set_free(context.state, account, rao))


@method("dev_addSubnet")
def add_subnet(call: Call) -> str:
    """Add a subnet from the document a genesis uses for one: `[document]`."""
    try:
        spec = msgspec.convert(call.get(0), SubnetSpec)
    except msgspec.ValidationError as error:
        raise RpcError(faults.INVALID_PARAMS, f"Invalid params: {error}") from error
    try:
        return call.chain.build(lambda context: write_subnet(context, spec)).hash_hex
    except ConfigurationError as error:
        raise RpcError(faults.SERVER_ERROR, f"refused: {error}") from error


@method("dev_setStorage")
def set_storage(call: Call) -> str:
    """Write raw storage: `[[key, value or null], ...]`, all hexadecimal."""
    pairs = call.get(0)
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise RpcError(faults.INVALID_PARAMS, "Invalid params: a list of [key, value] pairs is needed")
    writes = [(from_hex(key), None if value is None else from_hex(value)) for key, value in pairs]

    def change(context: Context) -> None:
        for key, value in writes:
            context.state.put_raw(key, value)

    return _change(call, change)


@method("dev_setItem")
def set_item(call: Call) -> str:
    """Write one storage item: `[pallet, item, [keys], value]`, the value in the codec's plain form."""
    pallet, item, keys, value = call.text(0), call.text(1), call.get(2) or [], call.get(3)
    key, raw = call.chain.codec.key(pallet, item, tuple(keys)), None
    if value is not None:
        raw = call.chain.codec.encode_value(pallet, item, value)
    return _change(call, lambda context: context.state.put_raw(key, raw))
