"""Drand: the pulses of the fixed beacon.

Invariants
1. One pulse per block, stored when the block ends, so hooks see it from the next block on.
2. Only the newest `KEPT_PULSES` stay, as on the public chain: a label older than that never opens.
"""

from __future__ import annotations

import hashlib

from chain.devnet.beacon import SEAL_SIGNATURE, round_of_block
from chain.devnet.context import Context
from chain.devnet.scale import Reader, byte_vector, u64
from chain.devnet.storage import Session, StorageView

KEPT_PULSES = 216_000
_SIGNATURE = bytes.fromhex(SEAL_SIGNATURE)
_PULSE_TAIL = byte_vector(hashlib.sha256(_SIGNATURE).digest()) + byte_vector(_SIGNATURE)


def store_pulse(state: Session, block: int) -> int:
    """Store the pulse of `block`, forget the oldest, and return the round."""
    number = round_of_block(block)
    state.put_raw(state.codec.key("Drand", "Pulses", (number,)), u64(number) + _PULSE_TAIL)
    state.put("Drand", "LastStoredRound", value=number)
    oldest = number - KEPT_PULSES + 1
    if block == 0:
        state.put("Drand", "OldestStoredRound", value=number)
    elif oldest > round_of_block(0):
        state.delete("Drand", "Pulses", oldest - 1)
        state.put("Drand", "OldestStoredRound", value=oldest)
    return number


def end_block(context: Context) -> None:
    """Publish this block's round."""
    number = store_pulse(context.state, context.block)
    context.emit("Drand", "NewPulse", {"rounds": [number]})


def pulse_signature(state: StorageView, number: int) -> bytes | None:
    """Return the signature of a stored round, or None."""
    raw = state.get_raw("Drand", "Pulses", number)
    if raw is None:
        return None
    reader = Reader(raw, 8)
    reader.sized_bytes()
    return reader.sized_bytes()


def oldest_round(state: StorageView) -> int:
    """Return the oldest round that is still stored."""
    return int(state.get("Drand", "OldestStoredRound"))
