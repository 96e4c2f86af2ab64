"""The `state_*` methods: storage at any block, metadata and runtime calls."""

from __future__ import annotations

from typing import Any

from chain.devnet import faults, runtime_api
from chain.devnet.fault_events import disturbed
from chain.devnet.faults import RpcError
from chain.devnet.rpc import Call, method
from chain.devnet.rpc_chain import block_at
from chain.devnet.scale import from_hex, to_hex
from chain.devnet.storage import StorageView

_PAGE_LIMIT = 1_000


def _hex_or_none(raw: bytes | None) -> str | None:
    return None if raw is None else to_hex(raw)


def _told(call: Call, view: StorageView, key: bytes) -> bytes | None:
    return disturbed(call.node.faults, call.name, view.codec, key, view.raw(key))


@method("state_getStorage", "state_getStorageAt")
def get_storage(call: Call) -> str | None:
    """Return the value under a full key."""
    return _hex_or_none(_told(call, call.chain.view(block_at(call, 1)), from_hex(call.text(0))))


@method("state_getStorageSize", "state_getStorageSizeAt")
def get_storage_size(call: Call) -> int | None:
    """Return the length of the value under a full key."""
    raw = call.chain.view(block_at(call, 1)).raw(from_hex(call.text(0)))
    return None if raw is None else len(raw)


@method("state_queryStorageAt")
def query_storage_at(call: Call) -> list[dict[str, Any]]:
    """Return the values under several full keys at one block."""
    keys = call.get(0)
    if not isinstance(keys, list):
        raise RpcError(faults.INVALID_PARAMS, "Invalid params: a list of keys is needed")
    block = block_at(call, 1)
    view = call.chain.view(block)
    changes = [[key, _hex_or_none(_told(call, view, from_hex(key)))] for key in keys]
    return [{"block": block.hash_hex, "changes": changes}]


@method("state_getKeysPaged", "state_getKeysPagedAt")
def get_keys_paged(call: Call) -> list[str]:
    """Return at most 1,000 keys with a prefix, in byte order, after a given one."""
    prefix, count = from_hex(call.text(0)), call.number(1)
    if count > _PAGE_LIMIT:
        raise RpcError(faults.TOO_MANY_KEYS, f"count exceeds maximum value. value: {count}, max: {_PAGE_LIMIT}")
    after = from_hex(call.get(2)) if call.get(2) else b""
    return [to_hex(key) for key in call.chain.view(block_at(call, 3)).key_page(prefix, after, count)]


@method("state_getKeys")
def get_keys(call: Call) -> list[str]:
    """Return all keys with a prefix."""
    return [to_hex(key) for key in call.chain.view(block_at(call, 1)).raw_keys(from_hex(call.text(0)))]


@method("state_getPairs")
def get_pairs(call: Call) -> list[list[str | None]]:
    """Return all keys with a prefix and their values."""
    view = call.chain.view(block_at(call, 1))
    return [[to_hex(key), _hex_or_none(view.raw(key))] for key in view.raw_keys(from_hex(call.text(0)))]


@method("state_getMetadata")
def get_metadata(call: Call) -> str:
    """Return the metadata at a block in format 14."""
    return to_hex(call.chain.codec_at(block_at(call, 0)).metadata(14))


@method("state_call", "state_callAt")
def state_call(call: Call) -> str:
    """Call a runtime API at a block."""
    block = block_at(call, 2)
    return to_hex(runtime_api.invoke(call.chain, call.text(0), from_hex(call.text(1)), block))
