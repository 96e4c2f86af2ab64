"""One short transaction on the store by a process that is not the node.

Invariants
1. The folder's lock is not taken: the node may be running. The database's own write lock keeps the two apart, and
   neither holds it for longer than a few rows take.
2. Nothing is created or migrated: a store of another release is refused.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from config.errors import HostError, NotFoundError
from node.store.engine import writer_engine
from node.store.layout import StateLayout
from node.store.migrate import require_known, require_present

T = TypeVar("T")


def visit(state_dir: str | Path, work: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
    """Run `work(connection, ...)` in one durable transaction on the store of `state_dir` and return its result.

    Raises `NotFoundError` (STATE_NOT_FOUND), `HostError` (STORE_TOO_NEW, STORE_TOO_OLD, STORE_UNUSABLE).
    """
    layout = StateLayout.at(state_dir)
    if not layout.database.is_file():
        raise NotFoundError(
            "STATE_NOT_FOUND", f"there is no node state in {layout.root}",
            hint="give the `state_dir` of a node that has run before",
        )
    engine = writer_engine(layout)
    try:
        with engine.connect() as connection, connection.begin():
            require_known(connection)
            require_present(connection)
            return work(connection, *arguments, **keywords)
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise HostError(
            "STORE_UNUSABLE", f"the database {layout.database} cannot be used: {getattr(error, 'orig', error)}",
            hint="run the command as the node's user; if the node is very busy, run it again",
        ) from error
    finally:
        engine.dispose()
