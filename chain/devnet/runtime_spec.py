"""Which runtime a block's state names: the spec version served, and whose metadata stands behind it.

Invariants
1. The runtime is state: it is read under `:code` at a block, so it follows forks and restarts. A state without that key
   has the default runtime.
2. As on the real chain, the block that changes the code is executed by the old runtime; everything asked at its hash
   is answered by the new one, which executes the next block.
3. Metadata is real. A version that no real metadata has is one of them with this one number changed, everywhere it is
   written: in the constant `System.Version` and in the answers about the runtime.
"""

from __future__ import annotations

import functools
import lzma
from importlib import resources
from typing import Any

import msgspec

from chain.devnet.scale import Reader, ScaleError, u32

SPEC_NAME = "node-subtensor"
SPEC_VERSION = 461
TRANSACTION_VERSION = 1
CODE_KEY = b":code"
CODE_UPDATED_DIGEST = b"\x08"  # the digest item RuntimeEnvironmentUpdated
REAL_METADATA = (439, SPEC_VERSION)
_MAGIC = b"cacheon devnet runtime"
_NAME = bytes([len(SPEC_NAME) << 2]) + SPEC_NAME.encode()
_VERSION_PREFIX = _NAME + _NAME + u32(1)  # spec name, implementation name, authoring version


class RuntimeSpec(msgspec.Struct, frozen=True):
    """A runtime: its spec version, and the spec version of the real metadata it serves under that number."""

    version: int = SPEC_VERSION
    metadata: int = SPEC_VERSION

    def code(self) -> bytes:
        """Return what stands under `:code`; no WebAssembly, since nothing here executes it."""
        return _MAGIC + u32(self.version) + u32(self.metadata)

    def upgraded(self, version: int | None = None, metadata: int | None = None) -> RuntimeSpec:
        """Return the next runtime; raises `ValueError` for one that the chain would not upgrade to."""
        new = RuntimeSpec(
            self.version + 1 if version is None else version, self.metadata if metadata is None else metadata
        )
        if not self.version < new.version < 2**32:
            raise ValueError(f"the spec version must rise above {self.version}")
        if new.metadata not in REAL_METADATA:
            raise ValueError(
                f"there is metadata of {' and '.join(map(str, REAL_METADATA))} only, not of {new.metadata}"
            )
        return new


@functools.lru_cache(maxsize=64)
def read_code(raw: bytes | None) -> RuntimeSpec:
    """Return the runtime that stands under `:code`; bytes that are none of ours are the default one."""
    if raw is None or not raw.startswith(_MAGIC):
        return RuntimeSpec()
    reader = Reader(raw[len(_MAGIC) :])
    try:
        found = RuntimeSpec(reader.unsigned(4), reader.unsigned(4))
    except ScaleError:
        return RuntimeSpec()
    return found if found.metadata in REAL_METADATA else RuntimeSpec()


@functools.cache
def real_metadata(spec_version: int, form: int) -> bytes:
    """Return the raw metadata of a real runtime in format 14 or 15."""
    name = f"subtensor-{spec_version}.v{form}.scale.xz"
    packed = resources.files("chain.devnet").joinpath("metadata", name).read_bytes()
    return lzma.decompress(packed)


@functools.lru_cache(maxsize=16)
def metadata_of(spec: RuntimeSpec, form: int) -> bytes:
    """Return the metadata that a runtime serves in format 14 or 15."""
    real = real_metadata(spec.metadata, form)
    if spec.version == spec.metadata:
        return real
    before, found, after = real.partition(_VERSION_PREFIX + u32(spec.metadata))
    return before + _VERSION_PREFIX + u32(spec.version) + after[: len(after) if found else 0]


def version_document(spec: RuntimeSpec, constant: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON-RPC form of a runtime version; `constant` is the decoded `System.Version`."""
    return {
        "specName": SPEC_NAME,
        "implName": SPEC_NAME,
        "authoringVersion": 1,
        "specVersion": spec.version,
        "implVersion": 1,
        "apis": [list(pair) for pair in constant["apis"]],
        "transactionVersion": TRANSACTION_VERSION,
        "stateVersion": int(constant["system_version"]),
    }
