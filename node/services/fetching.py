"""Fetches the archives of reserved submissions, several at a time.

Invariants
1. Jobs are taken as soon as their delay is over, first fetches before repeated ones, then in finalized order, one at
   a time for each hotkey: hosts that hang hold one place each, never the line.
2. An archive is written to `archives/` completely, or not at all, before its job becomes `ready`.
3. A fault of the host is a transport failure (see `transport`); a refusal that no retry can heal fails the job;
   a fault of ours spends the job's fault budget.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import structlog
from sqlalchemy import Connection

from config.errors import IntakeError, NetworkError
from node.jobs import Job, JobState, RetryBudget, fail, transition
from node.services.context import NodeContext
from node.services.faults import job_fault
from node.services.supervisor import cancel_all
from node.services.transport import TransportFailure, transport_failed
from node.store.evidence_rows import record_fetch
from node.store.job_rows import Entry, due, save, take
from node.store.layout import write_durably
from node.store.schema import jobs

_AT_ONCE = 8
_WINDOW = 256  # due jobs looked at for one claim


class Fetched(Protocol):
    """An archive as it came."""

    @property
    def data(self) -> bytes:
        """The bytes."""

    @property
    def archive_sha256(self) -> str:
        """Their digest."""


class Fetcher(Protocol):
    """Where archives come from; `intake.fetch.ArchiveFetcher` in production."""

    async def fetch(self, url: str) -> Fetched:
        """Return the archive at `url`. Raises `NetworkError` (try again) or `IntakeError` (never)."""


class FetchingService:
    """The fetching service."""

    name = "fetching"

    def __init__(self, context: NodeContext, fetcher: Fetcher) -> None:
        self._context = context
        self._fetcher = fetcher
        self._ear = context.wake.listen()

    async def run(self) -> None:
        """Fetch whatever is due until cancelled."""
        running: dict[asyncio.Task[None], str] = {}  # the fetches in flight, each with its hotkey
        try:
            while True:
                running = {task: hotkey for task, hotkey in running.items() if not task.done()}
                for entry in await self._claim(_AT_ONCE - len(running), frozenset(running.values())):
                    running[asyncio.create_task(self._handle(entry))] = entry.submission.hotkey
                await self._ear.wait(self._context.settings.chain.poll_seconds)
        finally:
            await cancel_all(running)

    async def _claim(self, free: int, busy: frozenset[str]) -> list[Entry]:
        context = self._context
        if free <= 0:
            return []
        return await context.store.write(claim_fetches, context.transport_budget, free, busy)

    async def _handle(self, entry: Entry) -> None:
        job = entry.job
        moved: Job | None
        try:
            moved = await self._fetch(entry)
        except Exception as error:  # noqa: BLE001 - one job's fault must not stop the others
            moved = await job_fault(self._context, self.name, job, error)
        if moved is None:
            return
        structlog.get_logger().info(
            "fetch.ended", submission=job.submission_id, state=moved.state.value, code=moved.code,
            seen_hash=moved.seen_hash,
        )
        self._context.wake.notify()

    async def _fetch(self, entry: Entry) -> Job:
        context, job = self._context, entry.job
        try:
            archive = await self._fetcher.fetch(entry.submission.url)
        except NetworkError as error:
            failure = TransportFailure(error.code, error.message)
            return await context.store.write(transport_failed, job, failure, context.settings.intake)
        except IntakeError as error:
            return await context.store.write(_refused, job, error)
        await asyncio.to_thread(write_durably, context.layout.archive(job.submission_id), archive.data)
        return await context.store.write(_arrived, job)


def claim_fetches(connection: Connection, budget: RetryBudget, free: int, busy: frozenset[str]) -> list[Entry]:
    """Claim at most `free` due fetches of admitted jobs, none of a hotkey in `busy` and no two of one hotkey."""
    waiting = due(
        connection, JobState.RESERVED, budget, _WINDOW, first=(jobs.c.transport_failures,), where=jobs.c.admission != ""
    )
    chosen: dict[str, Entry] = {}
    for entry in waiting:
        hotkey = entry.submission.hotkey
        if len(chosen) < free and hotkey not in busy and hotkey not in chosen:
            chosen[hotkey] = entry
    return [take(connection, entry, JobState.FETCHING) for entry in chosen.values()]


def _arrived(connection: Connection, job: Job) -> Job:
    return save(connection, job, transition(
        job, JobState.READY, job.token, faults=0, not_before_ms=0, code="", detail=""
    ))


def _refused(connection: Connection, job: Job, error: IntakeError) -> Job:
    record_fetch(connection, job.submission_id, code=error.code, detail=error.message)
    return save(connection, job, fail(job, job.token, error.code, blame=error.blame, detail=error.message))
