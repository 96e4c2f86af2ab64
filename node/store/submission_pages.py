"""Submissions page by page, newest first, with what belongs to them.

Invariants
1. Every query is bounded by the page: a store with many submissions costs no more per page than one with few.
2. A page continues after a submission, not after a number of rows, so new submissions shift nothing.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec
from sqlalchemy import Connection, func, select, tuple_

from node.store.crown_rows import CrownRow
from node.store.evidence_rows import AttemptRow
from node.store.job_rows import Entry, select_entries
from node.store.journal import find_vector
from node.store.schema import attempts, crowns, fetches, publications, submissions
from node.store.submission_rows import ORDER


class PageQuery(msgspec.Struct, frozen=True):
    """Which submissions; empty texts mean any. `after` is the id of the last one of the page before."""

    limit: int
    hotkey: str = ""
    content_hash: str = ""
    after: str = ""


def page_of(connection: Connection, query: PageQuery) -> list[Entry]:
    """Return at most `query.limit` submissions, newest first; nothing when `after` is unknown."""
    conditions = []
    if query.hotkey:
        conditions.append(submissions.c.hotkey == query.hotkey)
    if query.content_hash:
        conditions.append(submissions.c.content_hash == query.content_hash)
    if query.after:
        last = row_of(connection, query.after)
        if last is None:
            return []
        conditions.append(tuple_(*ORDER) < tuple_(*last.submission.order))
    newest_first = [column.desc() for column in ORDER]
    return select_entries(connection, *conditions, order=newest_first, limit=query.limit)


def row_of(connection: Connection, submission_id: str) -> Entry | None:
    """Return one submission with its job, or None."""
    found = select_entries(connection, submissions.c.submission_id == submission_id)
    return found[0] if found else None


def attempts_of(connection: Connection, names: list[str]) -> dict[str, list[AttemptRow]]:
    """Return the attempts of some submissions, oldest first."""
    found: dict[str, list[AttemptRow]] = defaultdict(list)
    columns = [attempts.c[name] for name in AttemptRow.__struct_fields__]
    statement = (
        select(*columns).where(attempts.c.submission_id.in_(names))
        .order_by(attempts.c.started_ms, attempts.c.attempt_id)
    )
    for row in connection.execute(statement).mappings():
        found[row["submission_id"]].append(AttemptRow(**row))
    return found


def fetch_counts(connection: Connection, names: list[str]) -> dict[str, int]:
    """Return how many fetches ended, for some submissions."""
    statement = (
        select(fetches.c.submission_id, func.count())
        .where(fetches.c.submission_id.in_(names)).group_by(fetches.c.submission_id)
    )
    return {row[0]: row[1] for row in connection.execute(statement)}


def crowns_of(connection: Connection, names: list[str]) -> dict[str, CrownRow]:
    """Return the crowns that some submissions hold or held."""
    columns = [crowns.c[name] for name in CrownRow.__struct_fields__]
    statement = select(*columns).where(crowns.c.submission_id.in_(names))
    return {row["submission_id"]: CrownRow(**row) for row in connection.execute(statement).mappings()}


def latest_shares(connection: Connection) -> dict[str, int]:
    """Return the shares (ppm by hotkey) of the newest confirmed publication."""
    name = connection.scalar(
        select(publications.c.publication_id).where(publications.c.status == "confirmed")
        .order_by(publications.c.sequence.desc()).limit(1)
    )
    vector = find_vector(connection, name) if name else None
    return dict(vector.entries) if vector is not None else {}
