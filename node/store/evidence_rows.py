"""What was fetched, published and measured for a submission.

Invariants
1. Every fetch that ended has a row, also the failed ones, with the content hash that was really served.
2. An attempt is graded once; its row then names the digest of the file the verdict was computed from.
3. Only a FAIL is ever looked up for replay; a PASS is always earned anew.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from sqlalchemy import Connection, insert, select, update
from sqlalchemy.dialects.sqlite import insert as insert_or

from config.errors import InternalError
from node.store.events import append_event, now_ms
from node.store.schema import attempts, bundles, crown_checks, decisions, fetches, submissions
from node.store.values import storable

PASS, FAIL = "PASS", "FAIL"
REOPEN = "reopen"  # kind of a decision that sets a FAIL aside


class BundleRow(msgspec.Struct, frozen=True):
    """One published bundle; where it lies follows from its content hash. `pieces` are the digests of its
    implementations, joined by spaces; they and the fingerprint mean something within one `print_version` only."""

    content_hash: str
    bundle_id: str
    target_id: str
    fingerprint: str
    pieces: str = ""
    print_version: int = 0


class AttemptRow(msgspec.Struct, frozen=True):
    """One attempt. `state` is "running", "graded" or "lost"; the verdict fields are empty until graded. `role` is
    "primary" or "reproduction", or for those of a crown that is checked "check" or "recheck"."""

    attempt_id: str
    submission_id: str
    role: str
    state: str
    content_hash: str
    target_id: str
    arena_digest: str
    incumbent: str  # content hash of the incumbent bundle; "" is stock
    measured_against: str = ""  # submission ids of the live crowns over its members when it began, joined by ","
    previous_digest: str = ""
    commitment: str = ""
    path: str = ""  # of the evidence file, below the state folder
    digest: str = ""
    outcome: str = ""
    code: str = ""
    blame: str = ""
    reason: str = ""
    lower_ppm: int = 0
    upper_ppm: int = 0
    launches: int = 0
    tree_digest: str = ""
    replay_of: str = ""
    receipt_digest: str = ""
    worker: str = ""  # digest of the arena and of the code that judged it; "" in rows of older releases


_BUNDLE = [bundles.c[name] for name in BundleRow.__struct_fields__]
_ATTEMPT = [attempts.c[name] for name in AttemptRow.__struct_fields__]


def record_fetch(
    connection: Connection, submission_id: str, *, code: str, detail: str = "", seen_hash: str = "",
    archive_digest: str = "",
) -> None:
    """Note how one fetch ended; `code` is empty for the committed bytes."""
    connection.execute(insert(fetches).values(
        submission_id=submission_id, code=code, detail=storable(detail), seen_hash=storable(seen_hash),
        archive_digest=archive_digest, ended_ms=now_ms(),
    ))


def record_bundle(connection: Connection, bundle: BundleRow) -> None:
    """Note a published bundle. A newer report of the same bytes replaces what an older one said about them."""
    values = msgspec.structs.asdict(bundle)
    connection.execute(
        insert_or(bundles).values(**values, published_ms=now_ms())
        .on_conflict_do_update(index_elements=["content_hash"], set_=values)
    )


def find_bundle(connection: Connection, content_hash: str) -> BundleRow | None:
    """Return the published bundle with that content hash, or None."""
    row = connection.execute(select(*_BUNDLE).where(bundles.c.content_hash == content_hash)).mappings().first()
    return BundleRow(**row) if row is not None else None


def start_attempt(connection: Connection, attempt: AttemptRow) -> None:
    """Record an attempt before its process starts."""
    connection.execute(insert(attempts).values(**msgspec.structs.asdict(attempt), started_ms=now_ms()))
    append_event(connection, "attempt.started", attempt.submission_id, {
        "attempt_id": attempt.attempt_id, "role": attempt.role, "incumbent": attempt.incumbent,
        "arena_digest": attempt.arena_digest,
    })


def seal_attempt(connection: Connection, attempt_id: str, commitment: str) -> None:
    """Record the commitment to an attempt's seed, which precedes its first launch."""
    attempt = load_attempt(connection, attempt_id)
    if attempt.commitment or attempt.state != "running":
        raise InternalError("ATTEMPT_RESEALED", f"attempt {attempt_id} is already sealed or over")
    connection.execute(update(attempts).where(attempts.c.attempt_id == attempt_id).values(commitment=commitment))
    append_event(connection, "attempt.sealed", attempt.submission_id, {
        "attempt_id": attempt_id, "commitment": commitment,
    })


