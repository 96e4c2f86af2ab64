"""Checks of crowns: each asks whether a crowned bundle still does what it was crowned for.

Invariants
1. A check belongs to one CROWN event and to the attempt of a challenger that raised the question; asked twice about the
   same two, it is the same check.
2. A crown has at most one open check. A submission whose question was answered can ask it again only after a rest.
3. A check is closed with everybody who waited for it let go, in one transaction.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from sqlalchemy import Connection, insert, select, update

from node.jobs import Job, JobState, release
from node.store.events import append_event, now_ms
from node.store.job_rows import entries, save
from node.store.schema import crown_checks
from node.store.values import storable

CROWN_IN_CHECK = "CROWN_IN_CHECK"
UNCOMPARED_LOOKS = 4  # in a row that prove it, once one had too little to compare with: 30, 60, 120 minutes apart
FAILED_AS_BASELINE, OUTPACED = "failed_as_baseline", "outpaced"

State = Literal["open", "proved", "cleared", "undecided", "revoked", "void"]


class CheckRow(msgspec.Struct, frozen=True):
    """One check. `first_attempt` is the id of the attempt that found a fault, `second_attempt` of the one that found
    one again; a check in which both did is "proved", and "revoked" once the crown is."""

    id: int
    submission_id: str  # of the crown
    crown: str  # digest of its CROWN event
    target_id: str
    occasion: str
    cause: str  # the submission that raised the question, and its attempt
    cause_attempt: str
    state: State
    first_attempt: str = ""
    second_attempt: str = ""
    code: str = ""
    detail: str = ""
    tries: int = 0
    faults: int = 0
    not_before_ms: int = 0
    opened_ms: int = 0
    closed_ms: int = 0
    uncompared: int = 0  # attempts in a row that showed a fault, if one of them had too little to compare with; else 0


_COLUMNS = [crown_checks.c[name] for name in CheckRow.__struct_fields__]
_ANSWERED: tuple[State, ...] = ("cleared", "undecided")


def checks(connection: Connection, *states: State, crown: str = "") -> list[CheckRow]:
    """Return the checks in any of `states` (all when none is given), of one crown or of all, oldest first."""
    statement = select(*_COLUMNS).order_by(crown_checks.c.id)
    if states:
        statement = statement.where(crown_checks.c.state.in_(states))
    if crown:
        statement = statement.where(crown_checks.c.crown == crown)
    return [CheckRow(**row) for row in connection.execute(statement).mappings()]


def load_check(connection: Connection, check_id: int) -> CheckRow:
    """Return one check."""
    return CheckRow(**connection.execute(select(*_COLUMNS).where(crown_checks.c.id == check_id)).mappings().one())


def is_answered(connection: Connection, crown: str, cause_attempt: str) -> bool:
    """Say whether the question that an attempt raised about a crown was answered, in its favour or by nobody."""
    return any(check.cause_attempt == cause_attempt for check in checks(connection, *_ANSWERED, crown=crown))


def open_check(
    connection: Connection, *, crown: str, submission_id: str, target_id: str, occasion: str, cause: str,
    cause_attempt: str, rests: int = 0,
) -> bool:
    """See that the crown is checked; return whether a check of it is under way now.

    False when the same attempt was answered already; or the same submission, which failed on the crown, once more often
    than it has rested (`rests`).
    """
    known = checks(connection, crown=crown)
    if any(check.state in ("open", "proved") for check in known):
        return True
    answered = [check for check in known if check.state in _ANSWERED and check.cause == cause]
    asked = sum(check.occasion == FAILED_AS_BASELINE for check in answered)
    if any(check.cause_attempt == cause_attempt for check in answered):
        return False
    if occasion == FAILED_AS_BASELINE and asked > rests:
        return False
    connection.execute(insert(crown_checks).values(
        submission_id=submission_id, crown=crown, target_id=target_id, occasion=occasion, cause=cause,
        cause_attempt=cause_attempt, state="open", opened_ms=now_ms(),
    ))
    append_event(connection, "crown_check.opened", submission_id, {
        "crown": crown, "target_id": target_id, "occasion": occasion, "cause": cause, "cause_attempt": cause_attempt,
    })
    return True


def update_check(connection: Connection, check: CheckRow, **changes: Any) -> CheckRow:
    """Write `changes` to a check and return it as it is now."""
    if "detail" in changes:
        changes["detail"] = storable(changes["detail"])
    connection.execute(update(crown_checks).where(crown_checks.c.id == check.id).values(**changes))
    return msgspec.structs.replace(check, **changes)


def close_check(connection: Connection, check: CheckRow, state: State, **changes: Any) -> list[Job]:
    """Close a check and let go of the jobs that waited for it; return them."""
    closed = update_check(connection, check, state=state, closed_ms=now_ms(), **changes)
    append_event(connection, f"crown_check.{state}", closed.submission_id, {
        "crown": closed.crown, "cause": closed.cause, "code": closed.code, "detail": closed.detail,
        "attempts": [name for name in (closed.first_attempt, closed.second_attempt) if name],
    })
    waiting = [job for job, _ in entries(connection, JobState.PARKED) if job.code == CROWN_IN_CHECK]
    return [save(connection, job, release(job)) for job in waiting]
