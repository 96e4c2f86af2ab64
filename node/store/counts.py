"""Counts of what the store holds, cheap enough to be asked every few seconds.

Invariants
1. No table is read as a whole: every count comes from an index that holds what is counted (a test asks the database
   for its plans), so a store of years costs milliseconds.
"""

from __future__ import annotations

import msgspec
from sqlalchemy import Connection, func, select

from node.store.queries import count_by_state, events_head
from node.store.schema import attempts, publications


class AttemptCount(msgspec.Struct, frozen=True):
    """How many attempts are in one `state` ("running", "graded", "lost") with one outcome and code."""

    state: str
    outcome: str
    code: str
    count: int


class Counts(msgspec.Struct, frozen=True):
    """The counts. `confirmed_ms` is when a weight vector was last seen on the chain (Unix ms), 0 if never."""

    jobs: dict[str, int]
    attempts: tuple[AttemptCount, ...]
    publications: dict[str, int]
    confirmed_ms: int
    events: int


def read_counts(connection: Connection) -> Counts:
    """Return all counts, as one consistent picture."""
    key = (attempts.c.state, attempts.c.outcome, attempts.c.code)
    counted = connection.execute(select(*key, func.count()).group_by(*key).order_by(*key))
    return Counts(
        jobs=count_by_state(connection),
        attempts=tuple(AttemptCount(*row) for row in counted),
        publications=_publications(connection),
        confirmed_ms=_last_confirmed(connection),
        events=events_head(connection)[0],
    )


def _publications(connection: Connection) -> dict[str, int]:
    """Return how many publications stand in each state, by the newest record of each."""
    last = func.max(publications.c.sequence).label("sequence")
    newest = select(last).group_by(publications.c.publication_id).subquery()
    rows = connection.execute(
        select(publications.c.status, func.count())
        .join(newest, newest.c.sequence == publications.c.sequence).group_by(publications.c.status)
    )
    return {row[0]: row[1] for row in rows}


def _last_confirmed(connection: Connection) -> int:
    newest = select(func.max(publications.c.sequence)).where(publications.c.status == "confirmed").scalar_subquery()
    return connection.scalar(select(publications.c.recorded_ms).where(publications.c.sequence == newest)) or 0
