"""Receipts wait in the store until their files are on disk."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision: str | None = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "receipt_outbox",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("envelope", sa.Text(), nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_receipt_outbox")),
        sa.ForeignKeyConstraint(["digest"], ["receipts.digest"], name=op.f("fk_receipt_outbox_digest")),
    )
