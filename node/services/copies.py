"""The copy check: the earliest finalized reveal of a content owns it.

Invariants
1. A submission is a copy when a submission of another hotkey stands before it in finalized order with the same content
   hash or the same fingerprint; when each was fetched does not matter, but one whose bytes never came claims nothing.
2. So is one that holds every implementation of an earlier crowned bundle for the same target, whatever it adds, one
   that holds none that such a bundle has not, and, for whatever target, one that holds none that is not in earlier
   crowned bundles of others. Only a crown counts: what is worth nothing by itself (a fallback that anybody would write)
   can claim nobody's work. Public pieces do not count.
3. It is asked after the screen, before every attempt and again before settlement, because the earlier submission may
   have been fetched later. When an original is screened late, the copies that already wait fail at once.
4. The verdict names the earlier submission and shows the parts they share. A likeness that proves nothing is noted and
   decides nothing.
5. Fingerprints are compared within one version only (`node.services.reprints` brings stored ones to the present one).
"""

from __future__ import annotations

import structlog
from sqlalchemy import Connection

from intake.public_code import public_code
from node.jobs import Job, JobState, fail
from node.kinship import COPY, Kinship, encode, told
from node.store.crown_rows import crowned_kin
from node.store.job_rows import Entry, entries, save
from node.store.part_rows import kinship, nearest
from node.store.submission_rows import Submission, earlier_twin

COPY_OF_EARLIER = "COPY_OF_EARLIER"
_WAITING = (JobState.QUEUED, JobState.PASSED_ONCE, JobState.PASSED_TWICE, JobState.PARKED)


def fail_if_copy(connection: Connection, entry: Entry, *, fingerprint: str = "") -> Job | None:
    """Fail `entry`'s job when it is a copy and return it; return None when it is original.

    `fingerprint` is the one found just now; by default the one already on the job.
    """
    job, submission = entry
    known = fingerprint or job.fingerprint
    found = _original(connection, submission, known)
    if found is None:
        return None
    earlier, how = found
    shared = kinship(connection, submission, earlier, kind=COPY)
    detail = f"has {how} submission {earlier.submission_id} of {earlier.hotkey}, revealed in block {earlier.block}"
    if shared.parts:
        detail += f"; the same: {told(shared)}"
    structlog.get_logger().info(
        "copy.found", submission=submission.submission_id, earlier=earlier.submission_id, how=how,
        parts=[f"{part.ours} = {part.earlier}" for part in shared.parts],
    )
    return save(connection, job, fail(
        job, job.token, COPY_OF_EARLIER, detail=detail, earlier_id=earlier.submission_id, fingerprint=known,
        kinship=encode(shared),
    ))


def _original(connection: Connection, submission: Submission, fingerprint: str) -> tuple[Submission, str] | None:
    """Return whose copy a submission is, and how they are the same."""
    earlier = earlier_twin(connection, submission, fingerprint)
    if earlier is None:
        return crowned_kin(connection, submission, public_code().pieces)
    is_identical = earlier.content_hash == submission.content_hash
    return earlier, "the same content as" if is_identical else "the same fingerprint as"


def likeness(connection: Connection, submission: Submission) -> Kinship | None:
    """Return the earlier submission that this one, which is no copy, has most in common with; None for little."""
    found = nearest(connection, submission, public_code().parts)
    if found is not None:
        structlog.get_logger().info(
            "copy.resembles", submission=submission.submission_id, earlier=found.submission_id,
            equal_ppm=found.equal_ppm, alike_ppm=found.alike_ppm,
        )
    return found


def fail_waiting_copies(connection: Connection, fingerprint: str) -> list[Job]:
    """Fail the waiting jobs with this fingerprint whose original is known by now; return them. One that is being
    measured is left until its attempt is over."""
    same = [entry for entry in entries(connection, *_WAITING) if fingerprint and entry.job.fingerprint == fingerprint]
    return [job for entry in same if (job := fail_if_copy(connection, entry)) is not None]
