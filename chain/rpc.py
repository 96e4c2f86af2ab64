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

from chain.sdk import SdkConnection

_KEYS_PER_REQUEST = 256  # storage keys in one request; public endpoints refuse much longer lists
_POOL_CODES = range(1000, 2000)  # JSON-RPC error codes by which a transaction pool answers
_ALREADY_IMPORTED = 1013  # pool error code: these very bytes are in the pool


class PoolAnswer(msgspec.Struct, frozen=True):
    """What is known after handing an extrinsic to the endpoint; `message` explains anything but `accepted`."""

    fate: Literal["accepted", "refused", "unknown"]
    message: str = ""


def extrinsic_hash_of(data: bytes) -> str:
    """Return the 0x-hex hash by which an extrinsic is known."""
    return "0x" + blake2b(data, digest_size=32).hexdigest()


def refusal(error: Exception) -> PoolAnswer | None:
    """Return what a pool's answer means, or None when `error` is not an answer."""
    payload = getattr(error, "payload", None)
    body = payload.get("error") if isinstance(payload, dict) else None
    code = body.get("code") if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(code, int) or code not in _POOL_CODES:
        return None
    if code == _ALREADY_IMPORTED:
        return PoolAnswer("accepted", "already in the pool")
    detail = body.get("data")
    text = f"{body.get('message')}: {detail}" if detail else str(body.get("message"))
    return PoolAnswer("refused", f"{text[:200]} (pool code {code})")


async def raw_values(connection: SdkConnection, keys: Sequence[bytes], block_hash: str) -> dict[bytes, bytes]:
    """Return the bytes under `keys` at one block; keys without a value are left out."""
    found: dict[bytes, bytes] = {}
    for start in range(0, len(keys), _KEYS_PER_REQUEST):
        wanted = ["0x" + key.hex() for key in keys[start : start + _KEYS_PER_REQUEST]]
        for group in await connection.request("state_queryStorageAt", [wanted, block_hash]) or []:
            for key, value in group["changes"]:
                if value is not None:
                    found[bytes.fromhex(key.removeprefix("0x"))] = bytes.fromhex(value.removeprefix("0x"))
    return found


async def all_keys(connection: SdkConnection, prefix: bytes, block_hash: str) -> list[bytes]:
    """Return every key that begins with `prefix` at one block."""
    keys: list[bytes] = []
    start = "0x" + prefix.hex()
    while True:
        arguments = ["0x" + prefix.hex(), _KEYS_PER_REQUEST, start, block_hash]
        page = await connection.request("state_getKeysPaged", arguments)
        keys += [bytes.fromhex(key.removeprefix("0x")) for key in page or []]
        if not page or len(page) < _KEYS_PER_REQUEST:
            return keys
        start = page[-1]
