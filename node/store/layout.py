"""The state folder: the only place the node writes to.

Invariants
1. Everything lies under one folder, owned by the node's user and closed to others (0700).
2. `archives/` holds work in progress and is emptied at start of whatever no job needs; all other folders hold
   content-addressed or append-only files. What a killed process left of its own in them goes at start as well.
3. Making the layout is idempotent; a folder that cannot be written is one error, STATE_UNWRITABLE.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from config.errors import HostError


@dataclass(frozen=True)
class StateLayout:
    """Absolute paths inside the state folder."""

    root: Path

    @classmethod
    def at(cls, state_dir: str | Path) -> StateLayout:
        """Return the layout rooted at `state_dir` (`~` is expanded); nothing is created."""
        return cls(Path(state_dir).expanduser().absolute())

    @property
    def database(self) -> Path:
        """The SQLite database."""
        return self.root / "node.db"

    @property
    def lock(self) -> Path:
        """The lock that the running node holds."""
        return self.root / "node.lock"

    @property
    def archives(self) -> Path:
        """Fetched archives that are not screened yet."""
        return self.root / "archives"

    @property
    def bundles(self) -> Path:
        """Immutable published bundles."""
        return self.root / "bundles"

    @property
    def attempts(self) -> Path:
        """One folder per attempt."""
        return self.root / "attempts"

    @property
    def arenas(self) -> Path:
        """The arena documents that attempts were judged by, named by digest."""
        return self.root / "arenas"

    @property
    def targets(self) -> Path:
        """The target documents that verdicts were reached under, named by digest."""
        return self.root / "targets"

    @property
    def receipts(self) -> Path:
        """Signed receipts, named by digest."""
        return self.root / "receipts"

    @property
    def unlisted(self) -> Path:
        """Files from `receipts/` that no row of the database names; made only when there is one."""
        return self.root / "unlisted"

    @property
    def ledger(self) -> Path:
        """Signed crown ledgers, named by the digest of their bytes."""
        return self.root / "ledger"

    @property
    def keys(self) -> Path:
        """The receipt key."""
        return self.root / "keys"

    @property
    def receipt_key(self) -> Path:
        """The Ed25519 receipt key (0600)."""
        return self.keys / "receipt.key"

    @property
    def runtime_cache(self) -> Path:
        """Chain metadata cached by the SDK."""
        return self.root / "runtime-cache"

    def archive(self, submission_id: str) -> Path:
        """Where the archive of one submission waits for its screen."""
        return self.archives / f"{submission_id}.tar.gz"

    def create(self) -> None:
        """Create every folder. Raises `HostError` (STATE_UNWRITABLE)."""
        folders = (
            self.archives, self.arenas, self.bundles, self.attempts, self.receipts, self.ledger, self.keys,
            self.runtime_cache, self.targets,
        )
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in folders:
                folder.mkdir(mode=0o700, exist_ok=True)
            probe = self.root / f".write-test-{os.getpid()}"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise unwritable(self.root, error) from error

    def sweep(self) -> None:
        """Remove what was interrupted: half-written files, and the engine trees of attempts. Call it only while nobody
        writes or measures."""
        hidden = (self.arenas, self.targets, self.receipts, self.ledger, self.keys)
        patterns = ((self.root, ".write-test-*"), *((folder, ".*") for folder in hidden))
        for folder, pattern in patterns:
            for path in folder.glob(pattern):
                path.unlink(missing_ok=True)
        for tree in self.attempts.glob("trees-*"):
            _remove_tree(tree)
        for path in self.attempts.glob("*/*.part"):
            path.unlink(missing_ok=True)


def _remove_tree(folder: Path) -> None:
    """Remove a folder whose own folders may be closed to writing, as those of an engine tree are. What cannot be
    removed costs disk and nothing else: it stays."""
    with contextlib.suppress(OSError):
        for name, _, _ in os.walk(folder):
            os.chmod(name, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def unwritable(path: Path, error: OSError) -> HostError:
    """Return the error of a failed write in the state folder."""
    return HostError(
        "STATE_UNWRITABLE", f"{path} in the state folder cannot be written: {error.strerror or error}",
        hint="set `state_dir` to a folder that the node's user owns, on a disk with free space",
    )


def write_durably(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Write `data` to `path` so that a crash leaves nothing or all of it: write, sync, rename, sync the folder.

    Raises `HostError` (STATE_UNWRITABLE).
    """
    try:
        _write(path, data, mode)
    except OSError as error:
        raise unwritable(path, error) from error


def _write(path: Path, data: bytes, mode: int) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
