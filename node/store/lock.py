"""One node per state folder.

Invariants
1. The lock is an advisory lock of the kernel on an open file, so it vanishes with the process that holds it, however
   that process ends; a stale file means nothing.
2. A second process is refused with the identity of the holder, after a moment of patience: a reader of the lock holds
   it for an instant, and a killed predecessor may still be dying.
3. The descriptor is closed on exec, so no child ever holds the lock in our place.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import msgspec

from config.errors import HostError

_RETRY_SECONDS = 0.05


class LockHolder(msgspec.Struct, frozen=True):
    """Who holds a state folder. `started_ms` is Unix milliseconds."""

    pid: int
    started_ms: int


class StateLock:
    """The held lock; `release` is idempotent."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    @classmethod
    def acquire(cls, path: Path, holder: LockHolder, *, patience_seconds: float = 1.0) -> StateLock:
        """Take the lock at `path` and write `holder` into it; blocks for `patience_seconds` while somebody has it.

        Raises `HostError`: STORE_LOCKED (naming the holder's pid), STATE_UNWRITABLE.
        """
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _unwritable(path, error) from error
        try:
            if not _taken_within(handle, patience_seconds):
                other = _read(path)
                raise HostError(
                    "STORE_LOCKED", f"another node (pid {other.pid if other else 'unknown'}) is using {path.parent}",
                    hint="stop it first, or give this node its own `state_dir`",
                )
            os.ftruncate(handle, 0)
            os.pwrite(handle, msgspec.json.encode(holder), 0)
        except OSError as error:
            os.close(handle)
            raise _unwritable(path, error) from error
        except HostError:
            os.close(handle)
            raise
        return cls(handle)

    def is_at(self, path: Path) -> bool:
        """Say whether the held lock is still the file at `path`. Raises `OSError` when the disk cannot tell."""
        return same_file(os.fstat(self._handle), path)

    def release(self) -> None:
        """Give the lock back."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def same_file(known: os.stat_result, path: Path) -> bool:
    """Say whether the file at `path` is the one that `known` tells of. Raises `OSError` when the disk cannot tell."""
    try:
        return os.path.samestat(known, path.stat())
    except (FileNotFoundError, NotADirectoryError):
        return False


def _taken_within(handle: int, patience_seconds: float) -> bool:
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_RETRY_SECONDS)


def _unwritable(path: Path, error: OSError) -> HostError:
    return HostError(
        "STATE_UNWRITABLE", f"the lock {path} cannot be written: {error.strerror or error}",
        hint="the state folder must belong to the node's user, on a disk with free space",
    )


def read_holder(path: Path) -> LockHolder | None:
    """Return who holds the lock at `path` right now, or None when nobody does."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(path)
    finally:
        os.close(handle)
    return None


def _read(path: Path) -> LockHolder | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=LockHolder)
    except (OSError, msgspec.DecodeError):
        return None
