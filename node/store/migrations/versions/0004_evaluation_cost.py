"""Jobs remember how they were admitted; payments that were used up, and credits. Jobs of older releases were free."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision: str | None = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column and the tables."""
    op.add_column("jobs", sa.Column("admission", sa.Text(), nullable=False, server_default=""))
    op.execute("UPDATE jobs SET admission = 'free'")
    op.create_table(
        "payments",
        sa.Column("payment_block", sa.Integer(), nullable=False),
        sa.Column("payment_index", sa.Integer(), nullable=False),
        sa.Column("submission_id", sa.Text(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False, server_default="") for name in ("payer", "destination")),
        *(sa.Column(name, sa.Integer(), nullable=False, server_default="0") for name in ("amount_rao", "used_ms")),
        sa.PrimaryKeyConstraint("payment_block", "payment_index", name=op.f("pk_payments")),
        sa.ForeignKeyConstraint(
            ["submission_id"], ["submissions.submission_id"], name=op.f("fk_payments_submission_id")
        ),
        sa.UniqueConstraint("submission_id", name=op.f("uq_payments_submission_id")),
    )
    op.create_table(
        "credits",
        sa.Column("id", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False, server_default="") for name in ("hotkey", "origin", "note")),
        *(sa.Column(name, sa.Integer(), nullable=False, server_default="0") for name in ("granted_ms", "spent_ms")),
        *(sa.Column(name, sa.Text(), nullable=True) for name in ("earned_by", "spent_by")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_credits")),
        *(
            sa.ForeignKeyConstraint([name], ["submissions.submission_id"], name=op.f(f"fk_credits_{name}"))
            for name in ("earned_by", "spent_by")
        ),
        *(sa.UniqueConstraint(name, name=op.f(f"uq_credits_{name}")) for name in ("earned_by", "spent_by")),
    )
    op.create_index(op.f("ix_credits_hotkey"), "credits", ["hotkey"])
