"""The state file: one append-only record per block, or per fork.

Layout
    magic (8 bytes), then records; a record is a head (payload length u32, CRC-32 of those four bytes u32), the
    payload (msgpack) and the first 8 bytes of the payload's BLAKE2b hash. The first record is the genesis.
    The magic ends in the version. Version 1 had no forks; its files are read, and become version 2 when written to.

Invariants
1. A record is handed to the operating system in one write before its block is announced, so killing the process at
   any moment loses no announced block. (Losing power may: the file is not synced per block.) A fork is one record:
   it happened as a whole or not at all.
2. A torn record can only be the last one. It was never announced, so it is cut off at load. Any other damage is
   refused with STATE_CORRUPT; nothing is repaired silently.
3. Blocks are rebuilt from the file without executing them; every hash is recomputed and must chain.
4. The file is locked while a node runs; a second node is refused with STATE_IN_USE.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import zlib
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

import msgspec

from chain.devnet.block import Block, Header
from chain.devnet.history import Diff
from config.errors import HostError

MAGIC = b"CACHDEV2"
OLD_MAGIC = b"CACHDEV1"
_FORK = b"\xc1"  # before the payload of a fork; no msgpack value begins with this byte
_HEAD_BYTES = 8
_DIGEST_BYTES = 8


class Record(msgspec.Struct, frozen=True, array_like=True):
    """One block as it is stored. Changes are (key, value) pairs; an absent value is a deletion.

    `finalized` is the newest final block once this one is the head; `note` names the genesis document in block 0.
    """

    header: Header
    extrinsics: tuple[bytes, ...]
    diff: tuple[tuple[bytes, bytes | None], ...]
    finalized: int
    note: str = ""


class ForkRecord(msgspec.Struct, frozen=True, array_like=True):
    """Blocks that took the place of all after height `base`."""

    base: int
    blocks: tuple[Record, ...]


class Entry(msgspec.Struct, frozen=True):
    """One record as it is read: blocks in order, each with its record, that follow height `base`."""

    base: int
    blocks: tuple[tuple[Block, Record], ...]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Record)
_FORK_DECODER = msgspec.msgpack.Decoder(ForkRecord)


def frame(payload: bytes) -> bytes:
    """Return a payload with its head and digest."""
    length = len(payload).to_bytes(4, "little")
    return length + zlib.crc32(length).to_bytes(4, "little") + payload + _digest(payload)


def _digest(payload: bytes) -> bytes:
    return blake2b(payload, digest_size=_DIGEST_BYTES).digest()


class Journal:
    """An open, locked state file, positioned after its last whole record."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = _open_locked(path)
        self._end = 0
        self._old = False

    def close(self) -> None:
        """Release the file."""
        os.close(self._descriptor)

    def load(self) -> Iterator[Entry]:
        """Yield what is stored in order and leave the file ready for appending; raises STATE_CORRUPT."""
        with open(self._descriptor, "rb", closefd=False) as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(0)
            start = stream.read(len(MAGIC))
            self._end = len(start) if start in (MAGIC, OLD_MAGIC) else 0
            self._old = start == OLD_MAGIC
            if not start or not any(magic.startswith(start) for magic in (MAGIC, OLD_MAGIC)):
                if size:
                    raise self._corrupt("it does not start as a devnet state file")
                return
            hashes: list[bytes] = []
            for payload, end in self._payloads(stream, size):
                entry = self._read(payload, hashes)
                yield entry
                self._end = end
                hashes[entry.base + 1 :] = [block.hash for block, _ in entry.blocks]
        if not hashes:
            self._end = 0
        self._truncate()

    def _payloads(self, stream: BinaryIO, size: int) -> Iterator[tuple[bytes, int]]:
        """Yield whole payloads and the offsets after them, up to a torn or zero-filled end."""
        position = len(MAGIC)
        while size - position >= _HEAD_BYTES:
            head = stream.read(_HEAD_BYTES)
            if not any(head) and not any(stream.read()):
                return
            length = int.from_bytes(head[:4], "little")
            if zlib.crc32(head[:4]) != int.from_bytes(head[4:], "little"):
                raise self._corrupt(f"the record head at byte {position} is damaged")
            end = position + _HEAD_BYTES + length + _DIGEST_BYTES
            if end > size:
                return
            payload = stream.read(length)
            if _digest(payload) != stream.read(_DIGEST_BYTES):
                raise self._corrupt(f"the record at byte {position} is damaged")
            yield payload, end
            position = end

    def _read(self, payload: bytes, hashes: list[bytes]) -> Entry:
        """Return the entry of a payload that follows blocks with these hashes."""
        try:
            if payload.startswith(_FORK):
                fork = _FORK_DECODER.decode(payload[len(_FORK) :])
                base, records = fork.base, fork.blocks
            else:
                base, records = len(hashes) - 1, (_DECODER.decode(payload),)
        except msgspec.MsgspecError as error:
            raise self._corrupt(f"the record after block {len(hashes) - 1} does not decode: {error}") from error
        if not records or not -1 <= base < len(hashes) or (payload.startswith(_FORK) and base < 0):
            raise self._corrupt(f"the record after block {len(hashes) - 1} is a fork of no block")
        parent, number = hashes[base] if hashes else bytes(32), base + 1
        found: list[tuple[Block, Record]] = []
        for record in records:
            block = Block(record.header, record.extrinsics)
            if block.number != number or record.header.parent_hash != parent:
                raise self._corrupt(f"block {number} does not follow the block before it")
            found.append((block, record))
            parent, number = block.hash, number + 1
        return Entry(base, tuple(found))

    def append(self, block: Block, diff: Diff, finalized: int, note: str = "") -> None:
        """Write a block; raises STATE_UNWRITABLE and leaves no partial record behind."""
        self._write(_ENCODER.encode(_record(block, diff, finalized, note)))

    def append_fork(self, base: int, blocks: Sequence[tuple[Block, Diff]], finalized: int) -> None:
        """Write the blocks that take the place of all after height `base`; raises STATE_UNWRITABLE."""
        records = tuple(_record(block, diff, finalized) for block, diff in blocks)
        self._write(_FORK + _ENCODER.encode(ForkRecord(base, records)))

    def _write(self, payload: bytes) -> None:
        data = frame(payload)
        if self._end == 0:
            data = MAGIC + data
        try:
            if self._old:
                os.pwrite(self._descriptor, MAGIC, 0)
                self._old = False
            written = 0
            while written < len(data):
                written += os.pwrite(self._descriptor, data[written:], self._end + written)
        except OSError as error:
            with contextlib.suppress(OSError):  # a torn record is cut off at the next load, too
                self._truncate()
            raise _unwritable(self.path, str(error.strerror)) from error
        self._end += len(data)

    def _truncate(self) -> None:
        os.ftruncate(self._descriptor, self._end)

    def _corrupt(self, detail: str) -> HostError:
        return HostError(
            "STATE_CORRUPT",
            f"the state file {self.path} cannot be used: {detail}.",
            hint="restore the file from a copy, or start a new chain in another file",
        )


def _record(block: Block, diff: Diff, finalized: int, note: str = "") -> Record:
    return Record(block.header, block.extrinsics, tuple(diff.items()), finalized, note)


def _open_locked(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise _unwritable(path, str(error.strerror)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _unwritable(path, "it is not a regular file")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise HostError(
            "STATE_IN_USE",
            f"the state file {path} is used by another process.",
            hint="stop the other devnet or give this one its own --state file",
        ) from error
    return descriptor


def _unwritable(path: Path, why: str) -> HostError:
    return HostError(
        "STATE_UNWRITABLE",
        f"cannot write the state file {path}: {why}.",
        hint="choose a folder this user can write to, on a disk with free space",
    )
