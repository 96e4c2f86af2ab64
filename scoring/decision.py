"""The receipt of a decision that a person made about a submission, so that observers see it, and its reason."""

from __future__ import annotations

from typing import Literal

import msgspec

from config.errors import GradeError
from scoring.dsse import STATEMENT_TYPE, Statement, Subject

DECISION_V1 = "urn:cacheon:receipt:decision.v1"
Kind = Literal["accept", "refuse", "reopen"]


class DecisionPredicate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The predicate of `decision.v1`.

    "accept": nothing is wrong with a speed-up that waited for a person; in this arena the submission's attempts are
    graded as `reviewed`. "refuse": it fails. "reopen": it failed, or lost its crown, by the validator's fault, and
    begins anew. `code` is what was decided on, `attempt_digest` and `verdict_receipt` what showed it, empty where
    nothing did.
    """

    kind: Kind
    submission_id: str
    hotkey: str
    content_hash: str
    target_id: str
    arena_digest: str
    code: str
    attempt_digest: str
    verdict_receipt: str
    reason: str
    decided_unix_ms: int


def decision_statement(predicate: DecisionPredicate) -> Statement:
    """Return the statement of one decision."""
    subject = Subject("bundle", {"sha256": predicate.content_hash})
    return Statement(STATEMENT_TYPE, (subject,), DECISION_V1, msgspec.to_builtins(predicate))


def read_decision(statement: Statement) -> DecisionPredicate:
    """Return the predicate of a verified statement. Raises `GradeError` (RECEIPT_KIND, RECEIPT_MALFORMED)."""
    if statement.predicate_type != DECISION_V1:
        raise GradeError("RECEIPT_KIND", f"the receipt is {statement.predicate_type[:60]!r}, not {DECISION_V1!r}")
    try:
        return msgspec.convert(statement.predicate, DecisionPredicate, strict=True)
    except msgspec.ValidationError as error:
        raise GradeError("RECEIPT_MALFORMED", f"the receipt's predicate is malformed: {error}") from error
