"""The journal of ledger commitments, kept in the store; the same rules as that of weights.

Invariants
1. Append-only: each record names the digest of the one before, and a record that does not follow the head is refused.
2. A record is on disk before `append` returns.
"""

from __future__ import annotations

import msgspec
from sqlalchemy import Connection, insert, select

from chain.ledger_publication import CommitmentRecord, commitment_digest, ledger_journal_moved
from node.store.engine import Store
from node.store.events import append_event, now_ms
from node.store.schema import ledger_commitments


class StoreLedgerJournal:
    """`chain.ledger_publication.CommitmentJournal` on the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def head(self) -> CommitmentRecord | None:
        """Return the newest record, or None."""
        return await self._store.read(read_commitment_head)

    async def append(self, record: CommitmentRecord, expected_head: str | None) -> None:
        """Append `record` after the head with digest `expected_head`. Raises `InternalError` (LEDGER_JOURNAL_MOVED)."""
        await self._store.write(append_commitment, record, expected_head)


def read_commitment_head(connection: Connection) -> CommitmentRecord | None:
    """Return the newest record, or None."""
    rows = read_commitments(connection, 1)
    return rows[0] if rows else None


def read_commitments(connection: Connection, limit: int) -> list[CommitmentRecord]:
    """Return the newest `limit` records, newest first."""
    bodies = connection.execute(
        select(ledger_commitments.c.body).order_by(ledger_commitments.c.sequence.desc()).limit(limit)
    ).scalars()
    return [msgspec.json.decode(body, type=CommitmentRecord) for body in bodies]


def append_commitment(connection: Connection, record: CommitmentRecord, expected_head: str | None) -> None:
    """Append `record` if the head's digest is `expected_head`."""
    last = connection.execute(
        select(ledger_commitments.c.sequence, ledger_commitments.c.digest)
        .order_by(ledger_commitments.c.sequence.desc()).limit(1)
    ).first()
    if (last.digest if last is not None else None) != expected_head:
        raise ledger_journal_moved()
    digest = commitment_digest(record)
    connection.execute(insert(ledger_commitments).values(
        sequence=last.sequence + 1 if last is not None else 1, digest=digest, prior_digest=expected_head or "",
        commitment_id=record.commitment_id, status=record.status, epoch=record.epoch,
        ledger_digest=record.pointer.digest, body=msgspec.json.encode(record).decode(), recorded_ms=now_ms(),
    ))
    append_event(connection, f"ledger.{record.status}", record.commitment_id, {
        "digest": digest, "epoch": record.epoch, "ledger": record.pointer.digest, "reason": record.reason,
    })
