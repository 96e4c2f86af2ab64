"""The receipt of a revoked crown: the REVOKE event, and the receipts of the two verdicts that show why."""

from __future__ import annotations

import msgspec

from config.errors import EvidenceError, GradeError
from scoring.dsse import STATEMENT_TYPE, Statement, Subject
from scoring.settle import SettlementEvent

REVOCATION_V1 = "urn:cacheon:receipt:revocation.v1"


class RevocationPredicate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The predicate of `revocation.v1`."""

    event: SettlementEvent
    event_digest: str
    verdict_receipts: tuple[str, str]  # SHA-256 of the two envelopes


def revocation_statement(event: SettlementEvent, verdict_receipts: tuple[str, str]) -> Statement:
    """Return the statement of one REVOKE event. Raises `GradeError` (RECEIPT_NOT_A_REVOCATION) for any other event."""
    if event.type != "REVOKE":
        raise EvidenceError("RECEIPT_NOT_A_REVOCATION", f"a {event.type} event has no receipt of a revoked crown")
    predicate = RevocationPredicate(event, event.digest, verdict_receipts)
    subject = Subject("bundle", {"sha256": event.order.content_hash})
    return Statement(STATEMENT_TYPE, (subject,), REVOCATION_V1, msgspec.to_builtins(predicate))


def read_revocation(statement: Statement) -> RevocationPredicate:
    """Return the predicate of a verified statement.

    Raises `GradeError`: RECEIPT_KIND (another predicate type), RECEIPT_MALFORMED (no such predicate, or one that does
    not name its event by its digest).
    """
    if statement.predicate_type != REVOCATION_V1:
        raise GradeError("RECEIPT_KIND", f"the receipt is {statement.predicate_type[:60]!r}, not {REVOCATION_V1!r}")
    try:
        predicate = msgspec.convert(statement.predicate, RevocationPredicate, strict=True)
    except msgspec.ValidationError as error:
        raise GradeError("RECEIPT_MALFORMED", f"the receipt's predicate is malformed: {error}") from error
    if predicate.event.digest != predicate.event_digest or predicate.event.type != "REVOKE":
        raise GradeError("RECEIPT_MALFORMED", "the receipt does not name a REVOKE event by its digest")
    return predicate
