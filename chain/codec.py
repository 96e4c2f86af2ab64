"""Storage keys and values through the SDK's codec of one runtime.

Invariants
1. Items are named by `chain.abi.Storage`; nothing here knows another name.
2. A missing value follows the runtime's own rule: its default, or None for an optional item.
3. The codec object is the SDK's and stays opaque outside this module and `chain.client`.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from chain.abi import Call, RuntimeNames, Storage
from chain.events import ChainEvent
from chain.transport_errors import plain

StorageRead: TypeAlias = tuple[Storage, list[object]]
EMPTY_ADDRESS = "5C4hrfjw9DjXZTzV3MwzrrAr9P1MJhSrvWGWqi1eSuyUpnhM"  # the account of 32 zero bytes: "nobody"
SS58_FORMAT = 42


class NestedCall(msgspec.Struct, frozen=True):
    """A call that is an argument of another one, such as an item of a batch."""

    call: Call
    arguments: Mapping[str, object]


def compose_call(codec: Any, call: Call, arguments: Mapping[str, object]) -> Any:
    """Return the SDK's composed form of a call, its nested calls included."""
    plain = {name: _composed(codec, value) for name, value in arguments.items()}
    return codec.compose_call(call.pallet, call.item, plain)


def _composed(codec: Any, value: object) -> object:
    if isinstance(value, NestedCall):
        return compose_call(codec, value.call, value.arguments)
    return [_composed(codec, item) for item in value] if isinstance(value, list) else value


def address_of(public_key: bytes) -> str:
    """Return the SS58 address of a 32-byte public key."""
    return str(importlib.import_module("bittensor_core").ss58_encode(public_key, SS58_FORMAT))


def storage_key(codec: Any, read: StorageRead) -> bytes:
    """Return the full key of an item, or the prefix of a map when parameters are left out."""
    item, params = read
    return bytes(codec.storage_key(codec.storage_entry(item.pallet, item.item), params))


def decode_value(codec: Any, item: Storage, raw: bytes | None) -> Any:
    """Return the plain value of raw storage bytes."""
    entry = codec.storage_entry(item.pallet, item.item)
    if raw is not None:
        return codec.decode(entry.value_type, raw)
    return None if entry.modifier == "Optional" else codec.decode(entry.value_type, entry.default_bytes)


def decode_events(codec: Any, raw: bytes | None) -> tuple[ChainEvent, ...]:
    """Return the events of a block from the raw value of `System.Events`."""
    records = decode_value(codec, Storage.EVENTS, raw)
    return tuple(
        ChainEvent(
            index=index,
            extrinsic_index=record["extrinsic_idx"],
            pallet=record["module_id"],
            name=record["event_id"],
            attributes=record["attributes"],
        )
        for index, record in enumerate(records)
    )


def runtime_names(codec: Any) -> RuntimeNames:
    """Return every name of the runtime behind `codec`, and whether a call can be signed for it."""
    pallets = codec.metadata_ir().pallets
    return RuntimeNames(
        storage=frozenset(f"{pallet.name}.{item.name}" for pallet in pallets for item in pallet.storage),
        events=frozenset(_event_names(json.loads(codec._rt.registry_json())["types"])),  # noqa: SLF001 - no public way
        calls={
            f"{pallet.name}.{call.name}": frozenset(argument.name for argument in call.args)
            for pallet in pallets
            for call in pallet.calls
        },
        constants=frozenset(f"{pallet.name}.{name}" for pallet in pallets for name in pallet.constants),
        errors=frozenset(f"{pallet.name}.{error.name}" for pallet in pallets for error in pallet.errors),
        extensions=tuple(codec.signed_extension_identifiers()),
        signing_problem=_signing_problem(codec),
    )


def _signing_problem(codec: Any) -> str:
    """Build the payload of an empty call: an extension that the codec does not know would end every signature so."""
    zero = "0x" + bytes(32).hex()
    try:
        codec.signature_payload_parts(
            b"\x00\x00", era={"period": 64, "current": 64}, nonce=0, tip=0, tip_asset_id=None, genesis_hash=zero,
            era_block_hash=zero,
        )
    except Exception as error:  # noqa: BLE001 - the codec is Rust behind a binding; whatever it says is the problem
        return plain(error) or type(error).__name__
    return ""


def _event_names(types: list[dict[str, Any]]) -> Iterable[str]:
    """Yield `Pallet.Event` by walking the runtime's outer event enumeration."""
    by_id = {entry["id"]: entry["type"] for entry in types}
    for entry in types:
        path = entry["type"].get("path") or []
        if path and path[-1] == "RuntimeEvent":
            for pallet in entry["type"]["def"]["variant"]["variants"]:
                for field in pallet["fields"]:
                    inner = by_id[field["type"]]["def"].get("variant") or {"variants": []}
                    for event in inner["variants"]:
                        yield f"{pallet['name']}.{event['name']}"
