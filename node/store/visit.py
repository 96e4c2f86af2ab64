"""One short transaction on the store by a process that is not the node: a look at it, or a change.

Invariants
1. The folder's lock is not taken: the node may be running. The database's own write lock keeps the two apart, and
   neither holds it for longer than a few rows take.
2. Nothing is created or migrated: a change of a store of another release is refused.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from config.errors import HostError, NotFoundError
from node.store.engine import reader_engine, writer_engine
from node.store.layout import StateLayout
from node.store.migrate import require_known, require_present

T = TypeVar("T")


def look(state_dir: str | Path, view: Callable[[Connection, StateLayout], T]) -> T:
    """Return `view(connection, layout)`, seen in one transaction that writes nothing.

    Raises `NotFoundError` (STATE_NOT_FOUND), `HostError` (STORE_UNUSABLE).
    """
    layout = _present(state_dir)
    hint = "check that the folder is readable; the first start of a node, or of a release, needs a moment"
    with _transaction(layout, reader_engine, "read", hint) as connection:
        return view(connection, layout)


def visit(state_dir: str | Path, work: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
    """Run `work(connection, ...)` in one durable transaction on the store of `state_dir` and return its result.

    Raises `NotFoundError` (STATE_NOT_FOUND), `HostError` (STORE_TOO_NEW, STORE_TOO_OLD, STORE_UNUSABLE).
    """
    layout = _present(state_dir)
    hint = "run the command as the node's user; if the node is very busy, run it again"
    with _transaction(layout, writer_engine, "used", hint) as connection:
        require_known(connection)
        require_present(connection)
        return work(connection, *arguments, **keywords)


def _present(state_dir: str | Path) -> StateLayout:
    layout = StateLayout.at(state_dir)
    if not layout.database.is_file():
        raise NotFoundError(
            "STATE_NOT_FOUND", f"there is no node state in {layout.root}",
            hint="give the `state_dir` of a node that has run before",
        )
    return layout


@contextlib.contextmanager
def _transaction(
    layout: StateLayout, engine_of: Callable[[StateLayout], Engine], done: str, hint: str
) -> Iterator[Connection]:
    engine = engine_of(layout)
    try:
        with engine.connect() as connection, connection.begin():
            yield connection
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise HostError(
            "STORE_UNUSABLE", f"the database {layout.database} cannot be {done}: {getattr(error, 'orig', error)}",
            hint=hint,
        ) from error
    finally:
        engine.dispose()
