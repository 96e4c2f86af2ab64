"""One node per state folder.

Invariants
1. The lock is an advisory lock of the kernel on an open file, so it vanishes with the process that holds it, however
   that process ends; a stale file means nothing.
2. A second process is refused with the identity of the holder.
3. The descriptor is closed on exec, so no child ever holds the lock in our place.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import msgspec

from config.errors import HostError


class LockHolder(msgspec.Struct, frozen=True):
    """Who holds a state folder. `started_ms` is Unix milliseconds."""

    pid: int
    started_ms: int


class StateLock:
    """The held lock; `release` is idempotent."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    @classmethod
    def acquire(cls, path: Path, holder: LockHolder) -> StateLock:
        """Take the lock at `path` and write `holder` into it.

        Raises `HostError`: STORE_LOCKED (naming the holder's pid), STATE_UNWRITABLE.
        """
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise HostError(
                "STATE_UNWRITABLE", f"the lock {path} cannot be opened: {error.strerror}",
                hint="the state folder must belong to the node's user",
            ) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(handle)
            other = _read(path)
            raise HostError(
                "STORE_LOCKED", f"another node (pid {other.pid if other else 'unknown'}) is using {path.parent}",
                hint="stop it first, or give this node its own `state_dir`",
            ) from error
        os.ftruncate(handle, 0)
        os.pwrite(handle, msgspec.json.encode(holder), 0)
        return cls(handle)

    def release(self) -> None:
        """Give the lock back."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


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
