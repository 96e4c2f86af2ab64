"""From one weight vector back to what was measured, through published documents alone. Pure.

weights.v1 -> the ledger's live crowns -> crown.v1 -> two verdict.v1 -> attempt files -> arena and target documents

Invariants
1. Every link is checked, in this order, and the first broken one is the error; nothing is repaired or skipped.
2. The vector is computed again from the crowns that the ledger leads to, and compared bit for bit.
3. Attempt files may be absent: then the verdicts are signed and consistent, and it is said that they were not graded
   again. One that is there is graded again, and must give exactly the verdict that was signed.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from config.arena import Arena
from config.canonical import domain_digest
from config.errors import GradeError
from scoring.attempt import Attempt, read_attempt
from scoring.claims import Claim
from scoring.grade import grade
from scoring.projection import Projection
from scoring.published import Published, Receipt, state_at, vector_of
from scoring.receipts import (
    CrownPredicate,
    VerdictPredicate,
    WeightsPredicate,
    present_claimants,
    recompute_weights,
    verdict_statement,
)
from scoring.reproduce import check_pair, credited_speedup_ppm
from scoring.settle import live_claims

TARGET_DOMAIN = "cacheon.target-spec"


class Evidence(Protocol):
    """Where the documents behind verdicts are; each may be absent."""

    def attempt(self, digest: str) -> bytes | None:
        """Return the canonical bytes of the attempt file with that digest."""

    def arena(self, digest: str) -> Arena | None:
        """Return the arena with that digest."""

    def target(self, digest: str) -> dict[str, object] | None:
        """Return the target document with that digest."""


class VerdictStep(msgspec.Struct, frozen=True):
    """One verdict behind a crown; the bound is ppm of the speed ratio. `regraded`: its attempt file was there, and
    grading it gave this verdict."""

    receipt: str
    attempt: str
    lower_ppm: int
    regraded: bool
    reviewed: bool


class CrownStep(msgspec.Struct, frozen=True):
    """One crown behind a vector. `target_known`: the document of its target was there and has the digest.
    `layers_waived`: sandbox layers that were not in force in one of its attempts.
    """

    claim: Claim
    receipt: str
    content_hash: str
    arena_id: str
    arena_digest: str
    target_known: bool
    layers_waived: tuple[str, ...]
    verdicts: tuple[VerdictStep, VerdictStep]


class Walk(msgspec.Struct, frozen=True):
    """A vector that was reproduced, and everything it was reproduced from."""

    receipt: str
    predicate: WeightsPredicate
    projection: Projection
    crowns: tuple[CrownStep, ...]


def walk(published: Published, evidence: Evidence, epoch: int | None = None) -> Walk:
    """Reproduce the vector of `epoch` (None: the newest) and check every link behind it.

    Raises `GradeError`: those of `vector_of` and `state_at`, RECEIPT_WEIGHTS_WRONG, WEIGHTS_POLICY_DIFFERS,
    WEIGHTS_CROWNS_DIFFER, RECEIPT_MISSING, CROWN_UNPROVEN, RECEIPT_DIGEST_DIFFERS, ARENA_NOT_PUBLISHED,
    VERDICT_REGRADE_DIFFERS, and those of reading and grading an attempt file.
    """
    digest = vector_of(published, epoch)
    predicate = published.weights[digest]
    projection = recompute_weights(predicate)
    _require_the_ledgers_crowns(published, predicate)
    steps = [_crown(published, evidence, one, predicate) for one in predicate.crown_receipts]
    if sorted(step.claim.claim_id for step in steps) != sorted(claim.claim_id for claim in predicate.claims):
        raise GradeError("WEIGHTS_CROWNS_DIFFER", "the crowns' receipts are not those of the claims, one for each")
    return Walk(digest, predicate, projection, tuple(sorted(steps, key=lambda step: step.claim.claim_id)))


def _require_the_ledgers_crowns(published: Published, predicate: WeightsPredicate) -> None:
    state = state_at(published, predicate.ledger_head)
    said = {claim.claim_id: claim for claim in predicate.claims}
    live = {claim.claim_id: claim for claim in live_claims(state)}
    for name in sorted(said.keys() | live.keys()):
        if said.get(name) != live.get(name):
            one = live.get(name) or said[name]
            how = "is not paid" if name not in said else "is not in the ledger" if name not in live else "differs"
            raise GradeError("WEIGHTS_CROWNS_DIFFER", f"crown {name[:12]} of {one.hotkey} on {one.target_id} {how}")
    if present_claimants(predicate.claims, predicate.present) != predicate.present:
        raise GradeError("WEIGHTS_CROWNS_DIFFER", "it names hotkeys as present that claim nothing")
    known = published.ledger.crown_receipts if published.ledger is not None else {}
    if predicate.crown_receipts != tuple(sorted(known.get(name, "") for name in live)):
        raise GradeError("WEIGHTS_CROWNS_DIFFER", "it names other receipts of crowns than the ledger does")


def _crown(published: Published, evidence: Evidence, digest: str, weights: WeightsPredicate) -> CrownStep:
    receipt = _found(published.crowns, digest, "crown")
    predicate = receipt.predicate
    assert isinstance(predicate, CrownPredicate)
    event = predicate.event
    claim = next((one for one in weights.claims if one.claim_id == predicate.event_digest), None)
    if claim is None:
        raise GradeError("WEIGHTS_CROWNS_DIFFER", f"receipt {digest[:12]} is of a crown that the vector does not pay")
    first, second = (_found(published.verdicts, one, "verdict") for one in predicate.verdict_receipts)
    one, other = _verdict_of(first), _verdict_of(second)
    order = event.order
    for holds, complaint in (
        (receipt.subject == order.content_hash, "its receipt is about another bundle"),
        (first.subject == second.subject == order.content_hash, "its verdicts are about another bundle"),
        ((one.role, other.role) == ("primary", "reproduction"), "its verdicts are no primary and reproduction"),
        (one.verdict.outcome == other.verdict.outcome == "PASS", "its verdicts are not both PASS"),
        (other.previous_attempt == one.attempt_digest, "the second verdict reproduces another attempt"),
        (event.evidence == (one.attempt_digest, other.attempt_digest), "its event names other attempt files"),
        (one.target_id == other.target_id == event.target_id, "its verdicts are on another target"),
        (_terms(one) == _terms(other), "its verdicts have other terms: arena, target, incumbent, tree or reservation"),
        (one.candidate_tree_digest == event.tree_digest, "its verdicts measured another tree"),
        (
            (one.reservation.block, one.reservation.event_index, one.reservation.hotkey)
            == (order.block, order.event_index, order.hotkey),
            "its verdicts are of another place on the chain",
        ),
        (event.speedup_ppm == credited_speedup_ppm(one.verdict, other.verdict), "it credits another speed-up"),
    ):
        if not holds:
            raise GradeError("CROWN_UNPROVEN", f"crown {predicate.event_digest[:12]} is not proven: {complaint}")
    attempts = [_regrade(evidence, verdict) for verdict in (first, second)]
    if attempts[0] is not None and attempts[1] is not None and (problem := check_pair(attempts[0], attempts[1])):
        raise GradeError("CROWN_UNPROVEN", f"crown {predicate.event_digest[:12]}: its attempts are no pair: {problem}")
    return CrownStep(
        claim, digest, order.content_hash, one.arena_id, one.arena_digest, _target_known(evidence, one.target_digest),
        tuple(sorted({*one.environment.layers_waived, *other.environment.layers_waived})),
        (
            VerdictStep(first.digest, one.attempt_digest, one.verdict.lower_ppm, attempts[0] is not None, one.reviewed),
            VerdictStep(
                second.digest, other.attempt_digest, other.verdict.lower_ppm, attempts[1] is not None, other.reviewed
            ),
        ),
    )


def _found(receipts: dict[str, Receipt], digest: str, what: str) -> Receipt:
    if digest not in receipts:
        raise GradeError("RECEIPT_MISSING", f"the receipt {digest or '(not named)'} of a {what} is not there")
    return receipts[digest]


def _verdict_of(receipt: Receipt) -> VerdictPredicate:
    assert isinstance(receipt.predicate, VerdictPredicate)
    return receipt.predicate


def _terms(verdict: VerdictPredicate) -> tuple[object, ...]:
    return (
        verdict.target_digest, verdict.arena_id, verdict.arena_digest, verdict.incumbent_digest,
        verdict.candidate_tree_digest, verdict.reservation, verdict.verdict.policy,
    )


def _regrade(evidence: Evidence, receipt: Receipt) -> Attempt | None:
    """Return the attempt behind a verdict after grading it again, or None when its file is not there."""
    signed = _verdict_of(receipt)
    data = evidence.attempt(signed.attempt_digest)
    if data is None:
        return None
    attempt = read_attempt(data, expected_digest=signed.attempt_digest)
    arena = evidence.arena(signed.arena_digest)
    if arena is None:
        raise GradeError(
            "ARENA_NOT_PUBLISHED", f"attempt {signed.attempt_digest[:12]} is here, its arena {signed.arena_id} is not"
        )
    verdict = grade(attempt, arena, reviewed=True) if signed.reviewed else grade(attempt, arena)
    again = verdict_statement(attempt, signed.attempt_digest, verdict, reviewed=signed.reviewed)
    same = msgspec.convert(again.predicate, VerdictPredicate, strict=True) == signed
    if not same or again.subject[0].digest["sha256"] != receipt.subject:
        raise GradeError(
            "VERDICT_REGRADE_DIFFERS", f"attempt {signed.attempt_digest[:12]} does not give the verdict that was signed"
        )
    return attempt


def _target_known(evidence: Evidence, digest: str) -> bool:
    document = evidence.target(digest)
    if document is None:
        return False
    if domain_digest(TARGET_DOMAIN, document) != digest:
        raise GradeError("RECEIPT_DIGEST_DIFFERS", f"the document of target {digest[:12]} has another digest")
    return True
