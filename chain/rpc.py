"""JSON-RPC conversations with the endpoint that need more than one request or more than one meaning.

Invariants
1. Lists of storage keys are cut into requests of bounded length; the result does not depend on the cut.
2. A pool's answer to a submission is accepted or refused; everything that is not an answer stays unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Literal

import msgspec

from chain.connection import Connection
from chain.transport_errors import AnswerError, plain

_KEYS_PER_REQUEST = 256  # storage keys in one request; public endpoints refuse much longer lists
_KEYS_PER_PAGE = 1000  # keys in one listing; nodes refuse to list more
_POOL_CODES = range(1000, 2000)  # JSON-RPC error codes by which a transaction pool answers
_BANNED = 1012  # pool error code: these very bytes were here lately, and were included or found invalid
_ALREADY_IMPORTED = 1013  # pool error code: these very bytes are in the pool


class PoolAnswer(msgspec.Struct, frozen=True):
    """What is known after handing an extrinsic to the endpoint; `message` explains anything but `accepted`."""

    fate: Literal["accepted", "refused", "unknown"]
    message: str = ""


def extrinsic_hash_of(data: bytes) -> str:
    """Return the 0x-hex hash by which an extrinsic is known."""
    return "0x" + blake2b(data, digest_size=32).hexdigest()


def refusal(error: AnswerError) -> PoolAnswer | None:
    """Return what a pool's answer means, or None when `error` is no answer of a pool."""
    if error.code not in _POOL_CODES:
        return None
    if error.code == _BANNED:
        return PoolAnswer("unknown", "the pool saw these bytes before: they may be in a block, or may never be")
    if error.code == _ALREADY_IMPORTED:
        return PoolAnswer("accepted", "already in the pool")
    return PoolAnswer("refused", f"{plain(error)[:200]} (pool code {error.code})")


async def raw_values(connection: Connection, keys: Sequence[bytes], block_hash: str) -> dict[bytes, bytes | None]:
    """Return the bytes under `keys` at one block, None for keys without a value; every key is in the result.

    Raises `ValueError` when the endpoint leaves out a key: an omission is not an absence.
    """
    found: dict[bytes, bytes | None] = {}
    for start in range(0, len(keys), _KEYS_PER_REQUEST):
        part = keys[start : start + _KEYS_PER_REQUEST]
        wanted = ["0x" + key.hex() for key in part]
        for group in await connection.request("state_queryStorageAt", [wanted, block_hash]) or []:
            for key, value in group["changes"]:
                found[_bytes(key)] = None if value is None else _bytes(value)
        if not all(key in found for key in part):
            raise ValueError("the endpoint left out some of the keys it was asked for")
    return found


async def all_keys(connection: Connection, prefix: bytes, block_hash: str) -> list[bytes]:
    """Return every key that begins with `prefix` at one block."""
    keys: list[bytes] = []
    start = "0x" + prefix.hex()
    while True:
        page = await connection.request("state_getKeysPaged", ["0x" + prefix.hex(), _KEYS_PER_PAGE, start, block_hash])
        found = [_bytes(key) for key in page or []]
        if not all(key.startswith(prefix) for key in found) or (found and keys and found[0] <= keys[-1]):
            raise ValueError("the endpoint lists keys that were not asked for")
        keys += found
        if len(found) < _KEYS_PER_PAGE:
            return keys
        start = "0x" + found[-1].hex()


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))
