"""Checks of crowns: opened when a challenger's attempt gives reason to, measured like any attempt, and what follows.

Invariants
1. No challenger's word ends a crown: what it meets only opens a check, in which the crowned bundle is measured against
   what stands beneath it and no challenger has a part. One submission can have a crown checked by failing on it once,
   and once more after each of its rests, so that neither bad luck nor a crown that fails by turns stops it for ever.
2. A crown is revoked on two independent attempts that both show a fault of its own (`scoring.crown_check`), and on
   nothing else. A fault of ours is never one: the check is repeated within the fault budget, and given up then; who
   outpaced the crown waits some rests longer, and is settled then. Two attempts that show what a machine in trouble
   shows as well are not made in the same minutes. Once one shows slowness that nothing tells from the machine's, it
   takes `UNCOMPARED_LOOKS` attempts in a row, hours apart; that they show different faults keeps no check open.
3. Who waits for a check is parked without cost, keeps its place, and returns in the transaction that closes it.
"""

from __future__ import annotations

import msgspec
from sqlalchemy import Connection

from node.jobs import CROWN_REVOKED, PARKED_REST_MS, Job, RetryBudget, revoke
from node.services.attempt_choice import (
    INCUMBENT_BUNDLE_LOST,
    TARGET_NOT_SERVED,
    Chosen,
    Terms,
    choose,
    ended_crowns,
    open_stack,
)
from node.services.faults import LostIncumbentError, LostInputError
from node.services.scope import scope_of
from node.store.check_rows import (
    FAILED_AS_BASELINE,
    UNCOMPARED_LOOKS,
    CheckRow,
    checks,
    close_check,
    load_check,
    open_check,
    update_check,
)
from node.store.crown_rows import crown_state, record_settlement
from node.store.events import now_ms
from node.store.evidence_rows import AttemptRow, find_bundle, load_attempt, start_attempt
from node.store.job_rows import load_entry, save
from node.store.receipt_outbox import SealedReceipt, record_receipt
from scoring.crown_check import SUSPECT_RETRIES, TIMED_FAULTS, TOO_SLOW
from scoring.grade import REVIEW_CODES, Verdict
from scoring.settle import Crown, CrownState, FinalizedOrder, Plan
from scoring.settle import revoke as plan_revocation

SECOND_LOOK_MS = 30 * 60 * 1000  # between two checks of what a stalling machine can bring about too
_ROUNDS = 4  # of the fault budget, a rest apart, before who outpaced a crown stops waiting for its check


class Revoking(msgspec.Struct, frozen=True):
    """A proved check, what revoking its crown does, and the receipts of its two verdicts."""

    check: CheckRow
    plan: Plan
    verdict_receipts: tuple[str, str]


def accuse(connection: Connection, terms: Terms, chosen: Chosen, job: Job, code: str) -> bool:
    """Have the crowns checked that an attempt met and that its candidate would end; return whether one is now.

    `code` is the attempt's RETRY. Of those that a machine brings about as well, only one that would park the challenger
    gives reason to check.
    """
    if code not in SUSPECT_RETRIES or (code != "BASELINE_FAILED" and job.faults < terms.budget.attempts):
        return False
    met = set(chosen.attempt.measured_against.split(","))
    crowns = [crown for crown in ended_crowns(terms, crown_state(connection), job, chosen.entry.submission)
              if crown.submission_id in met]
    under_way = [
        open_check(
            connection, crown=crown.event_digest, submission_id=crown.submission_id, target_id=crown.target_id,
            occasion=FAILED_AS_BASELINE, cause=job.submission_id, cause_attempt=chosen.attempt.attempt_id,
            rests=job.rests,
        )
        for crown in crowns
    ]
    return any(under_way)


def choose_next(connection: Connection, terms: Terms) -> Chosen | None:
    """Claim the next attempt, a check of a crown before anything else. Returns None when nothing is due."""
    return choose_check(connection, terms) or choose(connection, terms)


