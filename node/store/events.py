"""The ledger: what happened, append-only and hash chained.

Invariants
1. An event is appended in the same transaction as the change it tells of; there is no change without its event.
2. Sequence numbers count from 1 without gaps; each event holds the digest of the one before ("" for the first).
3. An event's digest is a domain digest over everything in it, so altering, dropping or inserting one breaks the chain.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from sqlalchemy import Connection, select

from config.canonical import canonical_json, domain_digest, read_json
from config.errors import Blame, InternalError
from node.store.schema import events


def now_ms() -> int:
    """Return the wall clock in Unix milliseconds."""
    return time.time_ns() // 1_000_000


def append_event(connection: Connection, kind: str, subject: str, body: Mapping[str, object] | None = None) -> str:
    """Append one event and return its digest. `subject` is the id of what it is about; `body` is canonical JSON."""
    last = connection.execute(
        select(events.c.sequence, events.c.digest).order_by(events.c.sequence.desc()).limit(1)
    ).first()
    sequence, previous = (last.sequence + 1, last.digest) if last else (1, "")
    at_ms = now_ms()
    digest = _digest(sequence, at_ms, kind, subject, dict(body or {}), previous)
    connection.execute(events.insert().values(
        sequence=sequence, at_ms=at_ms, kind=kind, subject=subject,
        body=canonical_json(dict(body or {})).decode(), previous=previous, digest=digest,
    ))
    return digest


def verify_chain(connection: Connection) -> tuple[int, str]:
    """Walk the whole ledger and return (number of events, head digest).

    Raises `InternalError` (LEDGER_BROKEN) naming the first event that does not follow from the one before.
    """
    previous, count = "", 0
    rows = connection.execution_options(yield_per=1000).execute(select(events).order_by(events.c.sequence))
    for row in rows:
        body = read_json(row.body.encode())
        expected = _digest(count + 1, row.at_ms, row.kind, row.subject, body, previous)
        if row.sequence != count + 1 or row.previous != previous or row.digest != expected:
            raise InternalError(
                "LEDGER_BROKEN", f"event {row.sequence} does not follow from event {count}", blame=Blame.OPERATOR
            )
        previous, count = row.digest, row.sequence
    return count, previous


def _digest(sequence: int, at_ms: int, kind: str, subject: str, body: object, previous: str) -> str:
    return domain_digest("cacheon.event", {
        "sequence": sequence, "at_ms": at_ms, "kind": kind, "subject": subject, "body": body, "previous": previous,
    })
