"""Brings back crowned bundles whose files are missing or damaged, and the jobs that wait for them.

Invariants
1. A bundle is made anew as it was made at first: fetched from where it was submitted, read by the sandboxed child under
   its committed hash, published under that hash. Whatever else a host serves is never stored.
2. Jobs return as soon as all bundles that their attempts need are whole, whoever restored them.
3. A host that does not serve the bundle any more is asked again, ever more rarely; nothing else waits for it.
"""

from __future__ import annotations

import asyncio
import time

import structlog
from sqlalchemy import Connection, select

from config.errors import CacheonError, HostError, NotFoundError
from intake.publish import open_published, publish
from intake.report import IntakeReport, decode_report
from node.jobs import Job, JobState, release
from node.services.attempt_choice import INCUMBENT_BUNDLE_LOST, crowned_bundles
from node.services.context import NodeContext
from node.services.fetching import Fetcher
from node.services.intake import Screener
from node.services.reprints import record_report
from node.store.check_rows import checks, update_check
from node.store.evidence_rows import BundleRow
from node.store.job_rows import entries, save
from node.store.layout import StateLayout, write_durably
from node.store.schema import submissions

_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS = 60.0, 6 * 60 * 60.0


class Restorer:
    """Looks after jobs that are parked for a lost bundle."""

    def __init__(self, context: NodeContext, fetcher: Fetcher, screener: Screener) -> None:
        self._context = context
        self._fetcher = fetcher
        self._screener = screener
        self._pauses: dict[str, tuple[float, float]] = {}  # by content hash: not before (monotonic s), length

    async def look(self) -> list[Job]:
        """Restore what can be restored now and return the jobs that came back."""
        context = self._context
        waiting = await context.store.read(_waiting)
        back: list[Job] = []
        for target_id in sorted({job.target_id for job in waiting} | await context.store.read(_checked_targets)):
            needed = await context.store.read(crowned_bundles, context.terms, target_id)
            whole = [await self._whole(content_hash, row) for _, content_hash, row in needed]
            if all(whole):
                back += await context.store.write(_release, target_id)
        return back

    async def _whole(self, content_hash: str, row: BundleRow | None) -> bool:
        """Say whether a bundle is whole, or could be made so."""
        report = await asyncio.to_thread(_published_report, self._context.layout, content_hash)
        if report is not None and row is None:  # a database restored from a backup that is older than the files
            await self._context.store.write(record_report, report)
        if report is not None:
            return True
        due, pause = self._pauses.get(content_hash, (0.0, _FIRST_PAUSE_SECONDS))
        if time.monotonic() < due:
            return False
        log = structlog.get_logger().bind(content_hash=content_hash)
        try:
            await self._make_anew(content_hash)
        except CacheonError as error:
            log.warning("bundle.not_restored", code=error.code, detail=error.message, next_in_seconds=pause)
            self._pauses[content_hash] = (time.monotonic() + pause, min(2 * pause, _LAST_PAUSE_SECONDS))
            return False
        self._pauses.pop(content_hash, None)
        log.info("bundle.restored")
        return True

    async def _make_anew(self, content_hash: str) -> None:
        """Fetch, screen and publish a bundle again. Raises `CacheonError`."""
        context = self._context
        url, block = await context.store.read(_origin, content_hash)
        archive = context.layout.archives / f"restore-{content_hash}"
        try:
            await asyncio.to_thread(write_durably, archive, (await self._fetcher.fetch(url)).data)
            screened = await asyncio.to_thread(
                self._screener.run, archive, content_hash,
                allow_legacy_abi=context.settings.intake.admits_legacy_abi(block),
            )
            await asyncio.to_thread(publish, screened.stream, screened.report, context.layout.bundles)
        finally:
            archive.unlink(missing_ok=True)
        await context.store.write(record_report, screened.report)


def _waiting(connection: Connection) -> list[Job]:
    return [job for job, _ in entries(connection, JobState.PARKED) if job.code == INCUMBENT_BUNDLE_LOST]


def _checked_targets(connection: Connection) -> set[str]:
    """Return the targets whose crowns cannot be checked because a bundle is lost."""
    return {check.target_id for check in checks(connection, "open") if check.code == INCUMBENT_BUNDLE_LOST}


def _release(connection: Connection, target_id: str) -> list[Job]:
    for check in checks(connection, "open"):
        if (check.target_id, check.code) == (target_id, INCUMBENT_BUNDLE_LOST):
            update_check(connection, check, code="", not_before_ms=0)
    return [save(connection, job, release(job)) for job in _waiting(connection) if job.target_id == target_id]


def _published_report(layout: StateLayout, content_hash: str) -> IntakeReport | None:
    """Return the intake report of a published bundle whose files are whole; None when they are not."""
    try:
        return decode_report(open_published(layout.bundles, content_hash).report_path.read_bytes())
    except (HostError, NotFoundError, OSError):
        return None


def _origin(connection: Connection, content_hash: str) -> tuple[str, int]:
    """Return URL and block of the first submission of a bundle. Raises `NotFoundError` (BUNDLE_NOT_STORED)."""
    row = connection.execute(
        select(submissions.c.url, submissions.c.block)
        .where(submissions.c.content_hash == content_hash).order_by(submissions.c.block).limit(1)
    ).first()
    if row is None:
        raise NotFoundError("BUNDLE_NOT_STORED", f"no submission of bundle {content_hash} is known")
    return str(row.url), int(row.block)
