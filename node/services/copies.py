"""The copy check: the earliest finalized reveal of a content owns it.

Invariants
1. A submission is a copy when a submission of another hotkey stands before it in finalized order with the same content
   hash or the same fingerprint; when each was fetched does not matter.
2. It is asked after the screen, before every attempt and again before settlement, because the earlier submission may
   have been fetched later.
3. The verdict names the earlier submission.
"""

from __future__ import annotations

from sqlalchemy import Connection

from node.jobs import Job, fail
from node.store.job_rows import Entry, save
from node.store.submission_rows import earlier_twin

COPY_OF_EARLIER = "COPY_OF_EARLIER"


def fail_if_copy(connection: Connection, entry: Entry, *, fingerprint: str = "") -> Job | None:
    """Fail `entry`'s job when it is a copy and return it; return None when it is original.

    `fingerprint` is the one found just now; by default the one already on the job.
    """
    job, submission = entry
    known = fingerprint or job.fingerprint
    earlier = earlier_twin(connection, submission, known)
    if earlier is None:
        return None
    same = "the same content" if earlier.content_hash == submission.content_hash else "the same fingerprint"
    detail = f"has {same} as submission {earlier.submission_id} of {earlier.hotkey}, revealed in block {earlier.block}"
    return save(connection, job, fail(
        job, job.token, COPY_OF_EARLIER, detail=detail, earlier_id=earlier.submission_id, fingerprint=known
    ))
