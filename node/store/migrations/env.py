"""Alembic's entry point: run the migrations on the connection that `node.store.migrate` hands over."""

from __future__ import annotations

from alembic import context

from node.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True
)
context.run_migrations()
