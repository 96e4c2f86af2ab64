"""From one weight vector back to what was measured, through published documents alone. Pure.

weights.v1 -> the ledger's crowns -> crown.v1 -> two verdict.v1 -> attempt files -> arena and target documents
                                  -> revocation.v1 -> two verdict.v1 -> attempt files

Invariants
1. Every link is checked, in this order, and the first broken one is the error; nothing is repaired or skipped.
2. The vector is computed again from the crowns that the ledger leads to, and compared bit for bit.
3. Every crown up to the vector has its proof, whether it still stands or not, and so has every revocation: who ends a
   crown without one takes from its holder as much as who pays a crown without one.
4. Attempt files may be absent: then the verdicts are signed and consistent, and it is said that they were not graded
   again. Those of former crowns are not asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from config.errors import GradeError
from scoring.beneath import stood_beneath
from scoring.claims import Claim
from scoring.projection import Projection
from scoring.proof import Evidence, NoEvidence, Proof, found, prove
from scoring.published import Published, state_at, vector_of
from scoring.receipts import CrownPredicate, WeightsPredicate, present_claimants, recompute_weights
from scoring.revocation import RevocationPredicate
from scoring.settle import Crown, CrownState, SettlementEvent, apply_event, live_claims

__all__ = ["CrownStep", "Evidence", "NoEvidence", "RevocationStep", "VerdictStep", "Walk", "walk"]


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
    `incumbent_known`: it was measured against what held its slots then. `layers_waived`: sandbox layers that were not
    in force in one of its attempts.
    """

    claim: Claim
    receipt: str
    content_hash: str
    arena_id: str
    arena_digest: str
    target_known: bool
    incumbent_known: bool
    layers_waived: tuple[str, ...]
    verdicts: tuple[VerdictStep, VerdictStep]


class RevocationStep(msgspec.Struct, frozen=True):
    """One crown that was revoked before the vector; `reason` is the code of what two checks show against it."""

    receipt: str
    target_id: str
    hotkey: str
    reason: str
    verdicts: tuple[VerdictStep, VerdictStep]


class Walk(msgspec.Struct, frozen=True):
    """A vector that was reproduced, and everything it was reproduced from. `former` counts crowns that had ended by
    then, `later_events` settlement events that the vector knows nothing of."""

    receipt: str
    predicate: WeightsPredicate
    projection: Projection
    crowns: tuple[CrownStep, ...]
    revocations: tuple[RevocationStep, ...]
    former: int
    later_events: int


def walk(published: Published, evidence: Evidence, epoch: int | None = None) -> Walk:
    """Reproduce the vector of `epoch` (None: the newest) and check every link behind it.

    Raises `GradeError`: those of `vector_of`, `state_at`, `recompute_weights` and `prove`, WEIGHTS_CROWNS_DIFFER,
    CROWN_UNPROVEN, CROWN_INCUMBENT_WRONG, REVOCATION_UNPROVEN.
    """
    digest = vector_of(published, epoch)
    predicate = published.weights[digest]
    projection = recompute_weights(predicate)
    _require_the_ledgers_crowns(published, predicate)
    claims = {claim.claim_id: claim for claim in predicate.claims}
    number = published.sequence_of[predicate.ledger_head]
    past = tuple(_with_crowns(published.ledger.events[:number])) if published.ledger is not None else ()
    crowned = [(event, crowns) for event, crowns in past if event.type == "CROWN"]
    steps = [
        _crown(published, evidence, claims[event.digest], event, crowns)
        for event, crowns in crowned if event.digest in claims
    ]
    for event, crowns in crowned:
        if event.digest not in claims:
            _proof_of_crown(published, NoEvidence(), event, crowns)
    revocations = [_revocation(published, evidence, event) for event, _ in past if event.type == "REVOKE"]
    _require_reopened(published, [event for event, _ in past])
    return Walk(
        digest, predicate, projection, tuple(sorted(steps, key=lambda step: step.claim.claim_id)), tuple(revocations),
        len(crowned) - len(steps), len(published.ledger.events) - number if published.ledger is not None else 0,
    )


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
    targets = {claim.target_id for claim in predicate.claims}
    if predicate.targets is not None and predicate.targets != tuple(sorted(targets.intersection(predicate.targets))):
        raise GradeError("WEIGHTS_CROWNS_DIFFER", "it names targets as registered that nobody claims")
    known = published.ledger.crown_receipts if published.ledger is not None else {}
    if predicate.crown_receipts != tuple(sorted(known.get(name, "") for name in live)):
        raise GradeError("WEIGHTS_CROWNS_DIFFER", "it names other receipts of crowns than the ledger does")


