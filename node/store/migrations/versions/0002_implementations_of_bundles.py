"""Bundles remember the digests of their implementations; those published before know none until published again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision: str | None = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("bundles", sa.Column("pieces", sa.Text(), nullable=False, server_default=""))
