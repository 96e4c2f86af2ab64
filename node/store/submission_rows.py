"""Finalized reveals as the store keeps them, and the cursor that says how far the chain was read.

Invariants
1. The cursor and everything found up to it are committed together; the cursor never goes back.
2. A reveal is recorded once, however often it is scanned; it reserves its place by chain order, never by arrival.
3. An undecodable reveal is a submission too: a failed one, with the reason as its code. So is one that the database
   does not take; whatever a reveal holds, the cursor moves on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import structlog
from sqlalchemy import ColumnElement, Connection, insert, select, tuple_, update
from sqlalchemy.dialects.sqlite import insert as insert_or

from config.codes import load_codes
from config.errors import Blame, InternalError
from node.jobs import JobState
from node.store.events import append_event, now_ms
from node.store.schema import chain_binding, jobs, submissions
from node.store.values import UNSTORABLE, storable

REVEAL_UNSTORABLE = "REVEAL_UNSTORABLE"
FREE = "free"  # the admission of a job for which nothing was due


class Submission(msgspec.Struct, frozen=True):
    """One finalized reveal. `reason` is empty, or the code that says why its payload is undecodable."""

    submission_id: str
    block: int
    block_hash: str
    event_index: int
    sub_index: int
    hotkey: str
    registered_block: int | None  # None when the hotkey was not registered at the reveal
    payload_hex: str
    payload_digest: str
    content_hash: str
    url: str
    payment_block: int | None = None
    payment_index: int | None = None
    reason: str = ""

    @property
    def order(self) -> tuple[int, int, int, str, str]:
        """Its place in finalized order."""
        return (self.block, self.event_index, self.sub_index, self.hotkey, self.content_hash)


class Cursor(msgspec.Struct, frozen=True):
    """The last finalized block that was read."""

    block: int
    block_hash: str


ORDER: tuple[ColumnElement[Any], ...] = (
    submissions.c.block, submissions.c.event_index, submissions.c.sub_index,
    submissions.c.hotkey, submissions.c.content_hash,
)
_COLUMNS = [submissions.c[name] for name in Submission.__struct_fields__]


def read_cursor(connection: Connection) -> Cursor | None:
    """Return the cursor, or None before the first scan."""
    row = connection.execute(select(chain_binding.c.cursor_block, chain_binding.c.cursor_hash)).first()
    return Cursor(row.cursor_block, row.cursor_hash) if row is not None and row.cursor_hash else None


def nothing_due(_block: int) -> bool:
    """Say that a submission revealed in any block is free."""
    return False


def record_scan(
    connection: Connection, before: Cursor | None, after: Cursor, found: Iterable[Submission],
    is_due: Callable[[int], bool] = nothing_due,
) -> list[Submission]:
    """Store what a scan from `before` to `after` found and move the cursor. Returns the new submissions.

    `is_due` says of a reveal's block whether its submission costs something; such a job waits to be admitted.

    Raises `InternalError` (CURSOR_REGRESSION) when the cursor is not at `before` any more, would go back, or would
    give the same height another hash.
    """
    moves = before is None or after.block > before.block or after == before
    if read_cursor(connection) != before or not moves:
        raise InternalError("CURSOR_REGRESSION", f"the cursor may not move from {before} to {after}")
    recorded = [_record_any(connection, submission, is_due) for submission in found]
    fresh = [submission for submission in recorded if submission is not None]
    connection.execute(update(chain_binding).values(cursor_block=after.block, cursor_hash=after.block_hash))
    return fresh


def _record_any(
    connection: Connection, submission: Submission, is_due: Callable[[int], bool]
) -> Submission | None:
    """Record `submission`, or what can be stored of it as a failed one; return what was recorded, None if known."""
    bare = msgspec.structs.replace(
        submission, payload_hex="", content_hash="", url="", registered_block=None, payment_block=None,
        payment_index=None, reason=REVEAL_UNSTORABLE, hotkey=storable(submission.hotkey),
    )
    for version in (submission, bare):
        try:
            with connection.begin_nested():
                return version if _record(connection, version, is_due) else None
        except UNSTORABLE as error:
            structlog.get_logger().warning(
                "reveal.unstorable", submission=submission.submission_id, error=type(error).__name__
            )
    return None


def _record(connection: Connection, submission: Submission, is_due: Callable[[int], bool]) -> bool:
    statement = insert_or(submissions).values(**msgspec.structs.asdict(submission), recorded_ms=now_ms())
    if connection.execute(statement.on_conflict_do_nothing()).rowcount == 0:
        return False
    state = JobState.FAILED if submission.reason else JobState.RESERVED
    free = state is JobState.FAILED or not is_due(submission.block)
    connection.execute(insert(jobs).values(
        submission_id=submission.submission_id, state=state.value, code=submission.reason,
        blame=_blame_of(submission.reason), admission=FREE if free else "", updated_ms=now_ms(),
    ))
    append_event(connection, "submission.recorded", submission.submission_id, {
        "block": submission.block, "event_index": submission.event_index, "hotkey": submission.hotkey,
        "content_hash": submission.content_hash, "state": state.value, "code": submission.reason,
    })
    return True


def _blame_of(reason: str) -> str:
    """Return who is at fault for a reveal that cannot be used, as its code is documented."""
    if not reason:
        return ""
    document = load_codes().get(reason)
    return document.blame if document is not None else Blame.MINER.value


def load_submission(connection: Connection, submission_id: str) -> Submission:
    """Return one submission. Raises `InternalError` (SUBMISSION_UNKNOWN)."""
    row = connection.execute(select(*_COLUMNS).where(submissions.c.submission_id == submission_id)).mappings().first()
    if row is None:
        raise InternalError("SUBMISSION_UNKNOWN", f"the store holds no submission {submission_id}")
    return Submission(**row)


def earlier_twin(connection: Connection, submission: Submission, fingerprint: str) -> Submission | None:
    """Return the earliest submission of another hotkey, before this one in chain order, with the same content.

    The same content is the same content hash, or the same fingerprint when both are known. Only a submission whose
    bytes were screened counts: committing to a hash without ever serving it claims nobody's work.
    """
    same = (submissions.c.content_hash == submission.content_hash) & (jobs.c.fingerprint != "")
    if fingerprint:
        same = same | (jobs.c.fingerprint == fingerprint)
    row = connection.execute(
        select(*_COLUMNS).join(jobs)
        .where(submissions.c.hotkey != submission.hotkey, tuple_(*ORDER) < tuple_(*submission.order), same)
        .order_by(*ORDER).limit(1)
    ).mappings().first()
    return Submission(**row) if row is not None else None
