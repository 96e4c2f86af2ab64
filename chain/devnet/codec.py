"""The real Subtensor metadata and the SDK's Rust codec, behind one small typed class.

Invariants
1. This is the only module of the node that imports `bittensor_core`, and it does so when first used.
2. One codec per runtime, made when first needed: what a block holds is decoded by the runtime of that block.
3. Accounts are raw 32-byte public keys everywhere inside the node; ss58 text exists only at the edges.
"""

from __future__ import annotations

import functools
import importlib
import json
from typing import Any

from chain.devnet import runtime_spec
from chain.devnet.runtime_spec import RuntimeSpec, metadata_of, version_document
from chain.devnet.scale import ScaleError, from_hex

SPEC_VERSION = runtime_spec.SPEC_VERSION
TRANSACTION_VERSION = runtime_spec.TRANSACTION_VERSION
SS58_FORMAT = 42
SIGNATURE_ED25519 = 0
SIGNATURE_SR25519 = 1
_KEY_CACHE_LIMIT = 50_000
_TEMPLATE_BYTES = 4_096


@functools.cache
def core() -> Any:
    """Return the `bittensor_core` module."""
    return importlib.import_module("bittensor_core")


@functools.lru_cache(maxsize=16)
def codec_of(spec: RuntimeSpec) -> Codec:
    """Return the codec of a runtime."""
    return Codec(spec)


def codec() -> Codec:
    """Return the codec of the default runtime."""
    return codec_of(RuntimeSpec())


def account_id(address: str) -> bytes:
    """Return the 32-byte public key of an ss58 address; raises `ValueError` for anything else."""
    raw = bytes(core().ss58_decode(address))
    if len(raw) != 32:
        raise ValueError(f"{address} is not a 32-byte account")
    return raw


@functools.lru_cache(maxsize=10_000)
def ss58(account: bytes) -> str:
    """Return the ss58 address of a 32-byte public key."""
    return str(core().ss58_encode(account, SS58_FORMAT))


def verify_signature(payload: bytes, signature: bytes, account: bytes, kind: int) -> bool:
    """Say whether `signature` over `payload` was made by `account`; `kind` is the MultiSignature index."""
    module = core()
    scheme = {SIGNATURE_ED25519: module.CRYPTO_ED25519, SIGNATURE_SR25519: module.CRYPTO_SR25519}.get(kind)
    if scheme is None:
        return False
    try:
        return bool(module.verify(payload, signature, ss58(account), scheme))
    except ValueError:
        return False


