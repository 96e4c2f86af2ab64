"""Receipts: what the validator signs about every verdict, crown and weight vector.

Invariants
1. Each receipt names its inputs by digest: weights -> crowns -> two verdicts -> attempt files -> arena and target.
2. A verdict receipt binds bundle, target, arena, incumbent, environment, attempt file and policy.
3. A weights receipt holds every input of the projection, so the vector can be recomputed from it, bit for bit.
4. Reading a receipt never trusts its arithmetic: `recompute_weights` derives the vector again and compares.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

import msgspec

from config.errors import EvidenceError, GradeError, InternalError
from scoring.attempt import Attempt, Environment, Reservation
from scoring.claims import Claim, standing_credit
from scoring.dsse import STATEMENT_TYPE, Statement, Subject
from scoring.grade import Verdict
from scoring.projection import Projection, WeightPolicy, WeightVector, project
from scoring.settle import SettlementEvent

VERDICT_V1 = "urn:cacheon:receipt:verdict.v1"
CROWN_V1 = "urn:cacheon:receipt:crown.v1"
WEIGHTS_V1 = "urn:cacheon:receipt:weights.v1"

_P = TypeVar("_P", bound=msgspec.Struct)


class VerdictPredicate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The predicate of `verdict.v1`."""

    attempt_digest: str
    attempt_id: str
    role: str
    previous_attempt: str
    target_id: str
    target_digest: str
    arena_id: str
    arena_digest: str
    incumbent_digest: str
    candidate_tree_digest: str
    reservation: Reservation
    environment: Environment
    verdict: Verdict
    reviewed: bool = False  # a person had looked at a speed that is too good to be believed unseen


class CrownPredicate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The predicate of `crown.v1`: the CROWN event and the receipts of the two verdicts behind it."""

    event: SettlementEvent
    event_digest: str
    verdict_receipts: tuple[str, str]  # SHA-256 of the two envelopes
    waived: tuple[str, ...] | None = None  # sandbox layers absent from an attempt, sorted; None in older receipts


class WeightsPredicate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The predicate of `weights.v1`: the vector and every input it follows from."""

    vector: WeightVector
    vector_digest: str
    netuid: int
    epoch: int
    claims: tuple[Claim, ...]
    present: tuple[str, ...]  # claimants that were in the metagraph at the block, sorted
    policy: WeightPolicy
    ledger_head: str  # digest of the last settlement event
    crown_receipts: tuple[str, ...]  # SHA-256 of the envelopes of the claims' crowns, sorted
    targets: tuple[str, ...] | None = None  # the claims' targets that are registered, sorted; None in older receipts
    replaces: str = ""  # SHA-256 of the epoch's earlier weights receipt, whose extrinsic can never be included
    waived: tuple[str, ...] | None = None  # sandbox layers that the validator waived then; None in older receipts


def verdict_statement(
    attempt: Attempt, attempt_digest: str, verdict: Verdict, *, reviewed: bool = False
) -> Statement:
    """Return the statement that `verdict` was reached on the attempt file with `attempt_digest`, `reviewed` or not.

    Raises `GradeError` (VERDICT_INTERVAL_REVERSED).
    """
    require_interval(verdict)
    identity = attempt.identity
    predicate = VerdictPredicate(
        attempt_digest=attempt_digest,
        attempt_id=attempt.attempt_id,
        role=attempt.role,
        previous_attempt=attempt.previous_attempt,
        target_id=identity.target_id,
        target_digest=identity.target_digest,
        arena_id=identity.arena_id,
        arena_digest=identity.arena_digest,
        incumbent_digest=identity.incumbent_digest,
        candidate_tree_digest=identity.candidate_tree_digest,
        reservation=identity.reservation,
        environment=attempt.environment,
        verdict=verdict,
        reviewed=reviewed,
    )
    return _statement("bundle", identity.content_hash, VERDICT_V1, predicate)


def require_interval(verdict: Verdict) -> None:
    """Refuse bounds that enclose nothing. Raises `GradeError` (VERDICT_INTERVAL_REVERSED)."""
    if verdict.lower_ppm > verdict.upper_ppm:
        raise EvidenceError(
            "VERDICT_INTERVAL_REVERSED",
            f"the lower bound of a speed-up, {verdict.lower_ppm} ppm, lies above the upper, {verdict.upper_ppm} ppm",
        )


