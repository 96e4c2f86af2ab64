"""The store: one writer, durable transactions, one node per folder, one chain per store."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, insert, select, text

from config.errors import ConfigurationError, HostError, InternalError
from node.jobs import JobState
from node.store.engine import Store
from node.store.events import append_event
from node.store.evidence_rows import BundleRow, find_bundle
from node.store.job_rows import load_job
from node.store.layout import StateLayout, write_durably
from node.store.lock import LockHolder, StateLock, read_holder
from node.store.migrate import upgrade
from node.store.schema import events, metadata
from node.store.submission_rows import FREE
from tests.node.support import GENESIS


async def test_migrations_make_the_schema(store: Store) -> None:
    """A store made from nothing by the migrations has exactly the tables that the code declares."""

    def differences(connection: Connection) -> list[object]:
        return list(compare_metadata(MigrationContext.configure(connection), metadata))

    assert await store.read(differences) == []


async def test_older_schema_is_upgraded(tmp_path: Path) -> None:
    """A database of the first release is brought to the present schema and keeps its rows."""
    layout = StateLayout.at(tmp_path)
    layout.create()

    def first_release(connection: Connection) -> None:
        upgrade(connection, "0001")
        connection.exec_driver_sql("INSERT INTO bundles (content_hash, bundle_id) VALUES ('h', 'old')")

    lock = StateLock.acquire(layout.lock, LockHolder(pid=1, started_ms=0))
    old = Store(layout, lock)
    await old.write(first_release)
    await old.close()
    store = await Store.open(layout)
    assert await store.read(find_bundle, "h") == BundleRow("h", "old", "", "", "")
    await store.close()


async def test_jobs_from_before_the_evaluation_cost_were_free(tmp_path: Path) -> None:
    """A store of the release before this one keeps its jobs, and none of them is asked for a payment."""
    layout = StateLayout.at(tmp_path)
    layout.create()

    def release_before(connection: Connection) -> None:
        upgrade(connection, "0003")
        connection.exec_driver_sql("INSERT INTO submissions (submission_id, hotkey) VALUES ('s', 'miner')")
        connection.exec_driver_sql("INSERT INTO jobs (submission_id, state, token) VALUES ('s', 'reserved', 3)")

    lock = StateLock.acquire(layout.lock, LockHolder(pid=1, started_ms=0))
    old = Store(layout, lock)
    await old.write(release_before)
    await old.close()
    store = await Store.open(layout)
    job = await store.read(load_job, "s")
    assert (job.state, job.token, job.admission) == (JobState.RESERVED, 3, FREE)
    await store.close()


async def test_reopening_keeps_everything(tmp_path: Path) -> None:
    """What was committed is there when the store is opened again, and the migrations have nothing left to do."""
    layout = StateLayout.at(tmp_path)
    first = await Store.open(layout)
    await first.write(append_event, "test", "a")
    await first.close()
    second = await Store.open(layout)
    assert await second.read(lambda connection: connection.scalar(select(events.c.kind))) == "test"
    await second.close()


async def test_newer_schema_is_refused(tmp_path: Path) -> None:
    """A database written by a newer release is refused instead of being misread."""
    layout = StateLayout.at(tmp_path)
    store = await Store.open(layout)
    await store.write(lambda connection: connection.execute(text("UPDATE alembic_version SET version_num = '9999'")))
    await store.close()
    with pytest.raises(HostError) as caught:
        await Store.open(layout)
    assert caught.value.code == "STORE_TOO_NEW"


async def test_error_rolls_back(store: Store) -> None:
    """A transaction that raises leaves nothing behind."""

    def half(connection: Connection) -> None:
        append_event(connection, "half", "")
        raise ConfigurationError("STOP", "stop")

    before = await store.read(_count)
    with pytest.raises(ConfigurationError):
        await store.write(half)
    assert await store.read(_count) == before


@pytest.mark.parametrize(
    "values",
    [{}, {"kind": "\ud800"}, {"kind": b"\0" * 8, "at_ms": 2**63}, {"subject": object()}],
    ids=["missing", "surrogate", "too large", "no value"],
)
async def test_values_that_cannot_be_stored_are_our_error(store: Store, values: dict[str, object]) -> None:
    """A value that the database does not take is a defect of ours, never a failing disk; the store goes on."""
    row = {"sequence": 99, "digest": "d", "at_ms": 1, **values} if values else {"sequence": 99}
    before = await store.read(_count)
    with pytest.raises(InternalError) as caught:
        await store.write(lambda connection: connection.execute(insert(events).values(**row)))
    assert caught.value.code == "VALUE_NOT_STORABLE"
    assert await store.read(_count) == before


async def test_database_errors_stay_inside_and_heal(store: Store) -> None:
    """A failing database is reported as such, and the same store works again as soon as the database does."""
    other = sqlite3.connect(store.layout.database, isolation_level=None)
    await store.write(lambda connection: connection.exec_driver_sql("PRAGMA busy_timeout=10"))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(HostError) as caught:
        await store.write(append_event, "test", "")
    assert caught.value.code == "STORE_UNUSABLE"
    other.rollback()
    other.close()
    await store.write(append_event, "test", "")


@pytest.mark.parametrize("victim", ["node.db", "node.lock", "."])
async def test_replaced_folder_is_never_worked_in(store: Store, victim: str) -> None:
    """A node whose folder, lock or database is moved away writes neither into the old files nor into new ones."""
    moved, root = store.layout.root / victim, store.layout.root
    moved.rename(root.parent / "elsewhere")
    if victim == ".":
        other = await Store.open(store.layout)
        await other.close()
    with pytest.raises(HostError) as caught:
        await store.write(append_event, "test", "")
    assert caught.value.code == "STATE_REPLACED"


async def test_lock_waits_for_a_reader(tmp_path: Path) -> None:
    """Somebody who looks at the lock in the moment of the start does not keep the node from starting."""
    layout = StateLayout.at(tmp_path)
    layout.create()
    reader = os.open(layout.lock, os.O_RDONLY | os.O_CREAT, 0o600)
    fcntl.flock(reader, fcntl.LOCK_SH)
    threading.Timer(0.1, os.close, [reader]).start()
    lock = StateLock.acquire(layout.lock, LockHolder(pid=1, started_ms=0))
    assert read_holder(layout.lock) == LockHolder(pid=1, started_ms=0)
    lock.release()


def test_sweep_removes_interrupted_writes_only(tmp_path: Path) -> None:
    """What an interrupted write or a killed attempt left is removed at the next start, and nothing else."""
    layout = StateLayout.at(tmp_path)
    layout.create()
    attempt, tree = layout.attempts / "trees", layout.attempts / "trees-k1x2" / "sealed"
    attempt.mkdir()
    tree.mkdir(parents=True)
    kept = [layout.receipts / "a.json", layout.keys / "receipt.key", attempt / "a.json.gz"]
    for path in (attempt / "tmp1.part", tree / "module.py"):
        path.write_text("")
    tree.chmod(0o555)  # as a built engine tree is
    for path in (*kept, layout.receipts / ".a.json.1234", layout.keys / ".receipt.key.12", tmp_path / ".write-test-7"):
        path.write_text("")
    layout.sweep()
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == sorted(kept)
    assert not tree.parent.exists()


def test_full_disk_is_the_hosts_error(tmp_path: Path) -> None:
    """A file that cannot be written is one error of the state folder and leaves nothing behind."""
    with pytest.raises(HostError) as caught:
        write_durably(tmp_path / "missing" / "file", b"x")
    assert caught.value.code == "STATE_UNWRITABLE"


async def test_damaged_database_is_one_error(tmp_path: Path) -> None:
    """A file that is no database is reported as such and not touched; the lock is given back."""
    layout = StateLayout.at(tmp_path)
    layout.database.write_bytes(b"no database " * 1000)
    with pytest.raises(HostError) as caught:
        await Store.open(layout)
    assert caught.value.code == "STORE_UNUSABLE"
    assert layout.database.read_bytes().startswith(b"no database")
    assert read_holder(layout.lock) is None


async def test_second_process_is_refused(store: Store) -> None:
    """Another process on the same folder is refused with the pid of the holder."""
    script = (
        "import asyncio, sys\n"
        "from node.store.engine import Store\nfrom node.store.layout import StateLayout\n"
        "asyncio.run(Store.open(StateLayout.at(sys.argv[1])))\n"
    )
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", script, str(store.layout.root)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    assert "STORE_LOCKED" in done.stderr
    assert f"pid {os.getpid()}" in done.stderr


async def test_lock_goes_with_the_store(tmp_path: Path) -> None:
    """The holder is visible while the store is open and nobody is named afterwards."""
    layout = StateLayout.at(tmp_path)
    store = await Store.open(layout)
    holder = read_holder(layout.lock)
    assert holder is not None
    assert holder.pid == os.getpid()
    await store.close()
    assert read_holder(layout.lock) is None


async def test_foreign_chain_is_refused(store: Store) -> None:
    """A store that belongs to one chain and subnet refuses every other."""
    await store.bind(GENESIS, 2)
    for genesis, netuid in ((GENESIS, 3), ("0x" + "22" * 32, 2)):
        with pytest.raises(ConfigurationError) as caught:
            await store.bind(genesis, netuid)
        assert caught.value.code == "STORE_FOREIGN_CHAIN"


@pytest.mark.parametrize("obstacle", ["file", "below a file"])
async def test_unwritable_folder_is_one_error(tmp_path: Path, obstacle: str) -> None:
    """A state folder that cannot be made or written is one error that names it."""
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    with pytest.raises(HostError) as caught:
        await Store.open(StateLayout.at(blocked if obstacle == "file" else blocked / "state"))
    assert caught.value.code == "STATE_UNWRITABLE"
    assert "blocked" in caught.value.message


async def test_writes_are_durable(store: Store) -> None:
    """The writer syncs every commit, in WAL mode, with foreign keys on."""

    def pragmas(connection: Connection) -> list[object]:
        return [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        ]

    assert await store.read(pragmas) == ["wal", 2, 1]


def _count(connection: Connection) -> int:
    return len(connection.execute(select(events)).all())
