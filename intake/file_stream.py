"""The canonical file stream: how a file table crosses from the sandboxed child to its trusted parent.

Invariants
1. The stream is exactly the preimage of the content hash, so its SHA-256 *is* the content hash and the parent proves
   every byte of it with one call and no archive parser.
2. The reader accepts one spelling only: legal names in strictly increasing path order, no duplicate or colliding
   name, no excluded name, no byte after the last record, sizes within `config.limits`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from config.canonical import path_order, sorted_paths
from config.errors import Blame, IntakeError
from config.limits import INTAKE, IntakeLimits
from intake.content_hash import record_header
from intake.names import check_no_collisions, check_not_excluded, check_path


def encode_stream(files: Mapping[str, bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """Yield the parts of the stream of a file table, without copying contents."""
    for path in sorted_paths(files):
        content = files[path]
        yield record_header(path, len(content))
        yield content


def read_stream(data: bytes | memoryview, *, limits: IntakeLimits = INTAKE) -> dict[str, memoryview]:
    """Return the file table of a stream, in path order; contents are views into `data`.

    Raises `IntakeError` (FILE_STREAM_MALFORMED).
    """
    view = memoryview(data)
    files: dict[str, memoryview] = {}
    last: tuple[str, ...] = ()
    offset = total = 0
    while offset < len(view):
        name_size, offset = _integer(view, offset, 4)
        if name_size > limits.path_bytes:
            raise _malformed("a path is too long")
        name, offset = _take(view, offset, name_size)
        size, offset = _integer(view, offset, 8)
        content, offset = _take(view, offset, size)
        path = _path(name, limits)
        if path_order(path) <= last:
            raise _malformed("paths are not in strictly increasing order")
        total += size
        if size > limits.file_bytes or total > limits.extracted_bytes or len(files) >= limits.members:
            raise _malformed("a limit on files or bytes is exceeded")
        last = path_order(path)
        files[path] = content
    if not files:
        raise _malformed("it holds no file")
    try:
        check_no_collisions(files)
    except IntakeError as error:
        raise _malformed("two names collide") from error
    return files


def _path(name: memoryview, limits: IntakeLimits) -> str:
    try:
        path = str(name, "utf-8")
        check_path(path, limits)
        check_not_excluded(path)
    except (UnicodeDecodeError, IntakeError) as error:
        raise _malformed("a path is not legal") from error
    return path


def _integer(view: memoryview, offset: int, width: int) -> tuple[int, int]:
    field, end = _take(view, offset, width)
    return int.from_bytes(field, "big"), end


def _take(view: memoryview, offset: int, size: int) -> tuple[memoryview, int]:
    end = offset + size
    if end > len(view):
        raise _malformed("it ends inside a record")
    return view[offset:end], end


def _malformed(complaint: str) -> IntakeError:
    return IntakeError(
        "FILE_STREAM_MALFORMED", f"the file stream of a screened bundle is malformed: {complaint}.",
        blame=Blame.INTERNAL,
    )
