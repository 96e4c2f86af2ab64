"""Blocks and headers.

Invariants
1. A header hashes as Substrate hashes it: BLAKE2b-256 of its SCALE encoding.
2. `state_root` chains the roots: it commits to the parent's root and this block's changes, so two nodes with the
   same blocks agree, but it is not a Merkle root and proves nothing to a light client.
"""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from chain.devnet.runtime_spec import CODE_KEY, CODE_UPDATED_DIGEST
from chain.devnet.scale import blake2_256, byte_vector, compact, to_hex, u64

_AURA = b"aura"
_PRE_RUNTIME = b"\x06"


class Header(msgspec.Struct, frozen=True):
    """The five fields of a Substrate header; `logs` are encoded digest items."""

    parent_hash: bytes
    number: int
    state_root: bytes
    extrinsics_root: bytes
    logs: tuple[bytes, ...]

    def encode(self) -> bytes:
        """Return the SCALE encoding."""
        return b"".join(
            (
                self.parent_hash,
                compact(self.number),
                self.state_root,
                self.extrinsics_root,
                compact(len(self.logs)),
                *self.logs,
            )
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON-RPC form."""
        return {
            "parentHash": to_hex(self.parent_hash),
            "number": hex(self.number),
            "stateRoot": to_hex(self.state_root),
            "extrinsicsRoot": to_hex(self.extrinsics_root),
            "digest": {"logs": [to_hex(log) for log in self.logs]},
        }


class Block(msgspec.Struct, frozen=True, dict=True):
    """A sealed block: its header and the raw extrinsics it carries."""

    header: Header
    extrinsics: tuple[bytes, ...]

    @property
    def number(self) -> int:
        """Height; genesis is 0."""
        return self.header.number

    @functools.cached_property
    def hash(self) -> bytes:
        """The 32-byte block hash."""
        return blake2_256(self.header.encode())

    @property
    def hash_hex(self) -> str:
        """The block hash as the protocol writes it."""
        return to_hex(self.hash)


def seal_block(
    parent: Block | None,
    extrinsics: tuple[bytes, ...],
    diff: dict[bytes, bytes | None],
    slot: int,
) -> Block:
    """Return the block that follows `parent` with these extrinsics and state changes; `slot` is its Aura slot."""
    changes = b"".join(
        byte_vector(key) + (b"\x00" if value is None else b"\x01" + byte_vector(value)) for key, value in diff.items()
    )
    previous_root = parent.header.state_root if parent else bytes(32)
    header = Header(
        parent_hash=parent.hash if parent else bytes(32),
        number=parent.number + 1 if parent else 0,
        state_root=blake2_256(previous_root + changes),
        extrinsics_root=blake2_256(b"".join(map(byte_vector, extrinsics))),
        logs=(_PRE_RUNTIME + _AURA + byte_vector(u64(slot)), *_code_log(diff)) if parent else (),
    )
    return Block(header, extrinsics)


def _code_log(diff: dict[bytes, bytes | None]) -> tuple[bytes, ...]:
    return (CODE_UPDATED_DIGEST,) if CODE_KEY in diff else ()
