"""Screens fetched archives: sandboxed child, immutable publication, copy check.

Invariants
1. The archive is opened only inside the sandboxed child. What comes back is a report and a file stream, whose hash is
   checked here and again by the publisher.
2. Bytes that are not the committed bundle are a transport failure and never a verdict on the bundle; the job goes back
   to be fetched again while its attempts last.
3. A refusal of the committed bytes is final and carries the first finding. A fault of the sandbox is ours.
4. The bundle is published before its job is queued; the archive is deleted only after the job has moved.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple, Protocol

import structlog
from sqlalchemy import Connection

from config.canonical import sha256_hex
from config.errors import ErrorDocument, IntakeError
from intake.publish import PublishedBundle, publish
from intake.report import IntakeReport
from node.jobs import Job, JobState, fail, park, transition
from node.services.attempt_choice import TARGET_NOT_MEASURED, Terms
from node.services.context import NodeContext
from node.services.copies import fail_if_copy
from node.services.faults import job_fault
from node.services.transport import TransportFailure, is_wrong_bytes, transport_failed
from node.store.evidence_rows import BundleRow, record_bundle, record_fetch
from node.store.job_rows import Entry, claim, save


class ScreenResult(NamedTuple):
    """What the sandboxed child found. `stream` is empty unless the report is accepted; `seen_hash` is the content hash
    of what the archive really held, "" when it could not be unpacked."""

    report: IntakeReport
    stream: bytes
    seen_hash: str


class Screener(Protocol):
    """Runs the sandboxed intake child; blocking."""

    def screen(self, archive: Path, expected_hash: str) -> ScreenResult:
        """Screen one archive. Raises `HostError` and `InternalError` for faults of ours."""


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
            "screen.ended", submission=moved.submission_id, state=moved.state.value, code=moved.code,
            target=moved.target_id, committed_hash=entry.submission.content_hash, seen_hash=moved.seen_hash,
        )
        self._context.wake.notify()

    async def screen_once(self, entry: Entry) -> Job:
        """Screen one claimed job and return it as it moved."""
        context, (job, submission) = self._context, entry
        archive = context.layout.archive(job.submission_id)
        if not archive.is_file():
            return await context.store.write(_fetch_again, job)
        result = await asyncio.to_thread(self._screener.screen, archive, submission.content_hash)
        archive_digest = await asyncio.to_thread(lambda: sha256_hex(archive.read_bytes()))
        error = result.report.error
        if error is not None and is_wrong_bytes(error.code):
            failure = TransportFailure(error.code, error.message, result.seen_hash, archive_digest)
            return await context.store.write(transport_failed, job, failure, context.settings.intake)
        if error is not None:
            return await context.store.write(_refused, job, error, archive_digest)
        bundle = await asyncio.to_thread(publish, result.stream, result.report, context.layout.bundles)
        if bundle.content_hash != submission.content_hash:
            raise IntakeError("BUNDLE_HASH_MISMATCH", f"published {bundle.content_hash}, not {submission.content_hash}")
        return await context.store.write(_accepted, context.terms, entry, result.report, bundle, archive_digest)


def _fetch_again(connection: Connection, job: Job) -> Job:
    """The archive is gone (a lost disk write, a cleaned folder): fetch it again, at no cost."""
    return save(connection, job, transition(job, JobState.RESERVED, job.token, not_before_ms=0))


def _refused(connection: Connection, job: Job, error: ErrorDocument, archive_digest: str) -> Job:
    record_fetch(connection, job.submission_id, code="", archive_digest=archive_digest)
    where = f"{error.location}: " if error.location else ""
    return save(connection, job, fail(
        job, job.token, error.code, blame=error.blame or "miner", detail=f"{where}{error.message}"
    ))


def _accepted(
    connection: Connection, terms: Terms, entry: Entry, report: IntakeReport, bundle: PublishedBundle,
    archive_digest: str,
) -> Job:
    job, submission = entry
    record_fetch(
        connection, job.submission_id, code="", seen_hash=submission.content_hash, archive_digest=archive_digest
    )
    record_bundle(connection, BundleRow(
        content_hash=submission.content_hash, bundle_id=report.bundle_id, target_id=report.target_id,
        fingerprint=report.fingerprint, path=str(bundle.tree), report_path=str(bundle.report_path),
    ))
    copied = fail_if_copy(connection, entry, fingerprint=report.fingerprint)
    if copied is not None:
        return copied
    found = {
        "target_id": report.target_id, "fingerprint": report.fingerprint, "faults": 0, "seen_hash": "",
    }
    if terms.measured_target(report.target_id) is None:
        return save(connection, job, park(
            job, job.token, worker=terms.worker, code=TARGET_NOT_MEASURED, parked_from=JobState.QUEUED.value,
            detail=f"the arena {terms.arena.id} does not measure {report.target_id}", **found,
        ))
    return save(connection, job, transition(
        job, JobState.QUEUED, job.token, not_before_ms=0, code="", blame="", detail="", **found
    ))
