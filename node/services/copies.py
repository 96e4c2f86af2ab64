"""The copy check: the earliest finalized reveal of a content owns it.

Invariants
1. A submission is a copy when a submission of another hotkey stands before it in finalized order with the same content
   hash or the same fingerprint; when each was fetched does not matter, but one whose bytes never came claims nothing.
2. So is one that holds every implementation of an earlier crowned bundle for the same target, whatever it adds. Only a
   crown counts: what is worth nothing by itself (a fallback that anybody would write) can claim nobody's work.
3. It is asked after the screen, before every attempt and again before settlement, because the earlier submission may
   have been fetched later. When an original is screened late, the copies that already wait fail at once.
4. The verdict names the earlier submission.
"""

from __future__ import annotations

from sqlalchemy import Connection

from node.jobs import Job, JobState, fail
from node.store.crown_rows import crowned_inside
from node.store.job_rows import Entry, entries, save
from node.store.submission_rows import earlier_twin

COPY_OF_EARLIER = "COPY_OF_EARLIER"
_WAITING = (JobState.QUEUED, JobState.PASSED_ONCE, JobState.PASSED_TWICE, JobState.PARKED)


def fail_if_copy(connection: Connection, entry: Entry, *, fingerprint: str = "") -> Job | None:
    """Fail `entry`'s job when it is a copy and return it; return None when it is original.

    `fingerprint` is the one found just now; by default the one already on the job.
    """
    job, submission = entry
    known = fingerprint or job.fingerprint
    earlier, how = earlier_twin(connection, submission, known), "the same fingerprint as"
    if earlier is None:
        earlier, how = crowned_inside(connection, submission), "every implementation of"
    if earlier is None:
        return None
    if earlier.content_hash == submission.content_hash:
        how = "the same content as"
    detail = f"has {how} submission {earlier.submission_id} of {earlier.hotkey}, revealed in block {earlier.block}"
    return save(connection, job, fail(
        job, job.token, COPY_OF_EARLIER, detail=detail, earlier_id=earlier.submission_id, fingerprint=known
    ))


def fail_waiting_copies(connection: Connection, fingerprint: str) -> list[Job]:
    """Fail the waiting jobs with this fingerprint whose original is known by now; return them. One that is being
    measured is left until its attempt is over."""
    same = [entry for entry in entries(connection, *_WAITING) if fingerprint and entry.job.fingerprint == fingerprint]
    return [job for entry in same if (job := fail_if_copy(connection, entry)) is not None]