def choose_check(connection: Connection, terms: Terms) -> Chosen | None:
    """Return the next attempt of a check that is due, recorded as running; close those that have lost their point."""
    waiting = checks(connection, "open")
    if not waiting:
        return None
    state = crown_state(connection)
    for check in waiting:
        crown = next((one for one in state.crowns if one.event_digest == check.crown), None)
        if crown is None:
            close_check(connection, check, "void", detail="the crown ended meanwhile")
        elif not now_ms() < check.not_before_ms <= now_ms() + PARKED_REST_MS:
            chosen = _opened(connection, terms, check, crown, state)
            if chosen is not None:
                return chosen
    return None


def _opened(
    connection: Connection, terms: Terms, check: CheckRow, crown: Crown, state: CrownState
) -> Chosen | None:
    target = terms.measured_target(check.target_id)
    if target is None or not terms.can_measure(target, set(target.members)):
        close_check(
            connection, check, "cleared", code=TARGET_NOT_SERVED,
            detail=f"not measured: the arena {terms.arena.id} has no workload for {check.target_id}",
        )
        return None
    beneath = CrownState(tuple(one for one in state.crowns if one != crown), state.sequence, state.head)
    scope = scope_of(terms.catalog, beneath, target)
    candidate, stack = find_bundle(connection, crown.content_hash), open_stack(connection, scope)
    if candidate is None or isinstance(stack, str):
        _wait_for_bundle(connection, check)
        return None
    tree = scope.tree_with(target, crown.content_hash).digest
    rival = (terms.arena.digest, scope.incumbent, ",".join(scope.measured_against), terms.worker)
    if check.first_attempt:
        first = load_attempt(connection, check.first_attempt)
        if (*rival, tree) != (
            first.arena_digest, first.incumbent, first.measured_against, first.worker, first.tree_digest
        ):
            check = update_check(connection, check, first_attempt="", code="", uncompared=0)
    check = update_check(connection, check, tries=check.tries + 1)
    entry = load_entry(connection, check.submission_id)
    attempt = AttemptRow(
        attempt_id=f"{check.submission_id}-check{check.id}-{check.tries}", submission_id=check.submission_id,
        role="recheck" if check.first_attempt else "check", state="running", content_hash=crown.content_hash,
        target_id=check.target_id, arena_digest=rival[0], incumbent=rival[1], measured_against=rival[2],
        previous_digest=load_attempt(connection, check.first_attempt).digest if check.first_attempt else "",
        worker=terms.worker,
    )
    start_attempt(connection, attempt)
    return Chosen(entry, attempt, candidate, stack, check.first_attempt, check.id)


def conclude_check(
    connection: Connection, budget: RetryBudget, chosen: Chosen, verdict: Verdict, fault: str, *,
    uncompared: bool = False,
) -> CheckRow:
    """Write down what the graded attempt of a check means; `fault` is what it shows against the crown, as a code, and
    `uncompared` says that too little ran beside it to tell whose that is."""
    check = load_check(connection, chosen.check)
    if check.state != "open":
        return check
    if fault:
        return _shown(connection, check, chosen, verdict, fault, uncompared=uncompared)
    too_slow = verdict.code == TOO_SLOW  # and the machine was in trouble, as the other arm shows
    if too_slow or (verdict.outcome == "RETRY" and verdict.code not in REVIEW_CODES):
        return _repeat(connection, check, budget, verdict.code, verdict.reason)
    close_check(connection, check, "cleared", code=verdict.code, detail=verdict.reason)
    return load_check(connection, check.id)


def _shown(
    connection: Connection, check: CheckRow, chosen: Chosen, verdict: Verdict, fault: str, *, uncompared: bool
) -> CheckRow:
    """Write down an attempt that shows a fault: the first of a pair, the second that proves it, or one of those that
    prove nothing in a pair."""
    name, again = chosen.attempt.attempt_id, chosen.attempt.role == "recheck"
    looks = max(check.uncompared, int(again)) + 1 if uncompared or check.uncompared else 0
    said = {"code": fault, "detail": verdict.reason, "faults": 0, "uncompared": looks}
    if again and (not looks or looks >= UNCOMPARED_LOOKS):
        return update_check(connection, check, state="proved", second_attempt=name, **said)
    wait = SECOND_LOOK_MS << min(max(0, looks - 1), UNCOMPARED_LOOKS - 2) if looks or fault in TIMED_FAULTS else 0
    first = "" if again else name  # the next two are a pair of their own
    return update_check(connection, check, first_attempt=first, not_before_ms=now_ms() + wait if wait else 0, **said)


