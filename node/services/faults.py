"""What happens to a job when a step of ours fails.

Invariants
1. The fault is reported, then the job goes back or is parked (see `node.jobs.after_fault`).
2. Writing that down waits as long as it must: a full disk delays a job, it never loses one.
3. A step whose input vanished from disk goes back to the step that makes it, within the same budget. Where the input is
   another submission's, the job waits until that is whole again (`node.services.restoring`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import structlog
from sqlalchemy import Connection

from config.errors import Blame, CacheonError, HostError, InternalError
from node.jobs import Job, JobState, RetryBudget, StaleTokenError, after_fault, park
from node.services.context import NodeContext
from node.services.supervisor import report_fault
from node.store.engine import StateReplacedError
from node.store.events import now_ms
from node.store.job_rows import save

_STORE_RETRY_SECONDS = 5.0
T = TypeVar("T")


class LostInputError(InternalError):
    """Something that an earlier step had made is gone or damaged; `back` is the state in which the job starts over."""

    def __init__(self, code: str, message: str, back: JobState) -> None:
        super().__init__(code, message)
        self.back = back


class LostIncumbentError(InternalError):
    """A crowned bundle that the attempt needs is gone or damaged: the job waits for it."""


async def write_patiently(context: NodeContext, work: Callable[..., T], *arguments: Any) -> T:
    """Like `Store.write`, but wait for the disk as long as it takes."""
    while True:
        try:
            return await context.store.write(work, *arguments)
        except StateReplacedError:
            raise
        except HostError as failure:
            structlog.get_logger().error("store.waiting", code=failure.code)
            await asyncio.sleep(_STORE_RETRY_SECONDS)


async def job_fault(context: NodeContext, where: str, job: Job, error: Exception) -> Job | None:
    """Report `error` and move the working `job` on. Returns the moved job, or None when it belongs to another step."""
    if isinstance(error, StaleTokenError):
        structlog.get_logger().info("job.dropped", where=where, submission=job.submission_id)
        return None
    await report_fault(context, where, error, job.submission_id)
    try:
        moved = await write_patiently(context, record_fault, job, error, context.attempt_budget, context.worker)
    except StaleTokenError:
        return None
    if moved.state is JobState.PARKED:
        structlog.get_logger().error("job.parked", submission=job.submission_id, code=moved.code)
    return moved


def record_fault(connection: Connection, job: Job, error: Exception, budget: RetryBudget, worker: str) -> Job:
    """Move `job` after a fault of ours, with the fault's code and text on it."""
    if isinstance(error, LostIncumbentError):
        return save(connection, job, park(
            job, job.token, worker=worker, now_ms=now_ms(), code=error.code, detail=error.message
        ))
    code, detail, blame = "UNEXPECTED", f"{type(error).__name__}: {error}", Blame.INTERNAL
    if isinstance(error, CacheonError):
        code, detail = error.code, error.message
        blame = Blame.INTERNAL if error.blame is Blame.MINER else error.blame
    changes: dict[str, Any] = {"code": code, "detail": detail, "blame": blame.value}
    if isinstance(error, LostInputError):
        changes |= {"back": error.back, "primary_attempt": "", "reproduction_attempt": ""}
    moved = after_fault(job, job.token, budget=budget, now_ms=now_ms(), worker=worker, **changes)
    return save(connection, job, moved)