def finish_attempt(connection: Connection, attempt: AttemptRow) -> None:
    """Write the graded or lost `attempt` over its running row."""
    values = {**msgspec.structs.asdict(attempt), "reason": storable(attempt.reason)}
    written = connection.execute(
        update(attempts)
        .where(attempts.c.attempt_id == attempt.attempt_id, attempts.c.state == "running")
        .values(**values, ended_ms=now_ms())
    ).rowcount
    if written != 1:
        raise InternalError("ATTEMPT_REGRADED", f"attempt {attempt.attempt_id} is not running")
    append_event(connection, f"attempt.{attempt.state}", attempt.submission_id, {
        "attempt_id": attempt.attempt_id, "digest": attempt.digest, "outcome": attempt.outcome, "code": attempt.code,
        "lower_ppm": attempt.lower_ppm, "upper_ppm": attempt.upper_ppm, "replay_of": attempt.replay_of,
    })


def lose_running_attempts(connection: Connection) -> int:
    """Mark attempts that were cut off by a restart as lost. Returns how many."""
    rows = connection.execute(select(*_ATTEMPT).where(attempts.c.state == "running")).mappings().all()
    for row in rows:
        lost = msgspec.structs.replace(AttemptRow(**row), state="lost", code="ATTEMPT_INTERRUPTED")
        finish_attempt(connection, lost)
    return len(rows)


def load_attempt(connection: Connection, attempt_id: str) -> AttemptRow:
    """Return one attempt. Raises `InternalError` (ATTEMPT_UNKNOWN)."""
    row = connection.execute(select(*_ATTEMPT).where(attempts.c.attempt_id == attempt_id)).mappings().first()
    if row is None:
        raise InternalError("ATTEMPT_UNKNOWN", f"the store holds no attempt {attempt_id}")
    return AttemptRow(**row)


def failed_before(
    connection: Connection, *, hotkey: str, content_hash: str, arena_digest: str, incumbent: str,
    relative: Collection[str], timed: Collection[str],
) -> AttemptRow | None:
    """Return the first FAIL of the same bytes by the same hotkey in the same arena that still holds, or None.

    One with a code in `relative` holds against the same incumbent only. Of the checks of a crown those count that
    revoked it, unless they show what is in `timed`: a machine in trouble shows that as well, so it ends a crown and
    proves nothing about its bytes. Those that a person has opened again count nowhere.
    """
    revoked = crown_checks.c.state == "revoked"
    revoking = select(crown_checks.c.second_attempt).where(revoked, crown_checks.c.code.not_in(timed))
    reopened = select(decisions.c.attempt_id).where(decisions.c.kind == REOPEN)
    first = select(crown_checks.c.first_attempt).where(revoked, crown_checks.c.second_attempt.not_in(reopened))
    attempt = attempts.c.attempt_id
    row = connection.execute(
        select(*_ATTEMPT).join(submissions)
        .where(
            submissions.c.hotkey == hotkey, attempts.c.content_hash == content_hash,
            attempts.c.arena_digest == arena_digest, attempts.c.outcome == FAIL, attempts.c.replay_of == "",
            attempts.c.role.in_(("primary", "reproduction")) | attempt.in_(revoking)
            | (attempt.in_(first) & attempts.c.code.not_in([*timed, *relative])),
            attempts.c.code.not_in(relative) | (attempts.c.incumbent == incumbent), attempt.not_in(reopened),
        )
        .order_by(attempts.c.started_ms).limit(1)
    ).mappings().first()
    return AttemptRow(**row) if row is not None else None
