"""What happens to a job whose host did not yield the committed bytes.

Invariants
1. Errors of the host and wrong bytes count alike toward `intake.transport_attempts`; each leaves a row in `fetches`.
2. While attempts are left the job goes back to `reserved` with a delay; after the last one it fails, with
   BUNDLE_UNAVAILABLE when nothing came, BUNDLE_HASH_MISMATCH when other bytes came last, and the archive's own fault
   when it could not even be unpacked.
3. The hash that was seen stays on the job, whatever comes later.
"""

from __future__ import annotations

import random

import msgspec
from sqlalchemy import Connection

from config.settings import IntakeSettings
from intake.retry import RetryPolicy, retry_delay
from node.jobs import Job, JobState, fail, transition
from node.store.events import now_ms
from node.store.evidence_rows import record_fetch
from node.store.job_rows import save

BUNDLE_UNAVAILABLE = "BUNDLE_UNAVAILABLE"

_jitter = random.SystemRandom()


class TransportFailure(msgspec.Struct, frozen=True):
    """How one fetch failed. `final_code` is the verdict code should it be the last; `seen_hash` is the content hash
    that came instead, "" when nothing could be unpacked."""

    code: str
    detail: str
    final_code: str = BUNDLE_UNAVAILABLE
    seen_hash: str = ""
    archive_digest: str = ""


def transport_failed(connection: Connection, job: Job, failure: TransportFailure, settings: IntakeSettings) -> Job:
    """Record `failure` and move `job` (fetching or screening) to `reserved` with a delay, or to `failed`."""
    record_fetch(
        connection, job.submission_id, code=failure.code, detail=failure.detail, seen_hash=failure.seen_hash,
        archive_digest=failure.archive_digest,
    )
    failures = job.transport_failures + 1
    seen = failure.seen_hash or job.seen_hash
    policy = RetryPolicy(
        settings.transport_attempts, settings.retry_base_seconds, settings.retry_cap_seconds
    )
    delay = retry_delay(failures - 1, policy, _jitter)
    if failures >= settings.transport_attempts or delay is None:
        detail = f"{failures} of {settings.transport_attempts} fetches failed; the last: {failure.detail}"
        return save(connection, job, fail(
            job, job.token, failure.final_code, detail=detail, seen_hash=seen, transport_failures=failures
        ))
    return save(connection, job, transition(
        job, JobState.RESERVED, job.token, transport_failures=failures, seen_hash=seen,
        not_before_ms=now_ms() + int(delay * 1000), code=failure.code, detail=failure.detail,
    ))