class Codec:
    """Storage keys and values, calls, events and runtime-API values of one runtime."""

    def __init__(self, spec: RuntimeSpec) -> None:
        self.spec = spec
        self._runtime = core().Runtime(self.metadata(15), spec.version, TRANSACTION_VERSION, SS58_FORMAT)
        ir = self._runtime.metadata_ir()
        self._errors = {
            (pallet["name"], error["name"]): (pallet["index"], error["index"])
            for pallet in ir["pallets"]
            for error in pallet["errors"]
        }
        self._apis = self._runtime.runtime_api_map()
        self._entries: dict[tuple[str, str], Any] = {}
        self._keys: dict[tuple[Any, ...], bytes] = {}
        self._call_names: dict[bytes, tuple[str, str]] = {}

    def metadata(self, form: int) -> bytes:
        """Return the raw metadata in format 14 or 15."""
        return metadata_of(self.spec, form)

    def version_document(self) -> dict[str, Any]:
        """Return the JSON-RPC form of the runtime version."""
        return version_document(self.spec, self.constant("System", "Version"))

    def entry(self, pallet: str, item: str) -> Any:
        """Return the metadata entry of a storage item; raises `KeyError` for an unknown one."""
        found = self._entries.get((pallet, item))
        if found is None:
            found = self._entries[pallet, item] = self._runtime.storage_entry(pallet, item)
        return found

    def key(self, pallet: str, item: str, params: tuple[Any, ...] = ()) -> bytes:
        """Return the full storage key; with fewer parameters than the map has, the prefix of its keys."""
        name = (pallet, item, *params)
        found = self._keys.get(name)
        if found is None:
            if len(self._keys) >= _KEY_CACHE_LIMIT:
                self._keys.clear()
            found = self._keys[name] = bytes(self._runtime.storage_key(pallet, item, list(params)))
        return found

    def map_keys(self, pallet: str, item: str, key: bytes, fixed: int = 0) -> Any:
        """Return the decoded map-key part of a full storage key after `fixed` leading ones; a tuple if several."""
        parts = self._runtime.decode_storage_key_params(pallet, item, key, fixed)
        return parts[0] if len(parts) == 1 else tuple(parts)

    def decode_value(self, pallet: str, item: str, raw: bytes | None) -> Any:
        """Decode a stored value; a missing one becomes its default, or None for an optional item."""
        entry = self.entry(pallet, item)
        if raw is None:
            if entry.modifier == "Optional":
                return None
            raw = bytes(entry.default_bytes)
        return self._runtime.decode(entry.value_type, raw)

    def encode_value(self, pallet: str, item: str, value: Any) -> bytes:
        """Encode a value for storage."""
        return bytes(self._runtime.encode(self.entry(pallet, item).value_type, value))

    def encode(self, type_name: str, value: Any) -> bytes:
        """Encode `value` as a type of the metadata."""
        return bytes(self._runtime.encode(type_name, value))

    def decode(self, type_name: str, raw: bytes) -> Any:
        """Decode `raw` as a type of the metadata."""
        return self._runtime.decode(type_name, raw)

    def template(self, type_name: str, *, optional: bool) -> Any:
        """Return the all-zero value of a type; for an optional type, of its content."""
        zeros = bytes(_TEMPLATE_BYTES)
        return self._runtime.decode(type_name, b"\x01" + zeros if optional else zeros, False)

    def compose_call(self, pallet: str, call: str, params: dict[str, Any]) -> bytes:
        """Return the encoding of a call."""
        return bytes(self._runtime.compose_call(pallet, call, params))

    def decode_call(self, raw: bytes) -> dict[str, Any]:
        """Decode a whole call; raises `ValueError` when bytes are missing, left over or unknown."""
        decoded: dict[str, Any] = self._runtime.decode_call(raw)
        return decoded

    def call_name(self, index: bytes) -> tuple[str, str]:
        """Return the pallet and function of a two-byte call index; raises `ScaleError` for an unknown one."""
        if not self._call_names:
            self._call_names = self._read_call_names()
        found = self._call_names.get(index)
        if found is None:
            raise ScaleError(f"no call at index {index.hex()}")
        return found

    def _read_call_names(self) -> dict[bytes, tuple[str, str]]:
        types = {entry["id"]: entry["type"] for entry in json.loads(self._runtime.registry_json())["types"]}
        (outer,) = (kind for kind in types.values() if kind.get("path", [])[-1:] == ["RuntimeCall"])
        return {
            bytes([pallet["index"], function["index"]]): (pallet["name"], function["name"])
            for pallet in outer["def"]["variant"]["variants"]
            for function in types[pallet["fields"][0]["type"]]["def"]["variant"].get("variants", ())
        }

    def module_error(self, pallet: str, name: str) -> tuple[int, int]:
        """Return the pallet index and error index of a dispatch error."""
        return self._errors[pallet, name]

    def api_method(self, api: str, method: str) -> dict[str, Any]:
        """Return `{"inputs": [(name, type)], "output": type}` of a runtime API; raises `KeyError`."""
        found: dict[str, Any] = self._apis[api][method]
        return found

    def constant(self, pallet: str, name: str) -> Any:
        """Return the decoded value of a pallet constant, or None."""
        return self._runtime.constant(pallet, name)


def as_account(value: object) -> bytes:
    """Return the public key of an account as the codec decodes it (ss58 text or 0x hexadecimal)."""
    text = str(value)
    return from_hex(text) if text.startswith("0x") else account_id(text)
