"""Turns pairs of passes into crowns.

Invariants
1. What happens is `scoring.settle.plan` of what the store holds; this service only gathers its inputs and writes its
   result. Settlement events, crowns, receipts and job moves are one transaction.
2. Copies are refused once more before they could be crowned.
3. An earlier submission holds back a later candidate only while it is on its way and may overlap: with its own
   members once its target is known, with every member while its bounded transport budget lasts. A parked one holds
   back nobody, nor does one whose payment cannot be looked up for long.
4. A candidate measured against a former incumbent, or whose crown would make another tree than the one it was measured
   in, goes back to the queue, free of charge.
"""

from __future__ import annotations

import asyncio

import msgspec
import structlog
from sqlalchemy import Connection

from config.target_catalog import TargetCatalog
from node.jobs import TARGET_UNKNOWN, JobState, is_stuck, park, transition
from node.services.attempt_choice import TARGET_NOT_SERVED
from node.services.context import NodeContext
from node.services.copies import fail_if_copy
from node.services.receipts import ReceiptBook
from node.services.scope import scope_of
from node.store.crown_rows import crown_state, record_settlement
from node.store.events import append_event, now_ms
from node.store.evidence_rows import AttemptRow, load_attempt, record_receipt
from node.store.job_rows import Entry, entries, save, unfinished
from scoring.receipts import crown_statement
from scoring.reproduce import credited_speedup_ppm
from scoring.settle import Candidate, CrownState, FinalizedOrder, Plan, Unresolved, plan

_REQUEUED = "measured against a former incumbent; measured again against the present one"


class Settling(msgspec.Struct, frozen=True):
    """A plan and the receipts of the verdicts behind each candidate, by submission."""

    plan: Plan
    verdict_receipts: dict[str, tuple[str, str]]


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
        cleared = await context.store.write(clear, context.catalog, context.worker)
        settling = await context.store.read(prepare, context.catalog)
        if settling is None or not settling.plan.events:
            return cleared > 0
        receipts = await asyncio.to_thread(self._sign, settling)
        # Nothing was locked meanwhile: if the store moved on, the plan is stale and the next pass makes a new one.
        if not await context.store.write(commit, context.catalog, settling, receipts):
            return True
        for event in settling.plan.events:
            structlog.get_logger().info(
                f"settlement.{event.type.lower()}", submission=event.submission_id, target=event.target_id,
                speedup_ppm=event.speedup_ppm, cause=event.cause,
            )
        return True

    def _sign(self, settling: Settling) -> dict[str, str]:
        return {
            event.submission_id: self._receipts.sign(
                crown_statement(event, settling.verdict_receipts[event.submission_id])
            )
            for event in settling.plan.events if event.type == "CROWN"
        }


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
        for entry in unfinished(connection)
        if entry.job.state not in (JobState.PASSED_TWICE, JobState.PARKED) and not is_stuck(entry.job)
    ]
    return Settling(
        plan(state, candidates, on_their_way),
        {name: (first.receipt_digest, second.receipt_digest) for name, (first, second) in pairs.items()},
    )


def commit(
    connection: Connection, catalog: TargetCatalog, settling: Settling, receipts: dict[str, str]
) -> bool:
    """Write a prepared plan, unless the store moved on since; return whether it was written."""
    if prepare(connection, catalog) != settling:
        return False
    record_settlement(connection, settling.plan.events, receipts)
    for submission_id, digest in sorted(receipts.items()):
        record_receipt(connection, digest, "crown.v1", submission_id)
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
