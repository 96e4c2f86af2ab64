"""Attempts remember the build that made them, jobs how often they rested; checks of crowns, and persons' decisions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision: str | None = "0005"
branch_labels = None
depends_on = None


def _texts(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text(), nullable=False, server_default="") for name in names]


def _numbers(*names: str) -> list[sa.Column[int]]:
    return [sa.Column(name, sa.Integer(), nullable=False, server_default="0") for name in names]


def upgrade() -> None:
    """Add the columns and the tables."""
    op.add_column("attempts", sa.Column("worker", sa.Text(), nullable=False, server_default=""))
    op.add_column("jobs", sa.Column("rests", sa.Integer(), nullable=False, server_default="0"))
    op.create_table(
        "crown_checks",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("submission_id", sa.Text(), nullable=False),
        *_texts("crown", "target_id", "occasion", "cause", "cause_attempt", "state", "first_attempt", "second_attempt"),
        *_texts("code", "detail"),
        *_numbers("tries", "faults", "not_before_ms", "opened_ms", "closed_ms"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_crown_checks")),
        sa.ForeignKeyConstraint(
            ["submission_id"], ["submissions.submission_id"], name=op.f("fk_crown_checks_submission_id")
        ),
        sa.UniqueConstraint("crown", "cause_attempt", name=op.f("uq_crown_checks_crown_cause_attempt")),
    )
    op.create_index(op.f("ix_crown_checks_state"), "crown_checks", ["state"])
    op.create_table(
        "decisions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("submission_id", sa.Text(), nullable=False),
        *_texts("kind", "content_hash", "arena_digest", "attempt_id", "code", "reason", "receipt_digest"),
        *_numbers("decided_ms"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_decisions")),
        sa.ForeignKeyConstraint(
            ["submission_id"], ["submissions.submission_id"], name=op.f("fk_decisions_submission_id")
        ),
    )
    op.create_index(op.f("ix_decisions_submission_id"), "decisions", ["submission_id"])
