"""A block as everybody names it: number and hash together.

Invariant: a height alone never identifies state. Every read of this room is pinned to a `BlockRef`, so that a fork or
a lagging endpoint shows up as a different hash, not as silently different answers.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

from chain.scale import compact


class BlockRef(msgspec.Struct, frozen=True, order=True):
    """One block: its height and its 0x-prefixed lower-hex 32-byte hash."""

    number: int
    hash: str

    def __str__(self) -> str:
        return f"#{self.number} ({self.hash[:10]})"


class Header(msgspec.Struct, frozen=True):
    """The part of a block header that links blocks."""

    block: BlockRef
    parent_hash: str


def parse_header(raw: Any) -> Header:
    """Return a header from its JSON-RPC form, with the hash computed from its content.

    Substrate names a block by the BLAKE2b-256 of its SCALE-encoded header. Raises `KeyError`, `TypeError`,
    `AttributeError` or `ValueError` for anything that is no header.
    """
    number = int(raw["number"], 16)
    logs = [_bytes(log) for log in raw["digest"]["logs"]]
    fields = (
        _word(raw["parentHash"]), compact(number), _word(raw["stateRoot"]), _word(raw["extrinsicsRoot"]),
        compact(len(logs)), *logs,
    )
    name = "0x" + blake2b(b"".join(fields), digest_size=32).hexdigest()
    return Header(BlockRef(number, name), str(raw["parentHash"]).lower())


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))


def _word(text: str) -> bytes:
    word = _bytes(text)
    if len(word) != 32:
        raise ValueError(f"a hash has 32 bytes, not {len(word)}")
    return word
