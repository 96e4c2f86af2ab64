"""Indexes for what is asked every few seconds: newest event of a kind, attempts by outcome, publications by state."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision: str | None = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the indexes."""
    op.create_index(op.f("ix_events_kind"), "events", ["kind"])
    op.create_index(op.f("ix_attempts_state_outcome_code"), "attempts", ["state", "outcome", "code"])
    op.create_index(op.f("ix_publications_publication_id"), "publications", ["publication_id"])
    op.create_index(op.f("ix_publications_status"), "publications", ["status"])
