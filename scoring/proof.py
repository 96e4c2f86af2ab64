"""The two verdicts behind one settlement event, from their receipts to their attempt files. Pure.

Invariants
1. A crown rests on a PASS and its reproduction, a revocation on two checks of the crown that both show a fault of its
   own. Either way the two are a pair: same question, asked twice independently.
2. An attempt file that is there is graded again and must give the verdict that was signed, and two of them must be a
   pair. Where it is not there, the verdict is signed and nothing more.
3. A verdict that was reached as `reviewed` needs the published decision of a person, on this bundle in this arena.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import msgspec

from config.arena import Arena
from config.canonical import domain_digest
from config.errors import GradeError
from scoring.attempt import Attempt, read_attempt
from scoring.crown_check import fault_of_crown
from scoring.decision import DecisionPredicate
from scoring.grade import REVIEW_CODES, grade
from scoring.published import Published, Receipt
from scoring.receipts import VerdictPredicate, verdict_statement
from scoring.reproduce import check_pair, credited_speedup_ppm
from scoring.settle import SettlementEvent

TARGET_DOMAIN = "cacheon.target-spec"


class Evidence(Protocol):
    """Where the documents behind verdicts are; each may be absent."""

    def attempt(self, digest: str, /) -> bytes | None:
        """Return the canonical bytes of the attempt file with that digest."""

    def arena(self, digest: str, /) -> Arena | None:
        """Return the arena with that digest."""

    def target(self, digest: str, /) -> dict[str, object] | None:
        """Return the target document with that digest."""


class NoEvidence:
    """Nothing behind the receipts is there."""

    def attempt(self, _digest: str, /) -> bytes | None:
        """Return nothing."""
        return None

    def arena(self, _digest: str, /) -> Arena | None:
        """Return nothing."""
        return None

    def target(self, _digest: str, /) -> dict[str, object] | None:
        """Return nothing."""
        return None


class Proof(NamedTuple):
    """What was found: the two receipts, whether each was graded again, whether the target's document was there."""

    first: Receipt
    second: Receipt
    regraded: tuple[bool, bool]
    target_known: bool

    @property
    def verdicts(self) -> tuple[VerdictPredicate, VerdictPredicate]:
        """The two verdicts."""
        return verdict_of(self.first), verdict_of(self.second)


def prove(
    published: Published, evidence: Evidence, event: SettlementEvent, named: tuple[str, str]
) -> Proof:
    """Check the verdicts whose receipts `named` says are behind a CROWN or a REVOKE.

    Raises `GradeError`: CROWN_UNPROVEN or REVOCATION_UNPROVEN, RECEIPT_MISSING, RECEIPT_DIGEST_DIFFERS,
    REVIEW_DECISION_MISSING, ARENA_NOT_PUBLISHED, VERDICT_REGRADE_DIFFERS, the codes of `check_pair`'s first broken rule
    inside the message, and those of reading and grading an attempt file.
    """
    first, second = (found(published.verdicts, one, "verdict") for one in named)
    one, other = verdict_of(first), verdict_of(second)
    order = event.order
    place = (order.block, order.event_index, order.hotkey)
    for holds, complaint in (
        (first.subject == second.subject == order.content_hash, "its verdicts are about another bundle"),
        ((one.role, other.role) == ("primary", "reproduction"), "its verdicts are no primary and reproduction"),
        (other.previous_attempt == one.attempt_digest, "the second verdict reproduces another attempt"),
        (one.attempt_id != other.attempt_id, "its two verdicts are about one attempt"),
        (event.evidence == (one.attempt_digest, other.attempt_digest), "its event names other attempt files"),
        (one.target_id == other.target_id == event.target_id, "its verdicts are on another target"),
        (_terms(one) == _terms(other), "its verdicts have other terms: arena, target, incumbent, tree or reservation"),
        (
            (one.reservation.block, one.reservation.event_index, one.reservation.hotkey) == place,
            "its verdicts are of another place on the chain",
        ),
        *(_crown_rules(event, one, other) if event.type == "CROWN" else _revocation_rules(one, other)),
    ):
        if not holds:
            raise _unproven(event, complaint)
    for receipt in (first, second):
        _require_decision(published.decisions, receipt)
    attempts = [_regrade(evidence, receipt) for receipt in (first, second)]
    if attempts[0] is not None and attempts[1] is not None and (
        problem := check_pair(attempts[0], attempts[1], primary_digest=one.attempt_digest)
    ):
        raise _unproven(event, f"its attempts are no pair: {problem}")
    if event.type == "REVOKE":
        _require_faults(evidence, event, (one, other), attempts)
    known = _target_known(evidence, event, one)
    return Proof(first, second, (attempts[0] is not None, attempts[1] is not None), known)


def found(receipts: Mapping[str, Receipt], digest: str, what: str) -> Receipt:
    """Return a receipt that another document names. Raises `GradeError` (RECEIPT_MISSING)."""
    if digest not in receipts:
        raise GradeError("RECEIPT_MISSING", f"the receipt {digest or '(not named)'} of a {what} is not there")
    return receipts[digest]