def _with_crowns(events: tuple[SettlementEvent, ...]) -> Iterator[tuple[SettlementEvent, tuple[Crown, ...]]]:
    """Yield each event with the crowns that were live before it, and before those that it ends were taken away."""
    state, ending = CrownState(), False
    before: tuple[Crown, ...] = ()
    for event in events:
        if not ending:
            before = state.crowns
        yield event, before
        ending = event.type in ("RETIRE", "DISPLACE")
        state = apply_event(state, event)


def _proof_of_crown(
    published: Published, evidence: Evidence, event: SettlementEvent, before: tuple[Crown, ...]
) -> tuple[Proof, bool]:
    """Return what proves a crown, and whether what it was measured against could be told."""
    assert published.ledger is not None
    receipt = found(published.crowns, published.ledger.crown_receipts.get(event.digest, ""), "crown")
    predicate = receipt.predicate
    assert isinstance(predicate, CrownPredicate)
    if predicate.event_digest != event.digest:
        raise GradeError("WEIGHTS_CROWNS_DIFFER", f"receipt {receipt.digest[:12]} is that of another crown")
    proof = prove(published, evidence, event, predicate.verdict_receipts)
    if predicate.waived is not None and predicate.waived != _layers_waived(proof):
        raise GradeError(
            "CROWN_UNPROVEN", f"crown {event.digest[:12]} is not proven: it says that other sandbox layers were waived "
            "than its verdicts do",
        )
    beneath = stood_beneath(proof.verdicts[0].incumbent_digest, before, event.target_id)
    if beneath is False:
        raise GradeError(
            "CROWN_INCUMBENT_WRONG", f"crown {event.digest[:12]} of {event.order.hotkey} on {event.target_id} was not "
            "measured against the crowns that stood then",
        )
    return proof, beneath is True


def _crown(
    published: Published, evidence: Evidence, claim: Claim, event: SettlementEvent, before: tuple[Crown, ...]
) -> CrownStep:
    assert published.ledger is not None
    proof, incumbent_known = _proof_of_crown(published, evidence, event, before)
    one = proof.verdicts[0]
    return CrownStep(
        claim, published.ledger.crown_receipts[event.digest], event.order.content_hash, one.arena_id, one.arena_digest,
        proof.target_known, incumbent_known, _layers_waived(proof), _verdict_steps(proof),
    )


def _revocation(published: Published, evidence: Evidence, event: SettlementEvent) -> RevocationStep:
    for digest, receipt in sorted(published.revocations.items()):
        predicate = receipt.predicate
        if isinstance(predicate, RevocationPredicate) and predicate.event_digest == event.digest:
            proof = prove(published, evidence, event, predicate.verdict_receipts)
            return RevocationStep(
                digest, event.target_id, event.order.hotkey, event.reason, _verdict_steps(proof)
            )
    raise GradeError(
        "REVOCATION_UNPROVEN", f"the crown of {event.order.hotkey} on {event.target_id} was revoked (event "
        f"{event.sequence}), and no receipt says on which two checks",
    )


def _require_reopened(published: Published, past: list[SettlementEvent]) -> None:
    """A submission whose crown was revoked begins anew by a person's decision, and by nothing else."""
    revoked: set[str] = set()
    reopened = {one.submission_id for one in published.decisions.values() if one.kind == "reopen"}
    for event in past:
        if event.type == "REVOKE":
            revoked.add(event.submission_id)
        elif event.type == "CROWN" and event.submission_id in revoked - reopened:
            raise GradeError(
                "REVIEW_DECISION_MISSING", f"the crown of {event.order.hotkey} on {event.target_id} was revoked, and "
                "it was crowned again without a receipt that says why it was opened again",
            )


def _layers_waived(proof: Proof) -> tuple[str, ...]:
    return tuple(sorted({layer for one in proof.verdicts for layer in one.environment.layers_waived}))


def _verdict_steps(proof: Proof) -> tuple[VerdictStep, VerdictStep]:
    first, second = (
        VerdictStep(receipt.digest, one.attempt_digest, one.verdict.lower_ppm, regraded, one.reviewed)
        for receipt, one, regraded in zip((proof.first, proof.second), proof.verdicts, proof.regraded, strict=True)
    )
    return first, second
