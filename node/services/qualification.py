"""The measuring worker: one attempt at a time, from the queue to its verdict.

Invariants
1. One attempt runs at any time, in its own process; its commitment is stored before its first launch is reported.
2. The verdict is computed here by `scoring.grade` from the evidence file, never taken from the process that measured.
3. Verdict, attempt row, receipt and job move are one transaction; the receipt's file is written after it.
4. PASS moves on (once, then twice), FAIL is final, RETRY and every fault of ours spend the fault budget. A verdict that
   wants a person's eyes parks the job at once: measuring again would not change it. One that a crown may have brought
   about parks it while that is checked, at no cost (`node.services.crown_checks`); checks are measured here as well.
5. A bundle or first attempt that vanished from disk is made anew: the job goes back to be fetched, or queued. For a
   crowned bundle that vanished its challengers wait, and it is brought back (`node.services.restoring`).
"""

from __future__ import annotations

import asyncio
import os
from typing import NamedTuple

import msgspec
import structlog
from sqlalchemy import Connection

from config.errors import GradeError, HostError, InternalError, NotFoundError
from intake.publish import open_published
from node.jobs import HELD_CODES, Job, JobState, fail, park, transition
from node.services.attempt_choice import INCUMBENT_BUNDLE_LOST, Chosen, lost_bundle
from node.services.attempt_process import Evidence, read_compressed, run_attempt
from node.services.context import NodeContext
from node.services.crown_checks import accuse, choose_next, conclude_check, fail_check
from node.services.faults import LostIncumbentError, LostInputError, job_fault, record_fault, write_patiently
from node.services.receipts import ReceiptBook, deliver_or_tell
from node.services.supervisor import report_fault
from node.store.check_rows import CROWN_IN_CHECK, CheckRow
from node.store.decision_rows import is_accepted
from node.store.events import now_ms
from node.store.evidence_rows import (
    FAIL,
    PASS,
    AttemptRow,
    BundleRow,
    finish_attempt,
    load_attempt,
    seal_attempt,
)
from node.store.job_rows import save
from node.store.layout import StateLayout
from node.store.receipt_outbox import SealedReceipt, record_receipt
from qualify.request import AttemptRequest, BundleRef, Holding
from scoring.attempt import Attempt, Reservation, read_attempt
from scoring.call_length import ARENA_CALLS_SHORT, short_call_notes
from scoring.crown_check import fault_of_crown, is_uncompared
from scoring.grade import Verdict, grade
from scoring.receipts import verdict_statement
from scoring.reproduce import check_pair

_START_MARGIN_SECONDS = 120.0  # imports, zygote, correctness stages and teardown, beyond the arena's own budget


class Graded(NamedTuple):
    """A measured attempt: its evidence, its verdict, and the receipt, None where none is signed."""

    evidence: Evidence
    verdict: Verdict
    receipt: SealedReceipt | None


class RetryVerdictError(InternalError):
    """The attempt was measured, and its verdict is RETRY."""


