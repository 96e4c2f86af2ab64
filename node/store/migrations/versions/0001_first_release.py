"""The tables of the first release.

Written out, not derived from `node.store.schema`: a migration says what a release made, whatever the schema becomes.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision: str | None = None
branch_labels = None
depends_on = None


def _text(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.Text(), nullable=False, server_default="") for name in names]


def _number(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.Integer(), nullable=False, server_default="0") for name in names]


def _key(name: str, kind: type[sa.Text | sa.Integer]) -> sa.Column[Any]:
    return sa.Column(name, kind(), nullable=False, primary_key=True)


def _submission(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["submission_id"], ["submissions.submission_id"], name=op.f(f"fk_{table}_submission_id")
    )


def _create(table: str, *parts: Any, key: str) -> None:
    op.create_table(table, *parts, sa.PrimaryKeyConstraint(key, name=op.f(f"pk_{table}")))


def _index(table: str, *columns: str) -> None:
    for column in columns:
        op.create_index(op.f(f"ix_{table}_{column}"), table, [column])


def upgrade() -> None:
    """Create everything."""
    _create(
        "chain_binding", _key("id", sa.Integer), *_text("genesis_hash"), *_number("netuid", "cursor_block"),
        *_text("cursor_hash"), key="id",
    )
    _create(
        "submissions", _key("submission_id", sa.Text), *_number("block"), *_text("block_hash"),
        *_number("event_index", "sub_index"), *_text("hotkey"), sa.Column("registered_block", sa.Integer()),
        *_text("payload_hex", "payload_digest", "content_hash", "url"), sa.Column("payment_block", sa.Integer()),
        sa.Column("payment_index", sa.Integer()), *_text("reason"), *_number("recorded_ms"),
        sa.UniqueConstraint(
            "block", "event_index", "sub_index", "hotkey", "payload_digest",
            name=op.f("uq_submissions_block_event_index_sub_index_hotkey_payload_digest"),
        ),
        key="submission_id",
    )
    _index("submissions", "content_hash")
    _create_jobs()
    _create_evidence()
    _create_crowns()
    _create_ledgers()


def _create_jobs() -> None:
    _create(
        "jobs", _key("submission_id", sa.Text), *_text("state"),
        *_number("token", "faults", "transport_failures", "not_before_ms"),
        *_text(
            "parked_from", "parked_on", "target_id", "fingerprint", "primary_attempt", "reproduction_attempt", "code",
            "blame", "detail", "seen_hash", "earlier_id",
        ),
        *_number("updated_ms"), _submission("jobs"), key="submission_id",
    )
    _index("jobs", "state", "fingerprint")


def _create_evidence() -> None:
    _create(
        "fetches", _key("id", sa.Integer), *_text("submission_id", "code", "detail", "seen_hash", "archive_digest"),
        *_number("ended_ms"), _submission("fetches"), key="id",
    )
    _index("fetches", "submission_id")
    _create(
        "bundles", _key("content_hash", sa.Text),
        *_text("bundle_id", "target_id", "fingerprint"), *_number("published_ms"), key="content_hash",
    )
    _create(
        "attempts", _key("attempt_id", sa.Text),
        *_text(
            "submission_id", "role", "state", "content_hash", "target_id", "arena_digest", "incumbent",
            "measured_against", "previous_digest", "commitment", "path", "digest", "outcome", "code", "blame",
            "reason",
        ),
        *_number("lower_ppm", "upper_ppm", "launches"), *_text("tree_digest", "replay_of", "receipt_digest"),
        *_number("started_ms", "ended_ms"), _submission("attempts"), key="attempt_id",
    )
    _index("attempts", "submission_id", "content_hash")


def _create_crowns() -> None:
    _create(
        "settlement_events", _key("sequence", sa.Integer), *_text("type", "submission_id", "digest", "body"),
        sa.UniqueConstraint("digest", name=op.f("uq_settlement_events_digest")), key="sequence",
    )
    _create(
        "crowns", _key("submission_id", sa.Text), *_text("target_id", "content_hash", "hotkey"),
        *_number("block", "speedup_ppm"), *_text("event_digest", "receipt_digest", "ended_by"),
        *_number("crowned_ms"), _submission("crowns"), key="submission_id",
    )
    _index("crowns", "target_id")


def _create_ledgers() -> None:
    _create("receipts", _key("digest", sa.Text), *_text("kind", "subject"), *_number("signed_ms"), key="digest")
    _create(
        "vectors", _key("publication_id", sa.Text), *_text("digest"), *_number("block"),
        *_text("body", "receipt_digest"), *_number("made_ms"), key="publication_id",
    )
    _create(
        "publications", _key("sequence", sa.Integer), *_text("digest", "prior_digest", "publication_id", "status"),
        *_number("epoch"), *_text("vector_digest", "body"), *_number("recorded_ms"),
        sa.UniqueConstraint("digest", name=op.f("uq_publications_digest")),
        sa.UniqueConstraint("prior_digest", name=op.f("uq_publications_prior_digest")), key="sequence",
    )
    _create(
        "events", _key("sequence", sa.Integer), sa.Column("at_ms", sa.Integer(), nullable=False),
        *_text("kind", "subject", "body", "previous"), sa.Column("digest", sa.Text(), nullable=False),
        sa.UniqueConstraint("digest", name=op.f("uq_events_digest")), key="sequence",
    )
    _index("events", "subject")
