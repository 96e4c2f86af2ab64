"""Writes a folder that was not there, complete or not at all.

Invariants
1. Whatever already is at the place stays as it is, unless it is an empty folder, which is filled.
2. A new folder appears by one rename. An existing empty one keeps its identity (a shell may stand in it, a disk may be
   mounted on it), so its entries are moved in one by one, last the file that makes the rest usable.
3. What fails leaves nothing of it behind.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from config.errors import ConfigurationError


def write_new_folder(folder: Path, files: Mapping[str, bytes], *, last: str) -> Path:
    """Create `folder` (and its parents) with exactly `files` (relative path -> content); return its absolute path.

    `last` is the entry without which the others mean nothing. Raises `ConfigurationError` (INIT_FOLDER_TAKEN,
    INIT_FOLDER_UNWRITABLE).
    """
    target = Path(os.path.abspath(folder))
    if not _is_text(target):
        raise _unwritable(ascii(str(target)), "its name is not UTF-8 text")
    try:
        if os.path.lexists(target):
            _require_empty(target)
            _fill(target, files, last)
        else:
            _create(target, files)
    except OSError as error:
        raise _unwritable(str(target), error.strerror or str(error)) from error
    return target


def _unwritable(target: str, reason: str) -> ConfigurationError:
    return ConfigurationError(
        "INIT_FOLDER_UNWRITABLE", f"the folder {target} cannot be written: {reason}",
        hint="name a new folder in one that you can write to",
    )


def _is_text(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:  # how Python carries names that are no UTF-8
        return False
    return True


def _require_empty(target: Path) -> None:
    if not target.is_dir() or next(target.iterdir(), None) is not None:
        what = "is not empty" if target.is_dir() else "is not a folder"
        raise ConfigurationError(
            "INIT_FOLDER_TAKEN", f"{target} exists and {what}", hint="name a folder that does not exist yet"
        )


def _create(target: Path, files: Mapping[str, bytes]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with _staged(target.parent, files) as staged:
        os.rename(staged, target)  # refused by the system when something came to be there meanwhile


def _fill(target: Path, files: Mapping[str, bytes], last: str) -> None:
    moved: list[Path] = []
    with _staged(target, files) as staged:
        try:
            for name in sorted(os.listdir(staged), key=lambda name: (name == last, name)):
                os.rename(staged / name, target / name)
                moved.append(target / name)
        except BaseException:
            for path in moved:
                _remove(path)
            raise


@contextlib.contextmanager
def _staged(parent: Path, files: Mapping[str, bytes]) -> Iterator[Path]:
    """Write `files` into a folder of a random name in `parent`; whatever is left of it at the end is removed."""
    staged = parent / f".new-{secrets.token_hex(6)}"
    try:
        staged.mkdir()
        for path, content in files.items():
            (staged / path).parent.mkdir(parents=True, exist_ok=True)
            (staged / path).write_bytes(content)
        yield staged
    finally:
        _remove(staged)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