class QualificationService:
    """The qualification service."""

    name = "qualification"

    def __init__(self, context: NodeContext, receipts: ReceiptBook) -> None:
        self._context = context
        self._receipts = receipts
        self._ear = context.wake.listen()

    async def run(self) -> None:
        """Measure whatever is due until cancelled."""
        context = self._context
        while True:
            chosen = await context.store.write(choose_next, context.terms)
            if chosen is None:
                await self._ear.wait(context.settings.chain.poll_seconds)
                continue
            await self.measure(chosen)
            context.wake.notify()

    async def measure(self, chosen: Chosen) -> None:
        """Run one chosen attempt and store what came of it."""
        context, job = self._context, chosen.entry.job
        log = structlog.get_logger().bind(submission=job.submission_id, role=chosen.attempt.role)
        log.info("attempt.started", attempt=chosen.attempt.attempt_id, target=job.target_id)
        try:
            await self._require_primary(chosen)
            request = await asyncio.to_thread(self._request, chosen)
            evidence = await run_attempt(
                request, context.layout.attempts / chosen.attempt.attempt_id,
                on_sealed=lambda commitment: context.store.write(
                    seal_attempt, chosen.attempt.attempt_id, commitment
                ),
                deadline_seconds=context.arena.attempt_budget_seconds + _START_MARGIN_SECONDS,
            )
            moved = await self._conclude(chosen, evidence)
        except Exception as error:  # noqa: BLE001 - whatever went wrong here is ours, and must not stop the worker
            if chosen.check:
                await report_fault(context, self.name, error, job.submission_id)
                await write_patiently(context, fail_check, context.attempt_budget, chosen.check, error)
            else:
                await job_fault(context, self.name, job, error)
            code = getattr(error, "code", "UNEXPECTED")
            await write_patiently(context, _lost, chosen.attempt.attempt_id, code)
            return
        await deliver_or_tell(context.store, self._receipts)
        log.info("attempt.graded", state=str(moved.state), code=moved.code or PASS, faults=moved.faults)

    async def _conclude(self, chosen: Chosen, evidence: Evidence) -> Job | CheckRow:
        context = self._context
        submission_id = chosen.entry.submission.submission_id
        reviewed = await context.store.read(is_accepted, submission_id, context.arena.digest)
        verdict = await asyncio.to_thread(grade, evidence.attempt, context.arena, reviewed=reviewed)
        for note in short_call_notes(evidence.attempt, context.arena):
            structlog.get_logger().warning("arena.calls_short", code=ARENA_CALLS_SHORT, detail=note)
        fault = fault_of_crown(evidence.attempt, verdict, context.arena) if chosen.check else ""
        if chosen.first and (fault if chosen.check else verdict.outcome == PASS):
            primary = await context.store.read(load_attempt, chosen.first)
            problem = await asyncio.to_thread(_pair_problem, context.layout, primary, evidence)
            if problem:
                raise InternalError(problem, "the two attempts are no independent pair")
        receipt = None
        if verdict.outcome in (PASS, FAIL) or chosen.check:
            statement = verdict_statement(evidence.attempt, evidence.digest, verdict, reviewed=reviewed)
            receipt = await asyncio.to_thread(self._receipts.seal, statement)
        graded = Graded(evidence, verdict, receipt)
        if chosen.check:
            uncompared = is_uncompared(evidence.attempt, fault)
            return await context.store.write(_settle_check, context, chosen, graded, fault, uncompared=uncompared)
        return await context.store.write(_settle_verdict, context, chosen, graded)

    async def _require_primary(self, chosen: Chosen) -> None:
        """Raise `LostInputError` when the attempt that is to be reproduced cannot be read any more."""
        if not chosen.first:
            return
        primary = await self._context.store.read(load_attempt, chosen.first)
        try:
            await asyncio.to_thread(_read_evidence, self._context.layout, primary)
        except GradeError as error:
            raise LostInputError(error.code, f"the first attempt is lost: {error.message}", JobState.QUEUED) from error

    def _request(self, chosen: Chosen) -> AttemptRequest:
        """Return the request for an attempt. Raises `LostInputError` for a candidate, and `LostIncumbentError` for a
        crowned bundle, that is missing or damaged."""
        settings, submission, layout = self._context.settings, chosen.entry.submission, self._context.layout
        return AttemptRequest(
            attempt_id=chosen.attempt.attempt_id,
            role="reproduction" if chosen.first else "primary",
            target_id=chosen.attempt.target_id,
            arena=str(self._context.arena_path),
            candidate=_candidate(layout, chosen.candidate),
            stack=tuple(Holding(target_id, _crowned(layout, target_id, bundle)) for target_id, bundle in chosen.stack),
            reservation=Reservation(submission.block, submission.event_index, submission.hotkey),
            previous_attempt=chosen.attempt.previous_digest,
            waive=settings.sandbox.waive,
            arm_cores=settings.qualify.arm_cores,
        )


def _reference(layout: StateLayout, bundle: BundleRow) -> BundleRef:
    published = open_published(layout.bundles, bundle.content_hash)
    return BundleRef(bundle.content_hash, str(published.tree), str(published.report_path))


