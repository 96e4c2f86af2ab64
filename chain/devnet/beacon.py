"""The fixed-beacon convention: real timelock encryption on a chain without a drand network.

Invariants
1. A client seals its bytes to drand round `SEAL_ROUND`, whose signature is public, and labels the commitment
   with the round in which the local chain shall reveal it.
2. The node counts its own rounds: block `n` publishes round `round_of_block(n)`, one round per block, and every
   stored pulse carries `SEAL_SIGNATURE`. The reveal hook really decrypts with it.
3. The label alone delays the reveal: anyone can open a sealed commitment early. That is acceptable on a
   development chain and is never used on a public one.
4. The first local round is `SEAL_ROUND`, so an envelope whose label equals its real round opens as well.
"""

from __future__ import annotations

import importlib
from typing import Any

SEAL_ROUND = 1000
SEAL_SIGNATURE = "b44679b9a59af2ec876b1a6b1ad52ea9b1615fc3982b19576350f93447cb1125e342b73a8dd2bacbe47e4b6b63ed5e39"
GENESIS_ROUND = SEAL_ROUND
ROUNDS_PER_BLOCK = 1


class BeaconError(ValueError):
    """Bytes that do not open under the fixed signature."""


class MalformedCiphertextError(BeaconError):
    """Bytes that are no timelock ciphertext at all."""


def round_of_block(block: int) -> int:
    """Return the round whose pulse is stored at the end of `block`."""
    return GENESIS_ROUND + block * ROUNDS_PER_BLOCK


def reveal_round_after(head: int, blocks: int) -> int:
    """Return the label that makes a commitment reveal at the start of block `head + blocks`, `blocks` >= 2.

    A pulse stored at the end of block `n` is seen by the hook that opens block `n + 1`.
    """
    return round_of_block(head + blocks - 1)


def seal(data: bytes) -> bytes:
    """Return the timelock ciphertext of `data` as `TimelockEncrypted.encrypted` carries it."""
    core = _core()
    envelope, _ = core.encrypt_at_round(data, SEAL_ROUND)
    return bytes(core.inner_ciphertext(envelope))


def unseal(ciphertext: bytes, signature: bytes | None = None) -> bytes:
    """Decrypt what `seal` returned; raises `BeaconError` when the bytes do not open."""
    length = len(ciphertext)
    envelope = _compact(length) + ciphertext + SEAL_ROUND.to_bytes(8, "little")
    text = SEAL_SIGNATURE if signature is None else signature.hex()
    try:
        return bytes(_core().decrypt_with_signature(envelope, text))
    except (ValueError, RuntimeError) as error:
        kind = MalformedCiphertextError if "deserializ" in str(error) else BeaconError
        raise kind(f"ciphertext of {length} bytes does not open: {error}") from error


def _core() -> Any:
    return importlib.import_module("bittensor_core")


def _compact(value: int) -> bytes:
    # The envelope prefixes the inner bytes with a compact length; ciphertexts are far below 2**30 bytes.
    if value < 1 << 6:
        return bytes([value << 2])
    if value < 1 << 14:
        return (value << 2 | 1).to_bytes(2, "little")
    return (value << 2 | 2).to_bytes(4, "little")