def crown_statement(
    event: SettlementEvent, verdict_receipts: tuple[str, str], *, waived: tuple[str, ...] | None = None
) -> Statement:
    """Return the statement of one CROWN event. Raises `GradeError` (RECEIPT_NOT_A_CROWN) for any other event."""
    if event.type != "CROWN":
        raise EvidenceError("RECEIPT_NOT_A_CROWN", f"a {event.type} event has no crown receipt")
    predicate = CrownPredicate(event, event.digest, verdict_receipts, waived)
    return _statement("bundle", event.order.content_hash, CROWN_V1, predicate)


def weights_statement(predicate: WeightsPredicate) -> Statement:
    """Return the statement of one weight vector.

    Raises `GradeError` (RECEIPT_WEIGHTS_WRONG, WEIGHTS_POLICY_DIFFERS) when the vector does not follow from the
    predicate's own inputs.
    """
    recompute_weights(predicate)
    return _statement("weights", predicate.vector_digest, WEIGHTS_V1, predicate)


def read_predicate(statement: Statement, kind: type[_P]) -> _P:
    """Return the typed predicate of a verified statement.

    Raises `GradeError`: RECEIPT_KIND (another predicate type), RECEIPT_MALFORMED.
    """
    expected = {VerdictPredicate: VERDICT_V1, CrownPredicate: CROWN_V1, WeightsPredicate: WEIGHTS_V1}[kind]
    if statement.predicate_type != expected:
        raise GradeError("RECEIPT_KIND", f"the receipt is {statement.predicate_type[:60]!r}, not {expected!r}")
    try:
        return msgspec.convert(statement.predicate, kind, strict=True)
    except msgspec.ValidationError as error:
        raise GradeError("RECEIPT_MALFORMED", f"the receipt's predicate is malformed: {error}") from error


def recompute_weights(predicate: WeightsPredicate) -> Projection:
    """Derive the vector again from the receipt's inputs.

    Raises `GradeError`: WEIGHTS_POLICY_DIFFERS, RECEIPT_WEIGHTS_WRONG, and where the inputs give no vector at all what
    is wrong with them: CLAIM_FROM_FUTURE, CLAIM_WORTHLESS, CLAIM_DUPLICATE, HALF_LIFE_INVALID.
    """
    if predicate.policy.digest != predicate.vector.policy_digest:
        raise GradeError(
            "WEIGHTS_POLICY_DIFFERS",
            f"the vector was made under policy {predicate.vector.policy_digest[:12]}, and the receipt holds policy "
            f"{predicate.policy.digest[:12]}",
        )
    try:
        again = project(
            predicate.claims, block=predicate.vector.block, present=frozenset(predicate.present),
            policy=predicate.policy, targets=predicate.targets,
        )
    except InternalError as error:
        found = _first_fault(predicate) or error
        raise GradeError(
            found.code, f"no weight vector follows from the receipt's own inputs: {found.message}"
        ) from error
    if again.vector != predicate.vector or again.vector.digest != predicate.vector_digest:
        raise GradeError("RECEIPT_WEIGHTS_WRONG", "the weight vector does not follow from the receipt's own inputs")
    return again


def _first_fault(predicate: WeightsPredicate) -> InternalError | None:
    for claim in predicate.claims:
        try:
            standing_credit(claim, predicate.vector.block, predicate.policy.half_life_blocks)
        except InternalError as error:
            return error
    return None


def present_claimants(claims: Collection[Claim], metagraph_hotkeys: Collection[str]) -> tuple[str, ...]:
    """Return the claimants that are in the metagraph, sorted: all that a weights receipt has to keep of it."""
    members = frozenset(metagraph_hotkeys)
    return tuple(sorted({claim.hotkey for claim in claims} & members))


def _statement(name: str, digest: str, kind: str, predicate: msgspec.Struct) -> Statement:
    return Statement(STATEMENT_TYPE, (Subject(name, {"sha256": digest}),), kind, msgspec.to_builtins(predicate))
