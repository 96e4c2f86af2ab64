"""Faulty answers to a read of `System.Events`: a list told twice, or one reveal short.

Invariants
1. Only the bytes of one answer change; the state stays as it is, and a second read can tell the truth.
2. Only lists that contain a reveal are an occasion to leave one out.
"""

from __future__ import annotations

from chain.devnet.codec import Codec
from chain.devnet.fault_plan import FaultPlan
from chain.devnet.scale import Reader, compact

_PALLET, _EVENT = "Commitments", "CommitmentRevealed"


def disturbed(plan: FaultPlan, method: str, codec: Codec, key: bytes, raw: bytes | None) -> bytes | None:
    """Return the stored bytes as a faulty node tells them."""
    if raw is None or key != codec.key("System", "Events"):
        return raw
    if plan.strike(method, "duplicate_events") is not None:
        reader = Reader(raw)
        count = reader.compact()
        return compact(2 * count) + 2 * reader.rest
    reveals = _reveals(codec, raw)
    strike = plan.strike(method, "missing_events") if reveals else None
    if strike is None:
        return raw
    reader = Reader(raw)
    count, records = reader.compact(), reader.rest
    return compact(count - 1) + records.replace(reveals[strike.choose(len(reveals))], b"", 1)


def _reveals(codec: Codec, raw: bytes) -> list[bytes]:
    """Return the encoded records of all reveals in a list of events."""
    found: list[bytes] = []
    for record in codec.decode_value("System", "Events", raw):
        if (record["module_id"], record["event_id"]) == (_PALLET, _EVENT):
            event = {_PALLET: {_EVENT: record["attributes"]}}
            whole = codec.encode_value(
                "System", "Events", [{"phase": record["phase"], "event": event, "topics": record["topics"]}]
            )
            found.append(whole[1:])  # without the length of the list
    return found
