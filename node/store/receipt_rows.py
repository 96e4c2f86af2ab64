"""The list of signed receipts, page by page, newest first. The files lie in `receipts/` under their digests."""

from __future__ import annotations

import msgspec
from sqlalchemy import Connection, delete, select, tuple_

from node.store.schema import ledger_commitments, receipt_outbox, receipts

LEDGER_KIND = "ledger.v1"


class ReceiptRow(msgspec.Struct, frozen=True):
    """One receipt: `kind` such as "weights.v1", `subject` the id of what it is about, time in Unix milliseconds."""

    digest: str
    kind: str
    subject: str
    signed_ms: int


class ReceiptQuery(msgspec.Struct, frozen=True):
    """Which receipts; an empty kind means any. `after` is the digest of the last one of the page before."""

    limit: int
    kind: str = ""
    after: str = ""


_COLUMNS = [receipts.c[name] for name in ReceiptRow.__struct_fields__]
_ORDER = (receipts.c.signed_ms, receipts.c.digest)


def receipts_about(connection: Connection, kind: str, subject: str) -> tuple[str, ...]:
    """Return the digests of the receipts of `kind` about `subject`, oldest first."""
    statement = select(receipts.c.digest).where(receipts.c.kind == kind, receipts.c.subject == subject)
    return tuple(connection.execute(statement.order_by(*_ORDER)).scalars())


def receipt_digests(connection: Connection) -> frozenset[str]:
    """Return the digests of all receipts that were signed for good."""
    return frozenset(connection.execute(select(receipts.c.digest)).scalars())


def forget_ledgers(connection: Connection, present: str, keep: int) -> frozenset[str]:
    """Forget all ledgers but the `present` one, the newest `keep`, and what the newest commitments on the chain name.

    Returns the digests of those that stay.
    """
    ledgers = receipts.c.kind == LEDGER_KIND
    newest = select(receipts.c.digest).where(ledgers).order_by(*(column.desc() for column in _ORDER)).limit(keep)
    committed = select(ledger_commitments.c.ledger_digest).order_by(ledger_commitments.c.sequence.desc()).limit(keep)
    confirmed = committed.where(ledger_commitments.c.status == "confirmed")  # the chain may long take no newer one
    waiting = select(receipt_outbox.c.digest)
    keeping = (newest, committed, confirmed, waiting)
    stay = {present}.union(*(connection.execute(statement).scalars() for statement in keeping))
    connection.execute(delete(receipts).where(ledgers, receipts.c.digest.not_in(stay)))
    return frozenset(stay)


def receipt_row(connection: Connection, digest: str) -> ReceiptRow | None:
    """Return the row of one receipt, or None."""
    row = connection.execute(select(*_COLUMNS).where(receipts.c.digest == digest)).mappings().first()
    return ReceiptRow(**row) if row is not None else None


def receipt_page(connection: Connection, query: ReceiptQuery) -> list[ReceiptRow]:
    """Return at most `query.limit` receipts whose files are on disk, newest first; nothing when `after` is unknown."""
    served = receipts.c.digest.not_in(select(receipt_outbox.c.digest))
    statement = select(*_COLUMNS).where(served).order_by(*(column.desc() for column in _ORDER)).limit(query.limit)
    if query.kind:
        statement = statement.where(receipts.c.kind == query.kind)
    if query.after:
        last = receipt_row(connection, query.after)
        if last is None:
            return []
        statement = statement.where(tuple_(*_ORDER) < tuple_(last.signed_ms, last.digest))
    return [ReceiptRow(**row) for row in connection.execute(statement).mappings()]
