"""A job is a submission moving through the node; this module holds its only table of allowed moves.

Invariants
1. A job moves only along `TRANSITIONS`; `settled`, `failed` and `expired` are final.
2. Every move must present the token of the job it read, and gets a new one. Whoever holds an older token lost the
   job (a restart, another step) and must drop what it was doing.
3. FAIL is the candidate's fault and final. A fault of ours sends the job back with a delay, within a budget; after
   that it is `parked` and comes back by itself: at once when the arena or the worker build changes, otherwise after a
   long rest, which doubles with every one in a row. Only what no rest can change (`HELD_CODES`: a target that the arena
   does not serve, a speed-up that wants a person's eyes) waits for the arena or the build to change, or for a person.
4. Being interrupted (a crash, a stop) is free: it does not spend the budget.
5. A job that has rested since its last progress holds back nobody else (`rests`), also while it is on its way again.
6. What is final is opened again by a person only, who has to say why (`reopen`).
7. Everything here is pure: time comes in as an argument, nothing is read or written.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import msgspec

from config.errors import Blame, InternalError
from scoring.grade import REVIEW_CODES


class JobState(StrEnum):
    """Where a submission stands."""

    RESERVED = "reserved"  # its place in chain order is taken; waits to be admitted, then for its archive
    FETCHING = "fetching"
    READY = "ready"  # an archive is here, unread
    SCREENING = "screening"  # the sandboxed intake child reads it
    QUEUED = "queued"  # published; waits for its primary attempt
    MEASURING = "measuring"
    PASSED_ONCE = "passed_once"  # waits for its reproduction
    PASSED_TWICE = "passed_twice"  # waits for settlement
    SETTLED = "settled"  # crowned
    FAILED = "failed"
    PARKED = "parked"  # our fault, budget spent, or not for this arena; comes back by itself
    EXPIRED = "expired"


ADMISSION_PATIENCE = 5  # lookups of a payment that may fail before others stop waiting for the job
PARKED_REST_MS = 6 * 60 * 60 * 1000
LONGEST_REST_MS = 16 * PARKED_REST_MS
CROWN_REVOKED = "CROWN_REVOKED"
HELD_CODES = frozenset({"TARGET_NOT_SERVED"}) | REVIEW_CODES

FINAL = frozenset({JobState.SETTLED, JobState.FAILED, JobState.EXPIRED})
WORKING = frozenset({JobState.FETCHING, JobState.SCREENING, JobState.MEASURING})
TARGET_UNKNOWN = frozenset({JobState.RESERVED, JobState.FETCHING, JobState.READY, JobState.SCREENING})

TRANSITIONS: Mapping[JobState, frozenset[JobState]] = MappingProxyType({
    JobState.RESERVED: frozenset({JobState.RESERVED, JobState.FETCHING, JobState.FAILED, JobState.EXPIRED}),
    JobState.FETCHING: frozenset({JobState.READY, JobState.RESERVED, JobState.FAILED, JobState.PARKED}),
    JobState.READY: frozenset({JobState.SCREENING, JobState.RESERVED, JobState.FAILED, JobState.EXPIRED}),
    JobState.SCREENING: frozenset({
        JobState.QUEUED, JobState.READY, JobState.RESERVED, JobState.FAILED, JobState.PARKED,
    }),
    JobState.QUEUED: frozenset({JobState.MEASURING, JobState.FAILED, JobState.PARKED, JobState.EXPIRED}),
    JobState.MEASURING: frozenset({
        JobState.PASSED_ONCE, JobState.PASSED_TWICE, JobState.QUEUED, JobState.RESERVED, JobState.FAILED,
        JobState.PARKED,
    }),
    JobState.PASSED_ONCE: frozenset({
        JobState.MEASURING, JobState.QUEUED, JobState.FAILED, JobState.PARKED, JobState.EXPIRED,
    }),
    JobState.PASSED_TWICE: frozenset({JobState.SETTLED, JobState.QUEUED, JobState.FAILED, JobState.PARKED}),
    JobState.PARKED: frozenset({
        JobState.RESERVED, JobState.READY, JobState.QUEUED, JobState.PASSED_ONCE, JobState.PASSED_TWICE,
        JobState.FAILED, JobState.EXPIRED,
    }),
    JobState.SETTLED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.EXPIRED: frozenset(),
})


class StaleTokenError(InternalError):
    """The job moved on since it was read: the work in hand belongs to nobody and is dropped."""


class Job(msgspec.Struct, frozen=True):
    """One job, as the store keeps it. Times are Unix milliseconds; empty text means "none"."""

    submission_id: str
    state: JobState
    token: int = 0
    faults: int = 0  # faults of ours since the last progress
    transport_failures: int = 0  # fetches that did not yield the committed bytes
    not_before_ms: int = 0
    parked_from: str = ""
    parked_on: str = ""  # digest of the arena and worker build it was parked under
    target_id: str = ""
    fingerprint: str = ""
    primary_attempt: str = ""  # id of the standing primary PASS
    reproduction_attempt: str = ""
    code: str = ""
    blame: str = ""
    detail: str = ""
    seen_hash: str = ""  # the content hash last served instead of the committed one
    earlier_id: str = ""  # the earlier submission this one copies
    kinship: str = ""  # what it shares with an earlier submission, a `node.kinship.Kinship` as JSON
    rests: int = 0  # times it was parked for a spent budget since the last progress
    admission: str = ""  # how its evaluation cost was met: "free", "paid" or "credit"; "" = not yet


class RetryBudget(msgspec.Struct, frozen=True):
    """How often, and how patiently, a fault is retried: the n-th delay is min(base * 2^(n-1), cap) milliseconds."""

    attempts: int
    base_ms: int
    cap_ms: int

    def delay_ms(self, failures: int) -> int:
        """Return the delay after the `failures`-th failure (counted from 1)."""
        return int(min(self.base_ms * 2 ** min(max(failures - 1, 0), 40), self.cap_ms))


def transition(job: Job, to: JobState, token: int, **changes: Any) -> Job:
    """Return `job` moved to `to`, with a new token and `changes` to its other fields.

    Raises `StaleTokenError` (JOB_TOKEN_STALE) and `InternalError` (JOB_TRANSITION_FORBIDDEN).
    """
    if token != job.token:
        raise StaleTokenError(
            "JOB_TOKEN_STALE", f"job {job.submission_id} is at token {job.token}, the step holds {token}"
        )
    if to not in TRANSITIONS[job.state]:
        raise InternalError(
            "JOB_TRANSITION_FORBIDDEN", f"job {job.submission_id} may not move from {job.state} to {to}"
        )
    return msgspec.structs.replace(job, state=to, token=job.token + 1, **changes)


def fail(job: Job, token: int, code: str, *, blame: str = Blame.MINER, detail: str = "", **changes: Any) -> Job:
    """Return `job` failed for good with `code`."""
    return transition(job, JobState.FAILED, token, code=code, blame=str(blame), detail=detail, **changes)


def after_fault(
    job: Job, token: int, *, budget: RetryBudget, now_ms: int, worker: str, back: JobState | None = None, **changes: Any
) -> Job:
    """Return a working `job` after a fault of ours: back to where it can be picked up again, later, or parked.

    `worker` is the digest of the arena and worker build; a parked job comes back when it differs, or after its rest.
    `back` is where it starts over when more than the step in hand was lost.
    """
    faults = job.faults + 1
    back = back or pickup_state(job)
    if faults > budget.attempts:
        return transition(
            job, JobState.PARKED, token, faults=faults, parked_from=back.value, parked_on=worker,
            not_before_ms=now_ms + rest_ms(job.rests), rests=job.rests + 1, **changes,
        )
    return transition(job, back, token, faults=faults, not_before_ms=now_ms + budget.delay_ms(faults), **changes)


def park(job: Job, token: int, *, worker: str, now_ms: int, code: str, detail: str, **changes: Any) -> Job:
    """Return `job` parked at once, for something that our retries will not change."""
    return transition(
        job, JobState.PARKED, token, parked_from=changes.pop("parked_from", pickup_state(job).value), parked_on=worker,
        code=code, detail=detail, blame=Blame.OPERATOR.value, not_before_ms=now_ms + PARKED_REST_MS, **changes,
    )


def rest_ms(rests: int) -> int:
    """Return how long a job rests that has rested so many times in a row."""
    return min(PARKED_REST_MS << min(rests, 16), LONGEST_REST_MS)


def is_stuck(job: Job) -> bool:
    """Say whether nobody else may be kept waiting for a job any longer: it has rested without any progress since, or
    has failed to be admitted for too long."""
    unpaid = job.state is JobState.RESERVED and not job.admission and job.faults > ADMISSION_PATIENCE
    return job.rests > 0 or unpaid


def pickup_state(job: Job) -> JobState:
    """Return the state in which an interrupted working `job` waits to be taken again; others stay where they are."""
    match job.state:
        case JobState.FETCHING:
            return JobState.RESERVED
        case JobState.SCREENING:
            return JobState.READY
        case JobState.MEASURING:
            return JobState.PASSED_ONCE if job.primary_attempt else JobState.QUEUED
        case other:
            return other


def recover(job: Job) -> Job:
    """Return an interrupted working `job` as it waits after a restart: for free, and without any delay."""
    return transition(job, pickup_state(job), job.token, not_before_ms=0)


def unpark(job: Job, worker: str, now_ms: int) -> Job | None:
    """Return a parked `job` back where it came from when the build changed or its rest is over, else None."""
    rests = job.code in HELD_CODES or now_ms < job.not_before_ms <= now_ms + rest_ms(job.rests)
    if job.state is not JobState.PARKED or (job.parked_on == worker and rests):
        return None
    return release(job)


def release(job: Job) -> Job:
    """Return a parked `job` back where it came from, because what it waited for is there."""
    return transition(
        job, JobState(job.parked_from or JobState.RESERVED), job.token,
        faults=0, not_before_ms=0, parked_from="", parked_on="", code="", blame="", detail="",
    )


def revoke(job: Job, code: str, detail: str) -> Job:
    """Return a settled `job` with what ended its crown on it."""
    return _noted(job, job.state is JobState.SETTLED, code=code, blame=Blame.MINER.value, detail=detail)


def reopen(job: Job) -> Job:
    """Return a failed `job`, or a settled one whose crown was revoked, at its beginning: a person says that it ended by
    our fault.

    One whose bundle was read before waits for its attempts, any other for its archive. Raises `InternalError`
    (JOB_TRANSITION_FORBIDDEN) for any other job.
    """
    ended = job.state is JobState.FAILED or (job.state is JobState.SETTLED and job.code == CROWN_REVOKED)
    start = JobState.QUEUED if job.fingerprint and job.target_id else JobState.RESERVED
    return _noted(
        job, ended, state=start, faults=0, transport_failures=0, not_before_ms=0, primary_attempt="",
        reproduction_attempt="", code="", blame="", detail="", earlier_id="", rests=0,
    )


def _noted(job: Job, allowed: bool, **changes: Any) -> Job:
    if not allowed:
        raise InternalError("JOB_TRANSITION_FORBIDDEN", f"job {job.submission_id} is {job.state}: not from there")
    return msgspec.structs.replace(job, token=job.token + 1, **changes)
