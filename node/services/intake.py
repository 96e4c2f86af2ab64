"""Screens fetched archives: sandboxed child, immutable publication, copy check.

Invariants
1. The archive is opened only inside the sandboxed child. What comes back is a report and a file stream whose hashes
   the runner has recomputed; the publisher does so again.
2. Bytes that are not the committed bundle are a transport failure and never a verdict on the bundle; the job goes back
   to be fetched again while its attempts last.
3. A refusal of the committed bytes is final and carries the first finding. A fault of the sandbox is ours.
4. The bundle is published before its job is queued; the archive is deleted only after the job has moved.
5. Whether the legacy ABI spelling is read depends on the block that finalized the submission and on one setting, never
   on the clock, the present head or an earlier answer.
"""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Protocol

import structlog
from sqlalchemy import Connection

from config.errors import IntakeError
from intake.publish import publish
from intake.report import IntakeReport
from node.jobs import Job, JobState, fail, park, transition
from node.kinship import encode
from node.services.attempt_choice import TARGET_NOT_SERVED, Terms
from node.services.context import NodeContext
from node.services.copies import fail_if_copy, fail_waiting_copies, likeness
from node.services.faults import job_fault
from node.services.reprints import record_report, reprint_all
from node.services.transport import TransportFailure, transport_failed
from node.store.events import now_ms
from node.store.evidence_rows import record_fetch
from node.store.job_rows import Entry, claim, save
from qualify.intake_runner import ScreenedBundle

_BEFORE_THE_HASH = ("ARCHIVE_", "BUNDLE_", "INTAKE_", "NAME_")  # intake codes of the steps up to the comparison


class Screener(Protocol):
    """Runs the sandboxed intake child; blocking. `qualify.intake_runner.IntakeRunner` in production."""

    def run(self, archive: Path, expected_hash: str, *, allow_legacy_abi: bool) -> ScreenedBundle:
        """Screen one archive. Raises `IntakeError` for refusals, `HostError` and `InternalError` for faults of ours."""


class IntakeService:
    """The intake service."""

    name = "intake"

    def __init__(self, context: NodeContext, screener: Screener) -> None:
        self._context = context
        self._screener = screener
        self._ear = context.wake.listen()

    async def run(self) -> None:
        """Screen one archive after the other until cancelled."""
        context = self._context
        # Nothing is screened before everything earlier can be compared with it.
        await reprint_all(context, self._screener)
        while True:
            taken = await context.store.write(
                claim, JobState.READY, JobState.SCREENING, context.attempt_budget, 1
            )
            if not taken:
                await self._ear.wait(context.settings.chain.poll_seconds)
            for entry in taken:
                await self._handle(entry)

    async def _handle(self, entry: Entry) -> None:
        moved: Job | None
        try:
            moved = await self.screen_once(entry)
        except Exception as error:  # noqa: BLE001 - one archive's fault must not stop the service
            moved = await job_fault(self._context, self.name, entry.job, error)
        if moved is None:
            return
        if moved.state is not JobState.READY:
            self._context.layout.archive(moved.submission_id).unlink(missing_ok=True)
        structlog.get_logger().info(
            "screen.ended", screen="static", submission=moved.submission_id, state=moved.state.value, code=moved.code,
            target=moved.target_id, committed_hash=entry.submission.content_hash, seen_hash=moved.seen_hash,
        )
        self._context.wake.notify()

    async def screen_once(self, entry: Entry) -> Job:
        """Screen one claimed job and return it as it moved."""
        context, (job, submission) = self._context, entry
        archive = context.layout.archive(job.submission_id)
        if not archive.is_file():
            return await context.store.write(_fetch_again, job)
        archive_digest = await asyncio.to_thread(_digest, archive)
        try:
            screened = await asyncio.to_thread(
                self._screener.run, archive, submission.content_hash,
                allow_legacy_abi=context.settings.intake.admits_legacy_abi(submission.block),
            )
        except IntakeError as error:
            if not _is_proved(error):
                seen = getattr(error, "seen_hash", "")
                failure = TransportFailure(error.code, error.message, error.code, seen, archive_digest)
                return await context.store.write(transport_failed, job, failure, context.settings.intake)
            return await context.store.write(_refused, job, error, archive_digest)
        await asyncio.to_thread(publish, screened.stream, screened.report, context.layout.bundles)
        return await context.store.write(_accepted, context.terms, entry, screened.report, archive_digest)


def _is_proved(error: IntakeError) -> bool:
    """Say whether a refusal is about the committed bytes. Whatever is wrong before the content hash could be compared
    (the archive, its names and sizes, what it does to the child) may be the fault of a host that served other bytes."""
    return not error.code.startswith(_BEFORE_THE_HASH)


def _digest(archive: Path) -> str:
    with archive.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch_again(connection: Connection, job: Job) -> Job:
    """The archive is gone (a lost disk write, a cleaned folder): fetch it again, at no cost."""
    return save(connection, job, transition(job, JobState.RESERVED, job.token, not_before_ms=0))


def _refused(connection: Connection, job: Job, error: IntakeError, archive_digest: str) -> Job:
    record_fetch(connection, job.submission_id, code="", archive_digest=archive_digest)
    where = f"{error.location}: " if error.location else ""
    return save(connection, job, fail(
        job, job.token, error.code, blame=error.blame, detail=f"{where}{error.message}", seen_hash=""
    ))


def _accepted(
    connection: Connection, terms: Terms, entry: Entry, report: IntakeReport, archive_digest: str
) -> Job:
    job, submission = entry
    record_fetch(
        connection, job.submission_id, code="", seen_hash=submission.content_hash, archive_digest=archive_digest
    )
    record_report(connection, report)
    moved = _moved(connection, terms, entry, report)
    fail_waiting_copies(connection, report.fingerprint)
    return moved


def _moved(connection: Connection, terms: Terms, entry: Entry, report: IntakeReport) -> Job:
    job = entry.job
    copied = fail_if_copy(connection, entry, fingerprint=report.fingerprint)
    if copied is not None:
        return copied
    alike = likeness(connection, entry.submission)
    found = {
        "target_id": report.target_id, "fingerprint": report.fingerprint, "faults": 0, "seen_hash": "",
        "kinship": "" if alike is None else encode(alike),
    }
    if terms.measured_target(report.target_id) is None:
        return save(connection, job, park(
            job, job.token, worker=terms.worker, now_ms=now_ms(), code=TARGET_NOT_SERVED,
            parked_from=JobState.QUEUED.value,
            detail=f"the arena {terms.arena.id} does not measure {report.target_id}", **found,
        ))
    return save(connection, job, transition(
        job, JobState.QUEUED, job.token, not_before_ms=0, code="", blame="", detail="", **found
    ))