def fail_check(connection: Connection, budget: RetryBudget, check_id: int, error: Exception) -> CheckRow:
    """Move a check on after a fault of ours in its attempt."""
    check = load_check(connection, check_id)
    if check.state != "open":
        return check
    lost_first = isinstance(error, LostInputError) and check.first_attempt != "" and error.back.value == "queued"
    if lost_first:
        check = update_check(connection, check, first_attempt="", code="")
    elif isinstance(error, LostIncumbentError | LostInputError):
        return _wait_for_bundle(connection, check)
    code = str(getattr(error, "code", "UNEXPECTED"))
    return _repeat(connection, check, budget, code, f"{type(error).__name__}: {error}"[:500])


def _wait_for_bundle(connection: Connection, check: CheckRow) -> CheckRow:
    return update_check(connection, check, code=INCUMBENT_BUNDLE_LOST, not_before_ms=now_ms() + PARKED_REST_MS)


def _repeat(connection: Connection, check: CheckRow, budget: RetryBudget, code: str, detail: str) -> CheckRow:
    """Try a check again later; give it up when the fault budget is spent: at once when nobody but who raised it needs
    it, after some rests when a winner waits for it, because nobody waits for ever."""
    faults = check.faults + 1
    if faults <= budget.attempts:
        return update_check(
            connection, check, faults=faults, not_before_ms=now_ms() + budget.delay_ms(faults), detail=detail
        )
    if check.occasion == FAILED_AS_BASELINE or check.tries >= _ROUNDS * faults:
        close_check(connection, check, "undecided", code=code, detail=detail)
        return load_check(connection, check.id)
    return update_check(connection, check, faults=0, not_before_ms=now_ms() + PARKED_REST_MS, detail=detail)


def prepare_revocation(connection: Connection) -> Revoking | None:
    """Return the oldest proved check and what follows from it; None when there is none."""
    proved = checks(connection, "proved")
    if not proved:
        return None
    state = crown_state(connection)
    for check in proved:
        if not any(crown.event_digest == check.crown for crown in state.crowns):
            continue
        first, second = load_attempt(connection, check.first_attempt), load_attempt(connection, check.second_attempt)
        order = FinalizedOrder(*load_entry(connection, check.submission_id).submission.order)
        plan = plan_revocation(
            state, check.submission_id, order, reason=check.code, evidence=(first.digest, second.digest)
        )
        return Revoking(check, plan, (first.receipt_digest, second.receipt_digest))
    return None


def commit_revocation(connection: Connection, revoking: Revoking, receipt: SealedReceipt) -> bool:
    """Write a prepared revocation, unless the store moved on since; return whether it was written."""
    if prepare_revocation(connection) != revoking:
        return False
    check = revoking.check
    record_settlement(connection, revoking.plan.events, {})
    record_receipt(connection, receipt, check.submission_id)
    job = load_entry(connection, check.submission_id).job
    save(connection, job, revoke(
        job, CROWN_REVOKED, f"the crown was revoked after two checks of its own: [{check.code}] {check.detail}"
    ))
    close_check(connection, check, "revoked")
    return True


def close_pointless(connection: Connection) -> int:
    """Close proved checks whose crown ended before it could be revoked. Returns how many."""
    proved = checks(connection, "proved")
    live = {crown.event_digest for crown in crown_state(connection).crowns} if proved else set()
    gone = [check for check in proved if check.crown not in live]
    for check in gone:
        close_check(connection, check, "void", detail="the crown ended meanwhile")
    return len(gone)
