"""Taking the files of a finished tool out of its /scratch, which is foreign from the first byte to the last.

Invariants
1. Everything is opened relative to a descriptor of that file system, without following links and without waiting:
   a link, a pipe, a device or a socket is left where it is.
2. Sizes and numbers are bounded by the file system itself; depth and path lengths are bounded here.
3. Copies are ordinary files of the node, readable by it and executable by nobody.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from config.errors import HostError
from qualify.sandbox.tool_stage import OUTPUT

MAXIMUM_DEPTH = 16
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def collect(scratch: int, output: Path) -> None:
    """Copy the regular files of `OUTPUT`, seen through the open /scratch, into the existing folder `output`.

    A file that its tool made unreadable is left out like a link. Raises `HostError` SANDBOX_OUTPUT_UNWRITABLE.
    """
    try:
        folder = os.open(os.path.basename(OUTPUT), _FOLDER, dir_fd=scratch)
    except OSError:
        return  # the tool has replaced it: nothing of it is taken
    try:
        for path, descriptor in _regular_files(folder, (), 0):
            with os.fdopen(descriptor, "rb") as source:
                _copy(source.fileno(), output.joinpath(*path))
    except OSError as error:
        raise HostError(
            "SANDBOX_OUTPUT_UNWRITABLE",
            f"the files of a finished tool cannot be stored in {output}: {error}",
            hint="Check that the folder exists, is writable by the node and has space.",
        ) from error
    finally:
        os.close(folder)


def _regular_files(folder: int, above: tuple[str, ...], depth: int) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield (path, open descriptor) of every regular file, in the order of their names."""
    for name in sorted(os.listdir(folder)):
        kind = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISREG(kind):
            descriptor = _opened(name, folder, _FILE)
            if descriptor >= 0:
                yield (*above, name), descriptor
        elif stat.S_ISDIR(kind) and depth < MAXIMUM_DEPTH:
            inner = _opened(name, folder, _FOLDER)
            if inner >= 0:
                try:
                    yield from _regular_files(inner, (*above, name), depth + 1)
                finally:
                    os.close(inner)


def _opened(name: str, folder: int, flags: int) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except PermissionError:
        return -1


def _copy(source: int, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(source, "rb", closefd=False) as content, target.open("wb") as copy:
        shutil.copyfileobj(content, copy)
