"""Jobs in the store.

Invariants
1. A job is written only through `save`: compare-and-swap on (state, token), and its event in the same transaction.
   Text that may come from outside is made storable there. Only `renew_fingerprint` writes beside it: a newer reading of
   the same bytes moves no job. A move that takes a paid judging away gives its miner a credit in the same transaction.
2. Lists of jobs are in finalized chain order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, select, update

from config.errors import HostError, InternalError
from node.jobs import FINAL, WORKING, Job, JobState, RetryBudget, StaleTokenError, recover, transition, unpark
from node.store.credit_rows import make_good
from node.store.events import append_event, now_ms
from node.store.schema import jobs, submissions
from node.store.submission_rows import ORDER, Submission
from node.store.values import storable

T = TypeVar("T")

_JOB = [jobs.c[name].label(f"job_{name}") for name in Job.__struct_fields__]
_SUBMISSION = [submissions.c[name] for name in Submission.__struct_fields__]


class Entry(NamedTuple):
    """A job with the submission it belongs to."""

    job: Job
    submission: Submission


def load_job(connection: Connection, submission_id: str) -> Job:
    """Return one job. Raises `InternalError` (SUBMISSION_UNKNOWN)."""
    row = connection.execute(select(*_JOB).where(jobs.c.submission_id == submission_id)).first()
    if row is None:
        raise InternalError("SUBMISSION_UNKNOWN", f"the store holds no job {submission_id}")
    return _job(row)


def load_entry(connection: Connection, submission_id: str) -> Entry:
    """Return one job with its submission. Raises `InternalError` (SUBMISSION_UNKNOWN)."""
    found = select_entries(connection, jobs.c.submission_id == submission_id)
    if not found:
        raise InternalError("SUBMISSION_UNKNOWN", f"the store holds no job {submission_id}")
    return found[0]


def entries(connection: Connection, *states: JobState) -> list[Entry]:
    """Return the jobs in any of `states` (all states when none is given), in finalized order."""
    in_states = [jobs.c.state.in_([state.value for state in states])] if states else []
    return select_entries(connection, *in_states)


def select_entries(
    connection: Connection, *conditions: ColumnElement[bool], order: Sequence[ColumnElement[Any]] = ORDER,
    limit: int | None = None,
) -> list[Entry]:
    """Return the jobs that meet all `conditions`, at most `limit`."""
    statement = select(*_JOB, *_SUBMISSION).join(submissions).where(*conditions).order_by(*order).limit(limit)
    return [Entry(_job(row), _submission(row)) for row in connection.execute(statement)]


def unfinished(connection: Connection) -> list[Entry]:
    """Return every job that is not final, in finalized order."""
    return entries(connection, *(state for state in JobState if state not in FINAL))


def due(
    connection: Connection, state: JobState, budget: RetryBudget, limit: int,
    first: tuple[ColumnElement[Any], ...] = (), where: ColumnElement[bool] | None = None,
) -> list[Entry]:
    """Return at most `limit` jobs in `state` whose delay is over, by `first`, then in finalized order.

    `where` narrows them down further.

    A delay longer than the budget's cap comes from a clock that jumped back, and counts as over.
    """
    now = now_ms()
    late = (jobs.c.not_before_ms <= now) | (jobs.c.not_before_ms > now + budget.cap_ms)
    statement = (
        select(*_JOB, *_SUBMISSION).join(submissions)
        .where(jobs.c.state == state.value, late).order_by(*first, *ORDER).limit(limit)
    )
    if where is not None:
        statement = statement.where(where)
    return [Entry(_job(row), _submission(row)) for row in connection.execute(statement)]


def claim(connection: Connection, state: JobState, to: JobState, budget: RetryBudget, limit: int) -> list[Entry]:
    """Move at most `limit` due jobs from `state` to the working state `to` and return them as they are now."""
    taken = due(connection, state, budget, limit)
    return [take(connection, entry, to) for entry in taken]


def take(connection: Connection, entry: Entry, to: JobState) -> Entry:
    """Move one job to the working state `to` and return it as it is now."""
    return Entry(save(connection, entry.job, transition(entry.job, to, entry.job.token)), entry.submission)


def save(connection: Connection, before: Job, after: Job) -> Job:
    """Write a move and its event. Raises `StaleTokenError` when the row is not `before` any more."""
    after = msgspec.structs.replace(after, detail=storable(after.detail), seen_hash=storable(after.seen_hash))
    values = {
        name: getattr(after, name) for name in Job.__struct_fields__ if getattr(after, name) != getattr(before, name)
    }
    written = connection.execute(
        update(jobs)
        .where(
            jobs.c.submission_id == before.submission_id, jobs.c.state == before.state.value,
            jobs.c.token == before.token,
        )
        .values(**values, updated_ms=now_ms())
    ).rowcount
    if written != 1:
        raise StaleTokenError("JOB_TOKEN_STALE", f"job {before.submission_id} moved on since token {before.token}")
    body = {name: str(value) if name == "state" else value for name, value in values.items() if name != "token"}
    append_event(connection, "job.moved", before.submission_id, {"from": before.state.value, **body})
    make_good(connection, before, after)
    return after


def renew_fingerprint(connection: Connection, content_hash: str, fingerprint: str) -> None:
    """Replace the fingerprint of every screened submission with this content by one of a newer version."""
    same = select(submissions.c.submission_id).where(submissions.c.content_hash == content_hash)
    connection.execute(
        update(jobs).where(jobs.c.submission_id.in_(same), jobs.c.fingerprint != "").values(fingerprint=fingerprint)
    )
    append_event(connection, "bundle.reprinted", content_hash, {"fingerprint": fingerprint})


def recover_all(connection: Connection) -> list[Job]:
    """Send every interrupted job back to where it can be picked up. Called once, before any service runs."""
    return [save(connection, entry.job, recover(entry.job)) for entry in entries(connection, *sorted(WORKING))]


def unpark_all(connection: Connection, worker: str) -> list[Job]:
    """Bring back every job that was parked under another arena or worker build, or has rested long enough."""
    moved = []
    for entry in entries(connection, JobState.PARKED):
        back = unpark(entry.job, worker, now_ms())
        if back is not None:
            moved.append(save(connection, entry.job, back))
    return moved


def _job(row: Row[tuple[object, ...]]) -> Job:
    return _read({name: getattr(row, f"job_{name}") for name in Job.__struct_fields__}, Job)


def _submission(row: Row[tuple[object, ...]]) -> Submission:
    return _read({name: getattr(row, name) for name in Submission.__struct_fields__}, Submission)


def _read(values: dict[str, object], kind: type[T]) -> T:
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise HostError(
            "STORE_UNUSABLE", f"the row of submission {values['submission_id']} holds what no release wrote: {error}",
            hint="the database was altered or its disk is damaged; restore the state folder from a backup",
        ) from error
