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
    config = _config()
    if require_known(connection) == ScriptDirectory.from_config(config).get_current_head():
        return
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def require_known(connection: Connection) -> str:
    """Return the schema's revision, "" for an empty database. Raises `HostError` (STORE_TOO_NEW)."""
    current = MigrationContext.configure(connection).get_current_revision() or ""
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if current and current not in known:
        raise HostError(
            "STORE_TOO_NEW", f"the state folder was written by a newer release (schema {current})",
            hint="run that release, or use another `state_dir`",
        )
    return current


def require_present(connection: Connection) -> None:
    """Raise `HostError` (STORE_TOO_OLD) unless the schema is this release's."""
    current = MigrationContext.configure(connection).get_current_revision() or ""
    if current != ScriptDirectory.from_config(_config()).get_current_head():
        raise HostError(
            "STORE_TOO_OLD", f"the state folder was written by an older release (schema {current or 'none'})",
            hint="start the node of this release once; it brings the folder up to date",
        )


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
