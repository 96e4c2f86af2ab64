"""Checks of crowns count the attempts in which there was nothing to compare the crowned bundle with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision: str | None = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("crown_checks", sa.Column("uncompared", sa.Integer(), nullable=False, server_default="0"))
