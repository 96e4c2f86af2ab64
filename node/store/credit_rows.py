"""Credits: each admits one submission of its hotkey without a payment.

Invariants
1. A credit is spent at most once, a submission spends at most one, and the oldest goes first.
2. A submission holds at most one credit that it earned, granted in the transaction that takes the judging from it:
   whatever crashes, the credit is there exactly when the move is.
3. Only who paid is made good for, with a payment or with a credit; what was free earns nothing.
4. One payment buys at most two judgings. A submission that comes back from being parked is judged after all, so its
   credit is taken back unless it was spent meanwhile; and parking what a credit admitted earns no other credit,
   because that comes back by itself. What ends for good by our fault is made good for whoever paid, and however.
"""

from __future__ import annotations

import msgspec
from sqlalchemy import Connection, delete, func, insert, select, update
from sqlalchemy.dialects.sqlite import insert as insert_or

from config.errors import Blame
from node.jobs import Job, JobState
from node.store.events import append_event, now_ms
from node.store.schema import cost_credits, submissions
from node.store.values import storable
from scoring.grade import REVIEW_CODES

PAID, CREDIT = "paid", "credit"  # admissions that cost their miner something
OPERATOR = "operator"  # origin of a credit that a person granted
PARKED = "parked"  # origin of a credit that a parked submission earned
FEATURE_NOT_SERVED = "FEATURE_NOT_SERVED"
SUSPECT_CODES = REVIEW_CODES  # parked for a person's eyes, not for a fault of ours


class Credit(msgspec.Struct, frozen=True):
    """One credit. `origin` says why it exists: "operator", or the end of the submission `earned_by`."""

    id: int
    hotkey: str
    origin: str
    note: str
    granted_ms: int
    earned_by: str | None = None
    spent_by: str | None = None
    spent_ms: int = 0


_COLUMNS = [cost_credits.c[name] for name in Credit.__struct_fields__]


def grant(connection: Connection, hotkey: str, count: int, note: str) -> list[Credit]:
    """Give `hotkey` so many credits and return them."""
    row = {"hotkey": hotkey, "origin": OPERATOR, "note": storable(note), "granted_ms": now_ms()}
    made = [
        connection.execute(insert(cost_credits).values(**row).returning(*_COLUMNS)).mappings().one()
        for _ in range(count)
    ]
    append_event(connection, "credit.granted", hotkey, {"count": count, "origin": OPERATOR, "note": row["note"]})
    return [Credit(**one) for one in made]


def list_credits(connection: Connection, hotkey: str = "", *, unspent_only: bool = False) -> list[Credit]:
    """Return the credits of `hotkey` (of everybody when empty), oldest first."""
    statement = select(*_COLUMNS).order_by(cost_credits.c.id)
    if hotkey:
        statement = statement.where(cost_credits.c.hotkey == hotkey)
    if unspent_only:
        statement = statement.where(cost_credits.c.spent_by.is_(None))
    return [Credit(**row) for row in connection.execute(statement).mappings()]


def spend_oldest(connection: Connection, hotkey: str, submission_id: str) -> bool:
    """Spend the oldest credit of `hotkey` on a submission; return whether there was one."""
    oldest = connection.scalar(
        select(func.min(cost_credits.c.id)).where(cost_credits.c.hotkey == hotkey, cost_credits.c.spent_by.is_(None))
    )
    if oldest is None:
        return False
    connection.execute(
        update(cost_credits).where(cost_credits.c.id == oldest).values(spent_by=submission_id, spent_ms=now_ms())
    )
    append_event(connection, "credit.spent", submission_id, {"credit": oldest, "hotkey": hotkey})
    return True


def make_good(connection: Connection, before: Job, after: Job) -> bool:
    """Give the miner of a job that has just moved a credit when it is owed one; return whether it was.

    A job that comes back from being parked loses the credit that parking gave it, if nobody has spent it.
    """
    if before.state is JobState.PARKED and after.state is not JobState.PARKED:
        _take_back(connection, after.submission_id)
    origin = _owed_for(after)
    if not origin:
        return False
    hotkey = connection.scalar(select(submissions.c.hotkey).where(submissions.c.submission_id == after.submission_id))
    made = connection.execute(
        insert_or(cost_credits)
        .values(hotkey=hotkey, origin=origin, note=after.code, granted_ms=now_ms(), earned_by=after.submission_id)
        .on_conflict_do_nothing(index_elements=["earned_by"])
    ).rowcount
    if made:
        body = {"count": 1, "origin": origin, "note": after.code, "submission": after.submission_id}
        append_event(connection, "credit.granted", str(hotkey), body)
    return bool(made)


def _take_back(connection: Connection, submission_id: str) -> None:
    """Take back the unspent credit that a submission earned by being parked."""
    own = (cost_credits.c.earned_by == submission_id) & (cost_credits.c.origin == PARKED)
    taken = connection.execute(
        delete(cost_credits).where(own, cost_credits.c.spent_by.is_(None)).returning(
            cost_credits.c.id, cost_credits.c.hotkey
        )
    ).first()
    if taken is not None:
        append_event(connection, "credit.withdrawn", taken.hotkey, {"credit": taken.id, "submission": submission_id})


def _owed_for(job: Job) -> str:
    """Return why the miner of a job gets its cost back, or "" when it does not."""
    if job.admission not in (PAID, CREDIT):
        return ""
    ours = job.blame not in ("", Blame.MINER)
    match job.state:
        case JobState.PARKED if job.code not in SUSPECT_CODES and job.admission == PAID:
            return PARKED
        case JobState.FAILED if job.code == FEATURE_NOT_SERVED or ours:
            return "unserved" if job.code == FEATURE_NOT_SERVED else "failed"
        case JobState.EXPIRED if ours:
            return "expired"
        case _:
            return ""
