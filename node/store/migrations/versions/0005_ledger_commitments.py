"""The journal of the validator's own commitments: which crown ledger was put on the chain."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision: str | None = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table."""
    texts = ("digest", "prior_digest", "commitment_id", "status", "ledger_digest", "body")
    op.create_table(
        "ledger_commitments",
        sa.Column("sequence", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False, server_default="") for name in texts),
        *(sa.Column(name, sa.Integer(), nullable=False, server_default="0") for name in ("epoch", "recorded_ms")),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_ledger_commitments")),
        sa.UniqueConstraint("digest", name=op.f("uq_ledger_commitments_digest")),
        sa.UniqueConstraint("prior_digest", name=op.f("uq_ledger_commitments_prior_digest")),
    )
