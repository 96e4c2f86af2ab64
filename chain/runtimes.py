"""Which runtime wrote a block, and the codec of that runtime.

Invariants
1. A block is decoded by the runtime that executed it. `System.LastRuntimeUpgrade` AT the block names that runtime's
   version; it can be fetched together with the values themselves, so knowing the runtime costs no request.
2. Codecs are kept by spec version and outlive connections. A version not seen before loads its metadata, so an upgrade
   while running is followed without a restart.
3. Metadata on disk is a cache only: a file that cannot be used is replaced, and no folder means no file.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import struct
import tempfile
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from chain.scale import ScaleError, ScaleReader
from chain.transport_errors import AnswerError
from config.errors import ChainError, NetworkError

# The storage key of `System.LastRuntimeUpgrade`: twox128 of both names. It is needed before any metadata is known.
LAST_RUNTIME_UPGRADE = bytes.fromhex("26aa394eea5630e07c48ae0c9558cef7f9cce9c888469bb1a0dceaa129672ef8")
_CODECS_KEPT = 4
_BLOCKS_KEPT = 8192
_METADATA_FORMAT = "0x0f000000"  # version 15, as an encoded u32
_NO_FORMAT_15 = "Metadata_metadata_at_version is not found"
_SS58_FORMAT = 42
_MAGIC = b"CMD1"
_FILES_KEPT = 8


class Asker(Protocol):
    """Something that can be asked."""

    async def request(self, method: str, params: Sequence[object] = ()) -> Any:
        """Return the result of one JSON-RPC request."""


class Runtimes:
    """The codecs of one chain's runtimes."""

    def __init__(self, cache: Path | None) -> None:
        self._cache = cache
        self._codecs: OrderedDict[int, Any] = OrderedDict()
        self._spec_of: OrderedDict[str, int] = OrderedDict()
        self._loading = asyncio.Lock()

    @property
    def newest(self) -> Any | None:
        """The codec that was used last, a good guess for the next block; None before the first."""
        return next(reversed(self._codecs.values()), None)

    def known_spec(self, block_hash: str) -> int | None:
        """Return the spec version that wrote a block, if it is known."""
        return self._spec_of.get(block_hash)

    def note(self, block_hash: str, spec: int) -> None:
        """Remember which spec version wrote a block."""
        self._spec_of[block_hash] = spec
        if len(self._spec_of) > _BLOCKS_KEPT:
            self._spec_of.popitem(last=False)

    async def at(self, asker: Asker, block_hash: str) -> Any:
        """Return the codec of the runtime that wrote a block."""
        spec = self._spec_of.get(block_hash)
        if spec is None:
            raw = await asker.request("state_getStorage", ["0x" + LAST_RUNTIME_UPGRADE.hex(), block_hash])
            value = None if raw is None else bytes.fromhex(raw.removeprefix("0x"))
            spec = await self.settle(asker, block_hash, value)
        return await self.of_spec(asker, spec, block_hash)

    async def current(self, asker: Asker) -> Any:
        """Return the codec of the runtime that will execute the next block."""
        version = await asker.request("state_getRuntimeVersion")
        return self._codecs.get(_spec(version)) or await self._load(asker, _spec(version), None, version)

    async def settle(self, asker: Asker, block_hash: str, upgrade: bytes | None) -> int:
        """Return and remember the spec version of a block, from its `System.LastRuntimeUpgrade`.

        A chain without that item is asked for the version of the parent, whose code executes the block.
        """
        spec = _upgraded_to(upgrade)
        if spec is None:
            parent = await _parent_of(asker, block_hash)
            spec = _spec(await asker.request("state_getRuntimeVersion", [parent]))
        self.note(block_hash, spec)
        return spec

    async def of_spec(self, asker: Asker, spec: int, block_hash: str) -> Any:
        """Return the codec of a spec version; `block_hash` is a block that it wrote."""
        codec = self._codecs.get(spec)
        if codec is None:
            at, version = block_hash, await asker.request("state_getRuntimeVersion", [block_hash])
            if _spec(version) != spec:  # this block changed the code: what it names is the next block's runtime
                at = await _parent_of(asker, block_hash)
                version = await asker.request("state_getRuntimeVersion", [at])
            codec = await self._load(asker, spec, at, version)
        self._codecs.move_to_end(spec)
        return codec

    async def _load(self, asker: Asker, spec: int, block_hash: str | None, version: dict[str, Any]) -> Any:
        async with self._loading:
            codec = self._codecs.get(spec)
            if codec is None:
                codec = await self._make(asker, spec, block_hash, version)
                self._codecs[spec] = codec
                if len(self._codecs) > _CODECS_KEPT:
                    self._codecs.popitem(last=False)
            return codec

    async def _make(self, asker: Asker, spec: int, block_hash: str | None, version: dict[str, Any]) -> Any:
        transaction_version = int(version["transactionVersion"])
        path = await self._path(asker, spec)
        if path is not None:
            kept = await asyncio.to_thread(_read, path, transaction_version)
            if kept is not None:
                with contextlib.suppress(Exception):  # whatever the file is, asking again is better
                    return await asyncio.to_thread(_build, kept, spec, transaction_version)
        metadata = await _download(asker, block_hash)
        codec = await asyncio.to_thread(_build, metadata, spec, transaction_version)
        if path is not None:
            await asyncio.to_thread(_write, path, transaction_version, metadata)
        return codec

    async def _path(self, asker: Asker, spec: int) -> Path | None:
        if self._cache is None:
            return None
        genesis = str(await asker.request("chain_getBlockHash", [0]))
        return self._cache / f"metadata-{genesis.removeprefix('0x')[:16]}-{spec}.scale"


