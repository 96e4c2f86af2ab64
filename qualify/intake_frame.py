"""The one answer a screening child gives to its trusted parent.

Layout, integers big-endian: u32 length and seen hash (ASCII, empty when unknown), u32 length and canonical report,
u64 length and canonical file stream (empty for a refused bundle); nothing before, between or after.

Invariants
1. The child's answer is hostile: every length is checked against what is really there, and the hashes are recomputed.
2. What `read_answer` returns is proved: the report's file table is the file table of the stream, byte for byte, and the
   stream hashes to the content hash that was asked for.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from config.canonical import is_digest, sha256_hex
from config.errors import IntakeError, InternalError
from config.limits import INTAKE, IntakeLimits
from intake.file_stream import read_stream
from intake.report import FileEntry, IntakeReport, decode_report

REPORT_BYTES = 8 << 20
_DIGEST_CHARACTERS = 64
_SHORT = struct.Struct(">I")
_LONG = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Answer:
    """A proved answer: `stream` is empty exactly when `report.error` is set; `seen_hash` is the child's word only."""

    report: IntakeReport
    stream: memoryview
    seen_hash: str


def frame_bytes(limits: IntakeLimits = INTAKE) -> int:
    """Return the size in bytes that no honest answer exceeds."""
    records = limits.members * (limits.path_bytes + _SHORT.size + _LONG.size)
    return _DIGEST_CHARACTERS + REPORT_BYTES + records + limits.extracted_bytes + 2 * _SHORT.size + _LONG.size


def answer_parts(
    report: bytes, seen_hash: str, stream: Iterable[bytes | memoryview], stream_bytes: int
) -> Iterable[bytes | memoryview]:
    """Yield the parts of a frame without joining them."""
    seen = seen_hash.encode("ascii")
    yield _SHORT.pack(len(seen))
    yield seen
    yield _SHORT.pack(len(report))
    yield report
    yield _LONG.pack(stream_bytes)
    yield from stream


def read_answer(frame: memoryview, expected_hash: str, *, limits: IntakeLimits = INTAKE) -> Answer:
    """Parse and prove an answer for the bundle committed under `expected_hash`.

    Raises `InternalError` (INTAKE_ANSWER_MALFORMED) for anything that an honest child would not have written.
    """
    seen, offset = _take(frame, 0, _SHORT, _DIGEST_CHARACTERS)
    report_bytes, offset = _take(frame, offset, _SHORT, REPORT_BYTES)
    stream, offset = _take(frame, offset, _LONG, len(frame))
    if offset != len(frame):
        raise _malformed("bytes follow its end")
    seen_hash = str(seen, "latin-1")
    if seen_hash and not is_digest(seen_hash):
        raise _malformed("the seen hash is no hash")
    try:
        report = decode_report(bytes(report_bytes))
        if report.content_hash != expected_hash:
            raise _malformed("it speaks about another bundle")
        if report.accepted:
            _prove(report, stream, expected_hash, limits)
        elif len(stream):
            raise _malformed("a refused bundle comes with files")
    except IntakeError as error:
        raise _malformed(error.message) from error
    return Answer(report, stream, seen_hash)


def _prove(report: IntakeReport, stream: memoryview, expected_hash: str, limits: IntakeLimits) -> None:
    if sha256_hex(stream) != expected_hash:
        raise _malformed("its files do not hash to the content hash")
    files = read_stream(stream, limits=limits)
    table = tuple(FileEntry(path, len(content), sha256_hex(content)) for path, content in files.items())
    if report.files != table:
        raise _malformed("its file table is not that of its files")
    unknown = {variant.source for variant in report.variants} | set(report.closure)
    if unknown - set(files):
        raise _malformed("it names a source file that is not there")


def _take(frame: memoryview, offset: int, length: struct.Struct, limit: int) -> tuple[memoryview, int]:
    start = offset + length.size
    if start > len(frame):
        raise _malformed("it ends early")
    (size,) = length.unpack(frame[offset:start])
    if size > limit or start + size > len(frame):
        raise _malformed("a length is out of bounds")
    return frame[start : start + size], start + size


def _malformed(complaint: str) -> InternalError:
    return InternalError("INTAKE_ANSWER_MALFORMED", f"the answer of a screening child is malformed: {complaint}.")
