"""The store: SQLite in WAL mode behind one writer.

Invariants
1. All work on the database happens on one thread with one connection, so the event loop never waits for a disk and
   writers never wait for each other. Transactions are short: no network, no child process inside one.
2. A commit is on disk before `write` returns (`synchronous=FULL`): what the node does to the outside world next can
   rely on it.
3. Either a transaction commits entirely or it leaves nothing.
4. The store belongs to one chain: {genesis hash, netuid} is written once and compared at every start.
5. A store works with the files that it opened, or not at all: when the state folder is replaced or deleted under a
   running node, everything ends with STATE_REPLACED. Another node may be at work in the new folder.
6. Errors of the database library never leave this module: a value that cannot be stored is VALUE_NOT_STORABLE, ours;
   everything else is STORE_UNUSABLE, the disk's. After a failure of the disk the next transaction connects anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event, insert, select
from sqlalchemy.exc import SQLAlchemyError

from config.errors import ConfigurationError, HostError, InternalError
from node.store.events import append_event, now_ms
from node.store.layout import StateLayout
from node.store.lock import LockHolder, StateLock, same_file
from node.store.migrate import upgrade
from node.store.schema import chain_binding
from node.store.values import UNSTORABLE

T = TypeVar("T")

_BUSY_TIMEOUT_MS = 10_000


class StateReplacedError(HostError):
    """The state folder is not the one that this process opened; nothing may be done with it any more."""


class Store:
    """The open store of a running node. Create it with `Store.open`."""

    def __init__(self, layout: StateLayout, lock: StateLock) -> None:
        self.layout = layout
        self._lock = lock
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._engine = writer_engine(layout)
        self._connection: Connection | None = None
        self._opened: os.stat_result | None = None  # the database file of the first connection
        self._works: bool | None = None

    @classmethod
    async def open(cls, layout: StateLayout) -> Store:
        """Create the layout, take the lock, bring the schema up to date.

        Raises `HostError`: STATE_UNWRITABLE, STORE_LOCKED, STORE_TOO_NEW, STORE_UNUSABLE.
        """
        layout.create()
        holder = LockHolder(pid=os.getpid(), started_ms=now_ms())
        lock = StateLock.acquire(layout.lock, holder)  # may block for a moment; nothing else runs yet
        store = cls(layout, lock)
        try:
            await store.write(upgrade)
        except BaseException:
            await store.close()
            raise
        return store

    @property
    def works(self) -> bool | None:
        """Whether the newest transaction reached the disk, or would have; None before the first. Any thread may ask."""
        return self._works

    async def write(self, work: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
        """Run `work(connection, *arguments, **keywords)` in one durable transaction and return its result.

        Errors of ours roll back and pass through. Raises `HostError` (STORE_UNUSABLE) for a failing database or disk
        and `InternalError` (VALUE_NOT_STORABLE) for a value that no database would take.
        """
        loop = asyncio.get_running_loop()
        # A cancelled caller must not tear a transaction apart: the thread finishes it either way.
        return await loop.run_in_executor(self._thread, lambda: self._transaction(work, arguments, keywords))

    async def read(self, work: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
        """Run a reading `work` on the same thread; it sees everything committed so far."""
        return await self.write(work, *arguments, **keywords)

    async def bind(self, genesis_hash: str, netuid: int) -> None:
        """Tie the store to a chain, or check that it is this one. Raises `ConfigurationError` (STORE_FOREIGN_CHAIN)."""
        await self.write(_bind, genesis_hash, netuid)

    async def close(self) -> None:
        """Finish what is running, close the database and give the lock back. Idempotent."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._thread.shutdown)
        self._disconnect()
        self._engine.dispose()
        self._lock.release()

    def _transaction(self, work: Callable[..., T], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> T:
        try:
            connection = self._connected()
            with connection.begin():
                result = work(connection, *arguments, **keywords)
            self._works = True
            return result
        except UNSTORABLE as error:
            raise InternalError(
                "VALUE_NOT_STORABLE", f"a value cannot be stored: {type(error).__name__}: {_reason(error)}"
            ) from error
        except (SQLAlchemyError, sqlite3.Error, OSError) as error:  # the driver's own errors come from `_configure`
            self._works = False
            self._disconnect()  # whatever state the connection is in, the next transaction starts from a clean one
            raise HostError(
                "STORE_UNUSABLE", f"the database {self.layout.database} failed: {_reason(error)}",
                hint="check the disk (free space, permissions); the node goes on by itself once it works again",
            ) from error

    def _connected(self) -> Connection:
        own = self._lock.is_at(self.layout.lock)
        if not own or (self._opened is not None and not same_file(self._opened, self.layout.database)):
            raise StateReplacedError(
                "STATE_REPLACED", f"the state folder {self.layout.root} was deleted or replaced under the running node",
                hint="start the node again on the folder that it should use",
            )
        if self._connection is None:
            self._connection = self._engine.connect()
            self._opened = self._opened or self.layout.database.stat()
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(SQLAlchemyError, sqlite3.Error):
                connection.invalidate()
                connection.close()


def writer_engine(layout: StateLayout) -> Engine:
    """Return an engine whose connections write durably; used by one thread at a time."""
    engine = create_engine(f"sqlite:///{layout.database}", connect_args={"check_same_thread": False})
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin_immediate)
    return engine


def reader_engine(layout: StateLayout) -> Engine:
    """Return an engine whose connections cannot write; for a process that is not the node.

    A database on a read-only medium, which no node can be writing to, is read without the shared files of WAL mode.
    """
    log = layout.database.with_name(f"{layout.database.name}-wal")
    still = not log.exists() and not os.access(layout.root, os.W_OK)
    uri = f"file:{quote(str(layout.database))}?mode=ro{'&immutable=1' if still else ''}&uri=true"
    return create_engine(f"sqlite:///{uri}", connect_args={"timeout": 10})


def _configure(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver must not open transactions on its own; `_begin_immediate` does
    for pragma in (
        "journal_mode=WAL", "synchronous=FULL", f"busy_timeout={_BUSY_TIMEOUT_MS}", "foreign_keys=ON",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin_immediate(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _bind(connection: Connection, genesis_hash: str, netuid: int) -> None:
    bound = connection.execute(select(chain_binding)).first()
    if bound is None:
        connection.execute(insert(chain_binding).values(id=1, genesis_hash=genesis_hash, netuid=netuid))
        append_event(connection, "store.bound", genesis_hash, {"genesis_hash": genesis_hash, "netuid": netuid})
    elif (bound.genesis_hash, bound.netuid) != (genesis_hash, netuid):
        raise ConfigurationError(
            "STORE_FOREIGN_CHAIN",
            f"the state folder belongs to chain {bound.genesis_hash[:10]} netuid {bound.netuid}, "
            f"the node is connected to chain {genesis_hash[:10]} netuid {netuid}",
            hint="use another `state_dir` for this chain, or correct `chain.endpoints` and `chain.netuid`",
        )


def _reason(error: Exception) -> str:
    return (str(getattr(error, "orig", None) or error).splitlines() or [""])[0]
