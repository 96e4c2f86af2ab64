"""What persons decided about submissions.

Invariants
1. A decision is written with its event, its receipt and the job's move, in one transaction; it is never changed.
2. It holds for the arena it was made in, and for nothing but the submission, or the hotkey's same bytes, it names.
"""

from __future__ import annotations

import msgspec
from sqlalchemy import Connection, insert, select

from node.store.events import append_event
from node.store.receipt_outbox import SealedReceipt, record_receipt
from node.store.schema import decisions, submissions
from scoring.decision import DecisionPredicate


class DecisionRow(msgspec.Struct, frozen=True):
    """One decision, as `scoring.decision` has it."""

    submission_id: str
    kind: str
    content_hash: str
    arena_digest: str
    attempt_id: str
    code: str
    reason: str
    receipt_digest: str
    decided_ms: int


_COLUMNS = [decisions.c[name] for name in DecisionRow.__struct_fields__]


def record_decision(
    connection: Connection, decision: DecisionPredicate, *, attempt_id: str, receipt: SealedReceipt
) -> None:
    """Write down a decision and its receipt."""
    connection.execute(insert(decisions).values(
        submission_id=decision.submission_id, kind=decision.kind, content_hash=decision.content_hash,
        arena_digest=decision.arena_digest, attempt_id=attempt_id, code=decision.code, reason=decision.reason,
        receipt_digest=receipt.digest, decided_ms=decision.decided_unix_ms,
    ))
    record_receipt(connection, receipt, decision.submission_id)
    append_event(connection, f"decision.{decision.kind}", decision.submission_id, {
        "code": decision.code, "attempt_id": attempt_id, "reason": decision.reason, "receipt": receipt.digest,
    })


def all_decisions(connection: Connection) -> list[DecisionRow]:
    """Return every decision, oldest first."""
    rows = connection.execute(select(*_COLUMNS).order_by(decisions.c.id)).mappings()
    return [DecisionRow(**row) for row in rows]


def is_accepted(connection: Connection, submission_id: str, arena_digest: str) -> bool:
    """Say whether a person found nothing wrong with a submission's speed in an arena."""
    found = select(decisions.c.id).where(
        decisions.c.submission_id == submission_id, decisions.c.kind == "accept",
        decisions.c.arena_digest == arena_digest,
    )
    return connection.execute(found.limit(1)).first() is not None


def refusal(connection: Connection, hotkey: str, content_hash: str, arena_digest: str) -> str:
    """Return why a person refused a hotkey's bundle in an arena, "" when nobody did, or it was opened again since."""
    newest = (
        select(decisions.c.kind, decisions.c.reason).join(submissions)
        .where(
            submissions.c.hotkey == hotkey, decisions.c.content_hash == content_hash,
            decisions.c.arena_digest == arena_digest,
        )
        .order_by(decisions.c.id.desc()).limit(1)
    )
    row = connection.execute(newest).first()
    return str(row.reason) if row is not None and row.kind == "refuse" else ""