def verdict_of(receipt: Receipt) -> VerdictPredicate:
    """Return what a verdict's receipt says."""
    assert isinstance(receipt.predicate, VerdictPredicate)
    return receipt.predicate


def _crown_rules(
    event: SettlementEvent, one: VerdictPredicate, other: VerdictPredicate
) -> tuple[tuple[bool, str], ...]:
    return (
        (one.verdict.outcome == other.verdict.outcome == "PASS", "its verdicts are not both PASS"),
        (one.candidate_tree_digest == event.tree_digest, "its verdicts measured another tree"),
        (event.speedup_ppm == credited_speedup_ppm(one.verdict, other.verdict), "it credits another speed-up"),
    )


def _revocation_rules(one: VerdictPredicate, other: VerdictPredicate) -> tuple[tuple[bool, str], ...]:
    return ((
        "PASS" not in (one.verdict.outcome, other.verdict.outcome),
        "one of its two checks is a PASS, which speaks for the crown",
    ),)


def _unproven(event: SettlementEvent, complaint: str) -> GradeError:
    if event.type == "CROWN":
        return GradeError("CROWN_UNPROVEN", f"crown {event.digest[:12]} is not proven: {complaint}")
    return GradeError(
        "REVOCATION_UNPROVEN", f"the crown of {event.order.hotkey} on {event.target_id} was revoked (event "
        f"{event.sequence}) without proof: {complaint}",
    )


def _terms(verdict: VerdictPredicate) -> tuple[object, ...]:
    return (
        verdict.target_digest, verdict.arena_id, verdict.arena_digest, verdict.incumbent_digest,
        verdict.candidate_tree_digest, verdict.reservation, verdict.verdict.policy,
    )


def _require_decision(decisions: Mapping[str, DecisionPredicate], receipt: Receipt) -> None:
    verdict = verdict_of(receipt)
    if not verdict.reviewed:
        return
    wanted = (verdict.reservation.hotkey, receipt.subject, verdict.target_id, verdict.arena_digest)
    for one in decisions.values():
        about = (one.hotkey, one.content_hash, one.target_id, one.arena_digest)
        if one.kind == "accept" and one.code in REVIEW_CODES and about == wanted:
            return
    raise GradeError(
        "REVIEW_DECISION_MISSING", f"verdict {receipt.digest[:12]} was reached as reviewed by a person, and no receipt "
        f"says that somebody accepted bundle {receipt.subject[:12]} of {verdict.reservation.hotkey} in arena "
        f"{verdict.arena_id}",
    )


def _regrade(evidence: Evidence, receipt: Receipt) -> Attempt | None:
    """Return the attempt behind a verdict after grading it again, or None when its file is not there."""
    signed = verdict_of(receipt)
    data = evidence.attempt(signed.attempt_digest)
    if data is None:
        return None
    attempt = read_attempt(data, expected_digest=signed.attempt_digest)
    verdict = grade(attempt, _arena(evidence, signed), reviewed=signed.reviewed)
    again = verdict_statement(attempt, signed.attempt_digest, verdict, reviewed=signed.reviewed)
    same = msgspec.convert(again.predicate, VerdictPredicate, strict=True) == signed
    if not same or again.subject[0].digest["sha256"] != receipt.subject:
        raise GradeError(
            "VERDICT_REGRADE_DIFFERS", f"attempt {signed.attempt_digest[:12]} does not give the verdict that was signed"
        )
    return attempt


def _arena(evidence: Evidence, signed: VerdictPredicate) -> Arena:
    arena = evidence.arena(signed.arena_digest)
    if arena is None:
        raise GradeError(
            "ARENA_NOT_PUBLISHED", f"attempt {signed.attempt_digest[:12]} is here, its arena {signed.arena_id} is not"
        )
    return arena


def _require_faults(
    evidence: Evidence, event: SettlementEvent, verdicts: tuple[VerdictPredicate, VerdictPredicate],
    attempts: list[Attempt | None],
) -> None:
    """Ask of each check that is there what it shows against the crown; the second one's is the event's reason."""
    faults = [
        None if attempt is None else fault_of_crown(attempt, signed.verdict, _arena(evidence, signed))
        for attempt, signed in zip(attempts, verdicts, strict=True)
    ]
    if "" in faults:
        raise _unproven(event, "a check shows no fault of the crowned bundle")
    if faults[1] not in (None, event.reason):
        raise _unproven(event, f"the second check shows {faults[1]}, and it names {event.reason[:40]} as its reason")


def _target_known(evidence: Evidence, event: SettlementEvent, verdict: VerdictPredicate) -> bool:
    document = evidence.target(verdict.target_digest)
    if document is None:
        return False
    if domain_digest(TARGET_DOMAIN, document) != verdict.target_digest:
        raise GradeError(
            "RECEIPT_DIGEST_DIFFERS", f"the document of target {verdict.target_digest[:12]} has another digest"
        )
    if document.get("target_id") != event.target_id:
        raise _unproven(event, f"what was measured is target {str(document.get('target_id'))[:80]}")
    members = document.get("members")
    if not isinstance(members, list) or members != list(event.members):
        raise _unproven(event, "the document of its target has other members than its event")
    return True
