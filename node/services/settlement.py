"""Turns pairs of passes into crowns.

Invariants
1. What happens is `scoring.settle.plan` of what the store holds; this service only gathers its inputs and writes its
   result. Settlement events, crowns, receipts and job moves are one transaction.
2. Copies are refused once more before they could be crowned.
3. An earlier submission holds back a later candidate only while it is on its way and may overlap: with its own
   members once its target is known, with every member while its bounded transport budget lasts. A parked one holds
   back nobody, unless it waits for a check of a crown; nor does one that has rested before, or whose payment cannot be
   looked up for long. So whatever is before a candidate, it is held back for a bounded time.
4. A candidate measured against a former incumbent, or whose crown would make another tree than the one it was measured
   in, goes back to the queue, free of charge.
5. Nobody earns more than the crown he takes before that was checked: its bundle could have been slow for him. Whoever
   concerns a slot of such a winner waits for the check as well; the others are settled. A check that nobody can make
   (faults of ours, for about a day) holds back nobody for ever.
6. A crown that two checks speak against is revoked, in a transaction of its own and before anything is settled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
import structlog
from sqlalchemy import Connection

from config.target_catalog import TargetCatalog
from node.jobs import TARGET_UNKNOWN, Job, JobState, is_stuck, park, transition
from node.services.attempt_choice import TARGET_NOT_SERVED
from node.services.context import NodeContext
from node.services.copies import fail_if_copy
from node.services.crown_checks import close_pointless, commit_revocation, prepare_revocation
from node.services.receipts import ReceiptBook, deliver, deliver_or_tell
from node.services.scope import scope_of
from node.store.check_rows import CROWN_IN_CHECK, OUTPACED, checks, is_answered, open_check
from node.store.crown_rows import crown_state, record_settlement
from node.store.events import append_event, now_ms
from node.store.evidence_rows import AttemptRow, load_attempt
from node.store.job_rows import Entry, entries, save, unfinished
from node.store.receipt_outbox import SealedReceipt, record_receipt
from scoring.receipts import crown_statement
from scoring.reproduce import credited_speedup_ppm
from scoring.revocation import revocation_statement
from scoring.settle import Candidate, Crown, CrownState, FinalizedOrder, Plan, Unresolved, plan

_REQUEUED = "measured against a former incumbent; measured again against the present one"


class Question(msgspec.Struct, frozen=True):
    """A crown that has to be checked before the winner with this primary attempt can take it."""

    crown: Crown
    winner: str
    attempt: str


class Settling(msgspec.Struct, frozen=True):
    """A plan and the receipts of the verdicts behind each candidate, by submission."""

    plan: Plan
    verdict_receipts: dict[str, tuple[str, str]]
    questions: tuple[Question, ...] = ()


class SettlementService:
    """The settlement service."""

    name = "settlement"

    def __init__(self, context: NodeContext, receipts: ReceiptBook) -> None:
        self._context = context
        self._receipts = receipts
        self._ear = context.wake.listen()

    async def run(self) -> None:
        """Settle whatever can be settled, again after every change, until cancelled."""
        while True:
            if await self.settle_once():
                self._context.wake.notify()
            await self._ear.wait(self._context.settings.chain.poll_seconds)

    async def settle_once(self) -> bool:
        """Make one pass; return whether it changed anything."""
        context = self._context
        await deliver(context.store, self._receipts)  # nothing below may name a receipt that is not on disk
        cleared = await context.store.write(clear, context.catalog, context.worker)
        if await self._revoke():
            return True
        settling = await context.store.read(prepare, context.catalog)
        if settling is None or not (settling.plan.events or settling.questions):
            return cleared > 0
        receipts = await asyncio.to_thread(self._sign, settling)
        # Nothing was locked meanwhile: if the store moved on, the plan is stale and the next pass makes a new one.
        if not await context.store.write(commit, context.catalog, settling, receipts):
            return True
        await deliver_or_tell(context.store, self._receipts)
        for event in settling.plan.events:
            structlog.get_logger().info(
                f"settlement.{event.type.lower()}", submission=event.submission_id, target=event.target_id,
                speedup_ppm=event.speedup_ppm, cause=event.cause,
            )
        return True

    async def _revoke(self) -> bool:
        """Revoke the next crown that two checks speak against; return whether anything changed."""
        store = self._context.store
        revoking = await store.read(prepare_revocation)
        if revoking is None:
            return await store.write(close_pointless) > 0
        (event,) = revoking.plan.events
        receipt = await asyncio.to_thread(
            self._receipts.seal, revocation_statement(event, revoking.verdict_receipts)
        )
        if await store.write(commit_revocation, revoking, receipt):
            await deliver_or_tell(store, self._receipts)
            structlog.get_logger().warning(
                "settlement.revoke", submission=event.submission_id, target=event.target_id, reason=event.reason
            )
        return True

    def _sign(self, settling: Settling) -> dict[str, SealedReceipt]:
        signed = {}
        for event in settling.plan.events:
            if event.type == "CROWN":
                verdicts = settling.verdict_receipts[event.submission_id]
                statement = crown_statement(event, verdicts, waived=self._receipts.waived(verdicts))
                signed[event.submission_id] = self._receipts.seal(statement)
        return signed


def clear(connection: Connection, catalog: TargetCatalog, worker: str) -> int:
    """Take finished candidates that cannot be crowned out of the way: copies fail, targets that are no longer
    registered park. Returns how many."""
    count = 0
    for entry in entries(connection, JobState.PASSED_TWICE):
        job = entry.job
        if fail_if_copy(connection, entry) is not None:
            count += 1
        elif catalog.find(job.target_id) is None:
            save(connection, job, park(
                job, job.token, worker=worker, now_ms=now_ms(), code=TARGET_NOT_SERVED,
                detail=f"{job.target_id} is no registered target any more",
            ))
            count += 1
    return count


def prepare(connection: Connection, catalog: TargetCatalog) -> Settling | None:
    """Return what settling now would do, or None when no candidate is finished."""
    finished = entries(connection, JobState.PASSED_TWICE)
    if not finished:
        return None
    state = crown_state(connection)
    pairs = {entry.job.submission_id: _pair(connection, entry) for entry in finished}
    candidates = [_candidate(entry, pairs[entry.job.submission_id], catalog, state) for entry in finished]
    everything = tuple(sorted({member for target in catalog.targets.values() for member in target.members}))
    on_their_way = [
        Unresolved(entry.job.submission_id, _order(entry), _slots(entry, catalog, state, everything))
        for entry in unfinished(connection) if _holds_back(entry.job)
    ]
    settled, questions = _settle(connection, state, candidates, on_their_way, pairs)
    return Settling(
        settled,
        {name: (first.receipt_digest, second.receipt_digest) for name, (first, second) in pairs.items()},
        questions,
    )


def _holds_back(job: Job) -> bool:
    if job.state is JobState.PASSED_TWICE or is_stuck(job):
        return False
    return job.state is not JobState.PARKED or job.code == CROWN_IN_CHECK


def _settle(
    connection: Connection, state: CrownState, candidates: list[Candidate], unresolved: list[Unresolved],
    pairs: Mapping[str, tuple[AttemptRow, AttemptRow]],
) -> tuple[Plan, tuple[Question, ...]]:
    """Return the plan for the candidates that no check of a crown is missing for, and the checks that are to be opened.
    """
    in_check = {check.crown for check in checks(connection, "open", "proved")}
    questions: list[Question] = []
    ready = candidates
    while True:
        settled = plan(state, ready, unresolved)
        open_now = [
            question for question in _questions(state, settled, pairs)
            if not is_answered(connection, question.crown.event_digest, question.attempt)
        ]
        if not open_now:
            return settled, tuple(questions)
        questions += [question for question in open_now if question.crown.event_digest not in in_check]
        aside = {question.winner for question in open_now}
        slots: frozenset[str] = frozenset()
        while grown := slots.union(*(one.slots for one in ready if one.submission_id in aside)) - slots:
            slots |= grown
            aside |= {one.submission_id for one in ready if one.slots & slots}
        ready = [one for one in ready if one.submission_id not in aside]


def _questions(
    state: CrownState, settled: Plan, pairs: Mapping[str, tuple[AttemptRow, AttemptRow]]
) -> list[Question]:
    """Return the crowns that winners of a plan would take and earn more than."""
    credited = {event.submission_id: event.speedup_ppm for event in settled.events if event.type == "CROWN"}
    crowns = {crown.submission_id: crown for crown in state.crowns}
    return [
        Question(crowns[event.submission_id], event.cause, pairs[event.cause][0].attempt_id)
        for event in settled.events
        if event.type in ("RETIRE", "DISPLACE") and credited[event.cause] > crowns[event.submission_id].speedup_ppm
    ]


def commit(
    connection: Connection, catalog: TargetCatalog, settling: Settling, receipts: dict[str, SealedReceipt]
) -> bool:
    """Write a prepared plan, unless the store moved on since; return whether it was written."""
    if prepare(connection, catalog) != settling:
        return False
    for question in settling.questions:
        crown = question.crown
        open_check(
            connection, crown=crown.event_digest, submission_id=crown.submission_id, target_id=crown.target_id,
            occasion=OUTPACED, cause=question.winner, cause_attempt=question.attempt,
        )
    if not settling.plan.events:
        return True
    record_settlement(connection, settling.plan.events, {name: one.digest for name, one in receipts.items()})
    for submission_id, receipt in sorted(receipts.items()):
        record_receipt(connection, receipt, submission_id)
    crowned = set(receipts)
    for job, _ in entries(connection, JobState.PASSED_TWICE):
        if job.submission_id in crowned:
            save(connection, job, transition(job, JobState.SETTLED, job.token))
        elif job.submission_id in settling.plan.remeasure:
            save(connection, job, transition(
                job, JobState.QUEUED, job.token, primary_attempt="", reproduction_attempt="", not_before_ms=0,
                faults=0, detail=_REQUEUED,
            ))
    append_event(connection, "settlement.committed", "", {"crowned": sorted(crowned)})
    return True


def _pair(connection: Connection, entry: Entry) -> tuple[AttemptRow, AttemptRow]:
    return (
        load_attempt(connection, entry.job.primary_attempt), load_attempt(connection, entry.job.reproduction_attempt)
    )


def _candidate(
    entry: Entry, pair: tuple[AttemptRow, AttemptRow], catalog: TargetCatalog, state: CrownState
) -> Candidate:
    primary, reproduction = pair
    target = catalog.targets[entry.job.target_id]
    scope = scope_of(catalog, state, target)
    return Candidate(
        submission_id=entry.job.submission_id, order=_order(entry), target_id=target.id, members=target.members,
        tree_digest=primary.tree_digest, speedup_ppm=credited_speedup_ppm(primary, reproduction),
        measured_against=tuple(filter(None, primary.measured_against.split(","))),
        evidence=(primary.digest, reproduction.digest), footprint=scope.slots,
        tree_now=scope.tree_with(target, entry.submission.content_hash).digest,
    )


def _slots(
    entry: Entry, catalog: TargetCatalog, state: CrownState, everything: tuple[str, ...]
) -> tuple[str, ...]:
    if entry.job.state in TARGET_UNKNOWN:
        return everything
    target = catalog.find(entry.job.target_id)
    return scope_of(catalog, state, target).slots if target is not None else ()


def _order(entry: Entry) -> FinalizedOrder:
    return FinalizedOrder(*entry.submission.order)
