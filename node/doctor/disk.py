"""The state folder and the disk below it.

Invariants
1. Writing is tried, not guessed: make, write, sync, rename, remove. Nothing of it stays.
2. A folder that does not exist yet is tried in the nearest one above it that does.
3. The database is opened read-only, and works while a node uses it.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import sqlite3
import stat
import tempfile
import time
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from config.errors import HostError
from config.settings import Settings
from node.doctor.check import Finding, Subject, passed, settings_of, skipped, warned
from node.doctor.configuration import require_state_dir
from node.services.receipts import ReceiptBook
from node.store.engine import reader_engine
from node.store.layout import StateLayout, sync_folder
from node.store.lock import read_holder
from node.store.migrate import require_known
from node.store.queries import ChainView, chain_view

SPACE_REFUSED = 128 << 20  # two of the largest archives
SPACE_FLOOR = 5 << 30
SYNC_LIMIT_MS = 200
_PROBE_BYTES = 64 << 10
_GIB = 1 << 30
_VOLATILE = ("tmpfs", "ramfs")
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse", "ceph", "glusterfs", "virtiofs", "afs")


def layout_of(settings: Settings) -> StateLayout:
    """Return the layout of the state folder. Raises `ConfigurationError` and `HostError` (STATE_UNWRITABLE)."""
    folder = require_state_dir(settings)
    try:
        return StateLayout.at(folder)
    except RuntimeError as error:  # `~` of a user that nobody knows
        raise _unwritable(Path(folder), str(error)) from error


def require_writable(layout: StateLayout) -> int:
    """Try the state folder and return the milliseconds of one durable write.

    Raises `HostError`: STATE_UNWRITABLE, DISK_FULL.
    """
    place = _nearest(layout.root)
    try:
        milliseconds = _try_at(layout, place)
        free = shutil.disk_usage(place).free
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _full(place, 0) from error
        raise _unwritable(layout.root, error.strerror or str(error)) from error
    if free < SPACE_REFUSED:
        raise _full(place, free)
    return milliseconds


def require_store(layout: StateLayout) -> ChainView | None:
    """Read the database's schema and chain; None when there is no database yet.

    Raises `HostError`: STORE_TOO_NEW, STORE_UNUSABLE.
    """
    if not layout.database.is_file() or not layout.database.stat().st_size:
        return None
    engine = reader_engine(layout)
    try:
        with engine.connect() as connection:
            return chain_view(connection) if require_known(connection) else None
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise HostError(
            "STORE_UNUSABLE", f"the database {layout.database} cannot be read: {getattr(error, 'orig', error)}",
            hint="check the disk and the folder's permissions, or restore the folder from a backup",
        ) from error
    finally:
        engine.dispose()


def judge_space(free: int, total: int, free_files: int) -> Finding:
    """Judge the room of the state folder's disk, in bytes and in file entries (-1 = not counted)."""
    name, seen = "disk.space", f"{free / _GIB:.1f} of {total / _GIB:.1f} GiB free"
    if free < SPACE_FLOOR:
        return warned(name, seen, f"keep {SPACE_FLOOR // _GIB} GiB free: bundles and evidence are kept")
    if 0 <= free_files < 10_000:
        return warned(name, f"{seen}, but room for {free_files} more files only", "use a file system with more inodes")
    return passed(name, seen)


def judge_file_system(kind: str, *, devnet: bool) -> Finding:
    """Judge the file system of the state folder by its name."""
    name = "disk.filesystem"
    if kind.partition(".")[0] in _REMOTE:
        return warned(name, f"{kind}: locks and shared memory of the database may not work on it", "use a local disk")
    if kind in _VOLATILE and not devnet:
        return warned(name, f"{kind}: everything is lost when the machine stops", "use a disk")
    return passed(name, kind or "unknown")


def judge_sync_time(milliseconds: int) -> Finding:
    """Judge how long one durable write takes; every step of a job is one."""
    seen = f"a durable write takes {milliseconds} ms"
    if milliseconds > SYNC_LIMIT_MS:
        return warned("disk.sync", seen, "use a faster disk for `state_dir`, or find what keeps it busy")
    return passed("disk.sync", seen)


def judge_owner(mode: int, owner: int, uid: int) -> Finding:
    """Judge who the state folder belongs to and who else may look into it."""
    name = "disk.owner"
    if owner != uid:
        return warned(
            name, f"the state folder belongs to uid {owner}, this is uid {uid}", "look as the user that runs the node"
        )
    if mode & 0o077:
        return warned(name, f"mode {mode:04o}: other users can look into it", "chmod 700 the state folder")
    return passed(name, f"uid {owner}, mode {mode:04o}")


