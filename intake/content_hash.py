"""The identity of a bundle: one SHA-256 over its files.

Invariants
1. The preimage is, for each file in path order (tuples of components, code points), the 4-byte big-endian length of
   the UTF-8 path, the path, the 8-byte big-endian length of the content, the content. Nothing else: no modes, no
   directories, no root name, no archive details.
2. A local tree is read without identity-excluded names (`intake.names`). A symbolic link or special file anywhere
   else is an error, never skipped: what is hashed is what is packaged.
3. A file that changes while it is read is an error.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from config.canonical import path_order, sorted_paths
from config.errors import IntakeError, NotFoundError, SourceLocation
from config.limits import INTAKE, IntakeLimits
from intake.names import check_path, is_excluded, is_excluded_component
from intake.refusal import clip, host_fault

_CHUNK = 1 << 20


class HashedFile(NamedTuple):
    """One file of a bundle: its bundle-relative path and its size in bytes."""

    path: str
    size: int


class ContentHash(NamedTuple):
    """The identity of a tree (`hex`, 64 lower-case characters) and the files it covers, in path order."""

    hex: str
    files: tuple[HashedFile, ...]


def record_header(path: str, size: int) -> bytes:
    """Return the bytes that precede one file's content in the preimage."""
    name = path.encode("utf-8")
    return len(name).to_bytes(4, "big") + name + size.to_bytes(8, "big")


def hash_files(files: Mapping[str, bytes | memoryview]) -> str:
    """Return the content hash of a file table (path -> content).

    Raises `IntakeError` (BUNDLE_EMPTY, NAME_INVALID, NAME_TOO_LONG).
    """
    if not files:
        raise _empty()
    digest = hashlib.sha256()
    for path in sorted_paths(files):
        check_path(path)
        content = files[path]
        digest.update(record_header(path, len(content)))
        digest.update(content)
    return digest.hexdigest()


def hash_tree(directory: Path) -> ContentHash:
    """Return the content hash of a local tree and the files it covers, without holding the tree in memory.

    Raises `IntakeError` (BUNDLE_EMPTY, TREE_LINK, TREE_SPECIAL_FILE, TREE_CHANGED, TREE_UNREADABLE, NAME_*) and
    `NotFoundError` (BUNDLE_NOT_FOUND).
    """
    digest = hashlib.sha256()
    covered: list[HashedFile] = []
    root = str(directory)
    for path in tree_paths(directory):
        with _open_file(root, path) as (descriptor, size):
            digest.update(record_header(path, size))
            left = size
            while left:
                chunk = os.read(descriptor, min(left, _CHUNK))
                if not chunk:
                    raise _changed(path)
                digest.update(chunk)
                left -= len(chunk)
            if os.read(descriptor, 1):
                raise _changed(path)
        covered.append(HashedFile(path, size))
    return ContentHash(digest.hexdigest(), tuple(covered))


def read_tree(directory: Path, *, limits: IntakeLimits = INTAKE, strict: bool = False) -> dict[str, bytes]:
    """Return the file table (path -> content, path order) of a local tree, within `limits`.

    `strict` refuses identity-excluded names (NAME_EXCLUDED) instead of leaving them out: a published tree must hold
    nothing that its hash does not cover. Raises as `hash_tree`, plus `IntakeError` (BUNDLE_TOO_LARGE).
    """
    files: dict[str, bytes] = {}
    total = 0
    root = str(directory)
    for path in tree_paths(directory, strict=strict):
        with _open_file(root, path) as (descriptor, size):
            total += size
            if size > limits.file_bytes or total > limits.extracted_bytes or len(files) >= limits.members:
                raise IntakeError(
                    "BUNDLE_TOO_LARGE",
                    f"the bundle exceeds {limits.members} files, {limits.file_bytes} bytes in one file or "
                    f"{limits.extracted_bytes} bytes in all.",
                    location=SourceLocation(path),
                )
            content = os.read(descriptor, size + 1)
        if len(content) != size:
            raise _changed(path)
        files[path] = content
    return files


def tree_paths(directory: Path, *, strict: bool = False) -> list[str]:
    """Return the bundle-relative paths of a local tree's files, in path order. Raises as `read_tree`."""
    if not directory.is_dir():
        raise NotFoundError(
            "BUNDLE_NOT_FOUND", f"{directory} is not a folder.", hint="Give the folder that holds manifest.toml."
        )
    paths = sorted(_walk(str(directory), strict), key=path_order)
    if not paths:
        raise _empty()
    return paths


def _walk(root: str, strict: bool) -> Iterator[str]:
    pending = [""]
    while pending:
        folder = pending.pop()
        try:
            entries = list(os.scandir(os.path.join(root, folder)))
        except OSError as error:
            raise _unreadable(folder, error) from error
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if is_excluded_component(entry.name):
                if strict:
                    raise IntakeError("NAME_EXCLUDED", f"{clip(path)} is not covered by the content hash.")
                continue
            check_path(path)
            if entry.is_symlink():
                raise IntakeError(
                    "TREE_LINK",
                    f"{clip(path)} is a symbolic link.",
                    hint="Replace the link by a copy of the file it points to.",
                    location=SourceLocation(path),
                )
            if entry.is_dir(follow_symlinks=False):
                pending.append(path)
            elif is_excluded(path):
                if strict:
                    raise IntakeError("NAME_EXCLUDED", f"{clip(path)} is not covered by the content hash.")
            elif entry.is_file(follow_symlinks=False):
                yield path
            else:
                raise _special(path)


@contextmanager
def _open_file(root: str, path: str) -> Iterator[tuple[int, int]]:
    """Open one regular file without following links; gives its descriptor and its size in bytes."""
    try:
        descriptor = os.open(f"{root}/{path}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _special(path)
        yield descriptor, status.st_size
    except OSError as error:
        raise _unreadable(path, error) from error
    finally:
        os.close(descriptor)


def _empty() -> IntakeError:
    return IntakeError(
        "BUNDLE_EMPTY", "the bundle holds no file.", hint="A bundle needs at least manifest.toml and one source file."
    )


def _special(path: str) -> IntakeError:
    return IntakeError(
        "TREE_SPECIAL_FILE",
        f"{clip(path)} is not a regular file or folder.",
        hint="Remove pipes, sockets and device files from the bundle.",
        location=SourceLocation(path),
    )


def _changed(path: str) -> IntakeError:
    return host_fault("TREE_CHANGED", f"{clip(path)} changed while it was read.", hint="Run the command again.")


def _unreadable(path: str, error: OSError) -> IntakeError:
    return host_fault(
        "TREE_UNREADABLE",
        f"{clip(path) if path else 'the bundle folder'} cannot be read: {error.strerror}.",
        hint="Check its permissions.",
    )
