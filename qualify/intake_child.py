"""The screening child: hostile archive bytes in, one framed answer out. Runs inside the sandbox only.

Invariants
1. Descriptor 3 holds the archive, descriptor 4 takes the answer; nothing else is read or written.
2. A refusal is an answer; only limits, crashes and faults of ours end the child without one.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable

import msgspec

from config.errors import IntakeError
from intake.file_stream import encode_stream
from intake.report import encode_report, refusal_report
from intake.screen import screen_archive
from qualify.intake_frame import answer_parts


class ScreenRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the parent asks: the committed content hash, and whether the legacy ABI is admitted."""

    expected_hash: str
    allow_legacy_abi: bool


def main(descriptors: tuple[int, ...], argument: bytes) -> None:
    """Screen the archive in the first descriptor and write the answer to the second."""
    archive, answer = descriptors
    request = msgspec.json.decode(argument, type=ScreenRequest)
    view = memoryview(mmap.mmap(archive, 0, access=mmap.ACCESS_READ))
    for part in _screen(view, request):
        _write(answer, part)


def _screen(data: memoryview, request: ScreenRequest) -> Iterable[bytes | memoryview]:
    try:
        screened = screen_archive(data, request.expected_hash, allow_legacy_abi=request.allow_legacy_abi)
    except IntakeError as error:
        report = refusal_report(error, content_hash=request.expected_hash)
        return answer_parts(encode_report(report), getattr(error, "seen_hash", ""), (), 0)
    stream = list(encode_stream(screened.files))
    size = sum(map(len, stream))
    return answer_parts(encode_report(screened.report), request.expected_hash, stream, size)


def _write(descriptor: int, part: bytes | memoryview) -> None:
    view = memoryview(part)
    while view:
        view = view[os.write(descriptor, view) :]
