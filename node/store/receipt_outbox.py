"""Signed receipts: the row first, together with what the receipt tells of, and the file after it.

Invariants
1. A receipt counts from the moment its row is committed, in the transaction of what it tells of. Until its file is on
   disk its envelope waits in the outbox, and whoever comes next writes the file: no kill leaves a file without a row,
   and none loses a receipt.
2. Writing a file twice is the same as writing it once: it is named by the digest of its bytes.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from sqlalchemy import Connection, delete, insert, literal_column, select
from sqlalchemy.dialects.sqlite import insert as insert_or

from config.canonical import sha256_hex
from node.store.events import append_event, now_ms
from node.store.schema import receipt_outbox, receipts


class SealedReceipt(msgspec.Struct, frozen=True):
    """A signed envelope, and its kind such as "weights.v1"."""

    kind: str
    envelope: bytes

    @property
    def digest(self) -> str:
        """The digest of the envelope, which names its file."""
        return sha256_hex(self.envelope)


def record_receipt(connection: Connection, receipt: SealedReceipt, subject: str) -> None:
    """Note a signed receipt about `subject`; its file is written once this is committed."""
    digest = receipt.digest
    added = connection.execute(insert_or(receipts).values(
        digest=digest, kind=receipt.kind, subject=subject, signed_ms=now_ms()
    ).on_conflict_do_nothing()).rowcount
    if added:
        connection.execute(insert(receipt_outbox).values(digest=digest, envelope=receipt.envelope.decode("ascii")))
    append_event(connection, "receipt.signed", subject, {"digest": digest, "kind": receipt.kind})


def undelivered(connection: Connection) -> tuple[SealedReceipt, ...]:
    """Return the receipts whose files may not be on disk yet, in the order in which they were signed, which no clock
    tells: what one names comes before it."""
    waiting = select(receipts.c.kind, receipt_outbox.c.envelope).join(receipts)
    rows = connection.execute(waiting.order_by(literal_column("receipt_outbox.rowid")))
    return tuple(SealedReceipt(row.kind, row.envelope.encode("ascii")) for row in rows)


def mark_delivered(connection: Connection, digests: Collection[str]) -> None:
    """Note that the files of these receipts are on disk."""
    connection.execute(delete(receipt_outbox).where(receipt_outbox.c.digest.in_(digests)))
