"""Bundles remember the version of their fingerprint and its parts; jobs, which earlier submission theirs resembles."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision: str | None = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns and the table."""
    op.add_column("bundles", sa.Column("print_version", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("kinship", sa.Text(), nullable=False, server_default=""))
    op.create_table(
        "bundle_parts",
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False, server_default="") for name in ("shape", "name")),
        sa.Column("weight", sa.Integer(), nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("content_hash", "digest", name=op.f("pk_bundle_parts")),
        sa.ForeignKeyConstraint(["content_hash"], ["bundles.content_hash"], name=op.f("fk_bundle_parts_content_hash")),
    )
    op.create_index(op.f("ix_bundle_parts_shape"), "bundle_parts", ["shape"])
