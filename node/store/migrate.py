"""Brings a database to the newest schema, whatever release made it.

Invariants
1. Migrations only go forward and run inside one transaction on the caller's connection.
2. A database from a newer release is refused (STORE_TOO_NEW), never opened.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from config.errors import HostError

_FOLDER = Path(__file__).parent / "migrations"


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Upgrade the database behind `connection`, by default to the newest schema. Raises `HostError` (STORE_TOO_NEW)."""
    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    script = ScriptDirectory.from_config(config)
    current = MigrationContext.configure(connection).get_current_revision()
    if current == script.get_current_head():
        return
    if current is not None and current not in {revision.revision for revision in script.walk_revisions()}:
        raise HostError(
            "STORE_TOO_NEW", f"the state folder was written by a newer release (schema {current})",
            hint="run that release, or use another `state_dir`",
        )
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