def look_state(subject: Subject) -> tuple[Finding, ...]:
    """The state folder can be written, durably, and there is room."""
    layout = layout_of(settings_of(subject))
    milliseconds = require_writable(layout)
    holder = read_holder(layout.lock)
    use = f", in use by the node with pid {holder.pid}" if holder is not None else ""
    there = "" if _nearest(layout.root) == layout.root else ", to be made at the first start"
    return passed("disk.state", f"{layout.root} can be written{there}{use}"), judge_sync_time(milliseconds)


def look_disk(subject: Subject) -> tuple[Finding, ...]:
    """Room, file system and owner."""
    settings = settings_of(subject)
    root = layout_of(settings).root
    place, owner = _nearest(root), None
    if place == root:
        found = place.stat()
        owner = judge_owner(stat.S_IMODE(found.st_mode), found.st_uid, os.geteuid())
    room = os.statvfs(place)
    free, total = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
    files = room.f_favail if room.f_files else -1
    mounts = Path("/proc/self/mountinfo").read_text("utf-8", "replace")
    kind = judge_file_system(file_system_of(place, mounts), devnet=settings.is_devnet)
    return (judge_space(free, total, files), kind, *((owner,) if owner is not None else ()))


def look_store(subject: Subject) -> tuple[Finding, ...]:
    """The database and the receipt key of an earlier run can be used."""
    layout = layout_of(settings_of(subject))
    view = require_store(layout)
    if view is None:
        return (skipped("disk.store", "no node has run in this folder yet"),)
    key = layout.receipt_key
    if key.exists() and key.with_suffix(".pub").exists():  # otherwise opening would write
        ReceiptBook.open(layout)
    return (passed("disk.store", f"subnet {view.netuid} of chain {view.genesis_hash[:10]}, {layout.database}"),)


def look_temporary(_: Subject) -> tuple[Finding, ...]:
    """There is a folder for temporary files."""
    try:
        with tempfile.TemporaryFile() as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
    except OSError as error:
        reason = error.strerror or str(error)
        return (warned("disk.temporary", f"no temporary file can be written: {reason}", "free /tmp, or set TMPDIR"),)
    return (passed("disk.temporary", f"{tempfile.gettempdir()} can be written"),)


def file_system_of(place: Path, mounts: str) -> str:
    """Return the type of the file system that holds `place`, from the text of /proc/self/mountinfo."""
    best, kind = -1, ""
    path = os.path.realpath(place)
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 7 or "-" not in fields:
            continue
        point = fields[4].replace("\\040", " ")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:  # a later mount on the same point covers the earlier
            best, kind = len(point), fields[fields.index("-") + 1]
    return kind


def _nearest(path: Path) -> Path:
    """Return the folder itself or the nearest one above it that exists, as far as this user can see."""
    while path != path.parent:
        try:
            path.stat()
            return path
        except OSError:
            path = path.parent
    return path


def _try_at(layout: StateLayout, place: Path) -> int:
    """Write in the state folder, or in a new folder at `place` while there is none; return the milliseconds."""
    if place == layout.root:
        _require_folders(layout)
        return _write(place)
    folder = Path(tempfile.mkdtemp(prefix=".cacheon-write-test-", dir=place))
    try:
        return _write(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _require_folders(layout: StateLayout) -> None:
    folders = (layout.archives, layout.arenas, layout.bundles, layout.attempts, layout.receipts, layout.keys,
               layout.runtime_cache)
    for folder in folders:
        if folder.exists() and not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
            raise _unwritable(folder, "permission denied, or no folder")
    for file in (layout.database, layout.lock):
        if file.exists() and not os.access(file, os.W_OK):
            raise _unwritable(file, "permission denied")


def _write(folder: Path) -> int:
    """Write a file durably in `folder`, remove it and return the milliseconds of the write. Raises `OSError`."""
    path = folder / f".write-test-{os.getpid()}-{secrets.token_hex(4)}"  # the name that a starting node sweeps away
    moved = path.with_name(path.name + ".moved")
    try:
        begun = time.monotonic()
        with open(path, "xb") as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
        path.rename(moved)
        sync_folder(folder)
        return int((time.monotonic() - begun) * 1000)
    finally:
        path.unlink(missing_ok=True)
        moved.unlink(missing_ok=True)


def _full(place: Path, free: int) -> HostError:
    return HostError(
        "DISK_FULL", f"only {free >> 20} MiB are free below {place}, {SPACE_REFUSED >> 20} MiB are needed",
        hint="make room, or set `state_dir` to a folder on another disk",
    )


def _unwritable(path: Path, reason: str) -> HostError:
    return HostError(
        "STATE_UNWRITABLE", f"the state folder cannot be written, at {path}: {reason}",
        hint="set `state_dir` to a folder that the node's user owns, on a disk with free space",
    )