def _spec(version: Any) -> int:
    spec = version["specVersion"]
    if isinstance(spec, bool) or not isinstance(spec, int):
        raise ChainError("CHAIN_DECODE_FAILED", "The endpoint does not name its runtime's version by a number.")
    return spec


def _upgraded_to(raw: bytes | None) -> int | None:
    if raw is None:
        return None
    try:
        reader = ScaleReader(raw)
        spec = reader.compact()
        reader.sized_bytes()
        reader.done()
    except ScaleError:
        return None
    return spec


async def _parent_of(asker: Asker, block_hash: str) -> str:
    header = await asker.request("chain_getHeader", [block_hash])
    if header is None:
        raise NetworkError("CHAIN_BLOCK_UNKNOWN", f"The endpoint has no block {block_hash}.")
    parent = str(header["parentHash"])
    return parent if int(parent, 16) else block_hash  # the first block has no parent; its own code made it


async def _download(asker: Asker, block_hash: str | None) -> bytes:
    """Return the metadata of the runtime at a block, in format 15, or 14 where the runtime is too old for it."""
    at = [] if block_hash is None else [block_hash]
    try:
        answer = await asker.request("state_call", ["Metadata_metadata_at_version", _METADATA_FORMAT, *at])
    except AnswerError as error:
        if _NO_FORMAT_15 not in str(error):
            raise
        answer = None
    raw = bytes.fromhex(answer.removeprefix("0x")) if answer is not None else b""
    if raw[:1] == b"\x01":
        reader = ScaleReader(raw, 1)
        inner = reader.sized_bytes()
        reader.done()
        return inner
    return bytes.fromhex((await asker.request("state_getMetadata", at)).removeprefix("0x"))


def _build(metadata: bytes, spec: int, transaction_version: int) -> Any:
    codec = importlib.import_module("bittensor._transport.codec")
    return codec.RuntimeCodec(
        metadata, spec_version=spec, transaction_version=transaction_version, ss58_format=_SS58_FORMAT
    )


def _read(path: Path, transaction_version: int) -> bytes | None:
    try:
        raw = path.read_bytes()
    except OSError:
        return None
    return raw[8:] if raw[:8] == _MAGIC + struct.pack("<I", transaction_version) else None


def _write(path: Path, transaction_version: int, metadata: bytes) -> None:
    """Keep metadata; a folder that cannot be written costs the next start a request, and nothing else."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".metadata-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(_MAGIC + struct.pack("<I", transaction_version) + metadata)
            os.replace(temporary, path)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise
        for stale in sorted(path.parent.glob("metadata-*.scale"), key=lambda one: -one.stat().st_mtime)[_FILES_KEPT:]:
            stale.unlink(missing_ok=True)
