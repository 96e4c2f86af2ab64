"""The publication journal of `chain.publication`, kept in the store.

Invariants
1. Append-only: each record names the digest of the one before, and a record that does not follow the head is refused.
2. A record is on disk before `append` returns, so an intent always precedes its extrinsic.
3. The vector that an intent publishes, and its receipt, are stored in the intent's own transaction.
4. Nothing blocks the event loop: the database has its thread, and receipts are signed on another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
from sqlalchemy import Connection, insert, select

from chain.publication_record import PublicationRecord, journal_moved, record_digest
from config.canonical import domain_digest
from config.errors import InternalError
from node.store.engine import Store
from node.store.events import append_event, now_ms
from node.store.receipt_outbox import SealedReceipt, record_receipt
from node.store.schema import publications, vectors


class VectorRow(msgspec.Struct, frozen=True):
    """One decided weight vector: shares in ppm by hotkey, decided at a finalized block."""

    digest: str
    block: int
    entries: tuple[tuple[str, int], ...]
    receipt_digest: str = ""

    @property
    def shares_digest(self) -> str:
        """The digest of the shares alone: the same shares are the same vector to the chain, whenever decided."""
        return domain_digest("cacheon.weight-shares", self.entries)


class StoreJournal:
    """`chain.publication.PublicationJournal` on the store; each call is one short transaction on the store's thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._proposed: tuple[VectorRow, Callable[[], SealedReceipt]] | None = None

    def propose(self, vector: VectorRow, seal: Callable[[], SealedReceipt]) -> None:
        """Name the vector that the next intent will publish; `seal` signs its receipt."""
        self._proposed = (vector, seal)

    async def records(self) -> tuple[PublicationRecord, ...]:
        """Return every record, oldest first."""
        return await self._store.read(read_records)

    async def head(self) -> PublicationRecord | None:
        """Return the newest record, or None."""
        return await self._store.read(read_head)

    async def append(self, record: PublicationRecord, expected_head: str | None) -> None:
        """Append `record` after the head with digest `expected_head` (None = the journal is empty).

        Raises `InternalError`: PUBLICATION_JOURNAL_MOVED when the head is another one; VECTOR_NOT_PROPOSED for an
        intent to publish a vector that nobody decided.
        """
        taken = await asyncio.to_thread(self._take, record) if record.status == "intent" else None
        await self._store.write(append_record, record, expected_head, taken)

    def _take(self, record: PublicationRecord) -> tuple[VectorRow, SealedReceipt]:
        if self._proposed is None or self._proposed[0].shares_digest != record.vector_digest:
            raise InternalError("VECTOR_NOT_PROPOSED", f"vector {record.vector_digest} was never decided here")
        vector, seal = self._proposed
        receipt = seal()
        return msgspec.structs.replace(vector, receipt_digest=receipt.digest), receipt


def read_records(connection: Connection) -> tuple[PublicationRecord, ...]:
    """Return every record, oldest first."""
    rows = connection.execute(select(publications.c.body).order_by(publications.c.sequence)).scalars()
    return tuple(msgspec.json.decode(body, type=PublicationRecord) for body in rows)


def read_head(connection: Connection) -> PublicationRecord | None:
    """Return the newest record, or None."""
    body = connection.scalar(select(publications.c.body).order_by(publications.c.sequence.desc()).limit(1))
    return msgspec.json.decode(body, type=PublicationRecord) if body is not None else None


def append_record(
    connection: Connection, record: PublicationRecord, expected_head: str | None,
    vector: tuple[VectorRow, SealedReceipt] | None = None,
) -> None:
    """Append `record`, and the `vector` it intends to publish with its receipt, if the head's digest is
    `expected_head`."""
    last = connection.execute(
        select(publications.c.sequence, publications.c.digest).order_by(publications.c.sequence.desc()).limit(1)
    ).first()
    if (last.digest if last is not None else None) != expected_head:
        raise journal_moved()
    if vector is not None:
        _record_vector(connection, *vector, record.publication_id)
    digest = record_digest(record)
    connection.execute(insert(publications).values(
        sequence=last.sequence + 1 if last is not None else 1, digest=digest, prior_digest=expected_head or "",
        publication_id=record.publication_id, status=record.status, epoch=record.epoch,
        vector_digest=record.vector_digest, body=msgspec.json.encode(record).decode(), recorded_ms=now_ms(),
    ))
    append_event(connection, f"publication.{record.status}", record.publication_id, {
        "digest": digest, "epoch": record.epoch, "vector": record.vector_digest, "extrinsic": record.extrinsic_hash,
        "reason": record.reason,
    })


def find_vector(connection: Connection, publication_id: str) -> VectorRow | None:
    """Return the vector behind a publication, or None."""
    row = connection.execute(select(vectors).where(vectors.c.publication_id == publication_id)).first()
    if row is None:
        return None
    entries = msgspec.json.decode(row.body, type=tuple[tuple[str, int], ...])
    return VectorRow(row.digest, row.block, entries, row.receipt_digest)


def newest_weights_receipt(connection: Connection, epoch: int) -> str:
    """Return the digest of the newest weights receipt that was signed for `epoch`, or ""."""
    return connection.scalar(
        select(vectors.c.receipt_digest)
        .join(publications, publications.c.publication_id == vectors.c.publication_id)
        .where(publications.c.epoch == epoch, publications.c.status == "intent")
        .order_by(publications.c.sequence.desc()).limit(1)
    ) or ""


def _record_vector(
    connection: Connection, vector: VectorRow, receipt: SealedReceipt, publication_id: str
) -> None:
    connection.execute(insert(vectors).values(
        publication_id=publication_id, digest=vector.digest, block=vector.block,
        body=msgspec.json.encode(vector.entries).decode(), receipt_digest=vector.receipt_digest, made_ms=now_ms(),
    ))
    record_receipt(connection, receipt, publication_id)
