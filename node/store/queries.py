"""Read models of the store, for status and pages. They need a connection, not a running node."""

from __future__ import annotations

from collections import defaultdict

import msgspec
from sqlalchemy import Connection, func, select

from node.store.evidence_rows import AttemptRow
from node.store.schema import attempts, chain_binding, events, fetches, jobs, publications


class ChainView(msgspec.Struct, frozen=True):
    """The chain a store belongs to and how far it was read (block 0 and no hash before the first scan)."""

    genesis_hash: str
    netuid: int
    cursor_block: int
    cursor_hash: str


class PublicationView(msgspec.Struct, frozen=True):
    """The present state of one publication."""

    publication_id: str
    epoch: int
    status: str
    vector_digest: str
    submit_block: int | None
    included_block: int | None
    confirmed_block: int | None
    extrinsic_hash: str
    reason: str


class _Body(msgspec.Struct):
    submit_block: int | None = None
    included_block: int | None = None
    confirmed_block: int | None = None
    extrinsic_hash: str = ""
    reason: str = ""


def chain_view(connection: Connection) -> ChainView | None:
    """Return the store's chain, or None before it was ever bound."""
    row = connection.execute(select(chain_binding)).first()
    return ChainView(row.genesis_hash, row.netuid, row.cursor_block, row.cursor_hash) if row is not None else None


def count_by_state(connection: Connection) -> dict[str, int]:
    """Return how many jobs are in each state that occurs."""
    rows = connection.execute(select(jobs.c.state, func.count()).group_by(jobs.c.state).order_by(jobs.c.state))
    return {row[0]: row[1] for row in rows}


def attempts_by_submission(connection: Connection) -> dict[str, list[AttemptRow]]:
    """Return every attempt, oldest first, by submission."""
    found: dict[str, list[AttemptRow]] = defaultdict(list)
    columns = [attempts.c[name] for name in AttemptRow.__struct_fields__]
    for row in connection.execute(select(*columns).order_by(attempts.c.started_ms, attempts.c.attempt_id)).mappings():
        attempt = AttemptRow(**row)
        found[attempt.submission_id].append(attempt)
    return found


def fetches_by_submission(connection: Connection) -> dict[str, int]:
    """Return how many fetches ended, by submission."""
    rows = connection.execute(select(fetches.c.submission_id, func.count()).group_by(fetches.c.submission_id))
    return {row[0]: row[1] for row in rows}


def publication_views(connection: Connection) -> list[PublicationView]:
    """Return the newest state of every publication, oldest publication first."""
    newest: dict[str, PublicationView] = {}
    for row in connection.execute(select(publications).order_by(publications.c.sequence)):
        body = msgspec.json.decode(row.body, type=_Body)
        newest[row.publication_id] = PublicationView(
            row.publication_id, row.epoch, row.status, row.vector_digest, body.submit_block, body.included_block,
            body.confirmed_block, body.extrinsic_hash, body.reason,
        )
    return list(newest.values())


def events_head(connection: Connection) -> tuple[int, str]:
    """Return the number of events and the digest of the last one."""
    row = connection.execute(
        select(events.c.sequence, events.c.digest).order_by(events.c.sequence.desc()).limit(1)
    ).first()
    return (row.sequence, row.digest) if row is not None else (0, "")


def latest_event(connection: Connection, kind: str) -> str:
    """Return the body of the newest event of `kind` as JSON text, or ""."""
    return connection.scalar(
        select(events.c.body).where(events.c.kind == kind).order_by(events.c.sequence.desc()).limit(1)
    ) or ""