def _candidate(layout: StateLayout, bundle: BundleRow) -> BundleRef:
    try:
        return _reference(layout, bundle)
    except (NotFoundError, HostError) as error:
        raise LostInputError(error.code, error.message, JobState.RESERVED) from error


def _crowned(layout: StateLayout, target_id: str, bundle: BundleRow) -> BundleRef:
    try:
        return _reference(layout, bundle)
    except (NotFoundError, HostError) as error:
        why = f"is missing or damaged [{error.code}]"
        raise LostIncumbentError(INCUMBENT_BUNDLE_LOST, lost_bundle(target_id, bundle.content_hash, why)) from error


def _read_evidence(layout: StateLayout, attempt: AttemptRow) -> Attempt:
    return read_attempt(read_compressed(layout.root / attempt.path), expected_digest=attempt.digest)


def _pair_problem(layout: StateLayout, primary: AttemptRow, evidence: Evidence) -> str:
    """Return why the reproduction does not reproduce the primary attempt, as a code, or ""."""
    try:
        first = _read_evidence(layout, primary)
    except GradeError as error:
        return error.code
    return check_pair(first, evidence.attempt, primary_digest=primary.digest)


def _record_verdict(connection: Connection, context: NodeContext, chosen: Chosen, graded: Graded) -> None:
    """Store the graded attempt and its receipt."""
    (evidence, verdict, receipt), name = graded, chosen.attempt.attempt_id
    finish_attempt(connection, msgspec.structs.replace(
        load_attempt(connection, name), state="graded", path=os.path.relpath(evidence.path, context.layout.root),
        digest=evidence.digest, outcome=verdict.outcome, code=verdict.code, blame=str(verdict.blame),
        reason=verdict.reason, lower_ppm=verdict.lower_ppm, upper_ppm=verdict.upper_ppm,
        launches=verdict.launches_used, receipt_digest=receipt.digest if receipt else "",
        tree_digest=evidence.attempt.identity.candidate_tree_digest,
    ))
    if receipt:
        record_receipt(connection, receipt, chosen.entry.submission.submission_id)


def _settle_check(
    connection: Connection, context: NodeContext, chosen: Chosen, graded: Graded, fault: str, *, uncompared: bool
) -> CheckRow:
    """Store the graded attempt of a check of a crown, and what it means."""
    _record_verdict(connection, context, chosen, graded)
    return conclude_check(
        connection, context.attempt_budget, chosen, graded.verdict, fault, uncompared=uncompared
    )


def _settle_verdict(connection: Connection, context: NodeContext, chosen: Chosen, graded: Graded) -> Job:
    """Store the graded attempt, its receipt and the job's move."""
    job, attempt, verdict = chosen.entry.job, chosen.attempt, graded.verdict
    _record_verdict(connection, context, chosen, graded)
    reproduction = attempt.role == "reproduction"
    which = {"reproduction_attempt" if reproduction else "primary_attempt": attempt.attempt_id}
    if verdict.outcome == PASS:
        to = JobState.PASSED_TWICE if reproduction else JobState.PASSED_ONCE
        return save(connection, job, transition(
            job, to, job.token, faults=0, rests=0, code="", blame="", detail="", **which
        ))
    if verdict.outcome == FAIL:
        return save(connection, job, fail(
            job, job.token, verdict.code, blame=str(verdict.blame), detail=verdict.reason, **which
        ))
    if verdict.code in HELD_CODES:
        return save(connection, job, park(
            job, job.token, worker=context.worker, now_ms=now_ms(), code=verdict.code, detail=verdict.reason
        ))
    if accuse(connection, context.terms, chosen, job, verdict.code):
        return save(connection, job, park(
            job, job.token, worker=context.worker, now_ms=now_ms(), code=CROWN_IN_CHECK, detail=verdict.reason
        ))
    retry = RetryVerdictError(verdict.code, verdict.reason)
    return record_fault(connection, job, retry, context.attempt_budget, context.worker)


def _lost(connection: Connection, attempt_id: str, code: str) -> None:
    attempt = load_attempt(connection, attempt_id)
    if attempt.state == "running":
        finish_attempt(connection, msgspec.structs.replace(attempt, state="lost", code=code))
