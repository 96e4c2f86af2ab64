"""Hostile gzip bytes -> a bounded stream of tar blocks.

Invariants
1. The file is one gzip member with right checksums, alone but for a bounded padding of zeros.
2. Only produced bytes count. Announced sizes admit nothing; they can only end the work on a bomb early.
3. Work is linear in the bytes read and produced, and memory does not depend on either.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from config.errors import IntakeError
from config.limits import IntakeLimits
from intake.tar_header import BLOCK

_STEP = 256 * 1024  # bytes read or produced at once


def inflate(archive: bytes | memoryview, limits: IntakeLimits) -> Iterator[bytes]:
    """Yield the decompressed stream in bounded steps; refuses a second member, trailing bytes and bad checksums."""
    view = memoryview(archive)
    overhead = limits.headers * BLOCK + limits.members * BLOCK + limits.extension_total_bytes
    budget = limits.extracted_bytes + overhead + limits.padding_bytes
    inflater = zlib.decompressobj(wbits=31)
    feed: bytes | memoryview = b""
    position = total = 0
    try:
        while not inflater.eof:
            if not feed:
                # In slices: zlib copies what it does not consume, and the whole archive is too much to copy each time.
                feed = view[position : position + _STEP]
                position += len(feed)
            produced = inflater.decompress(feed, _STEP)
            feed = inflater.unconsumed_tail
            total += len(produced)
            _check_total(view, total, budget, limits)
            if produced:
                yield produced
            elif not feed and position >= len(view) and not inflater.eof:
                raise IntakeError("ARCHIVE_TRUNCATED", "the gzip stream ends early.", hint="Upload the archive again.")
    except zlib.error as error:
        raise IntakeError(
            "ARCHIVE_MALFORMED", f"the gzip stream is damaged: {error}.", hint="Upload the archive again."
        ) from error
    # bsdtar fills its last record with zeros after compression when it writes to a pipe; they mean nothing to anybody.
    rest = len(inflater.unused_data) + len(view) - position
    if rest > limits.padding_bytes or view[len(view) - rest :].tobytes().strip(b"\x00"):
        raise IntakeError(
            "ARCHIVE_TRAILING_DATA",
            "bytes follow the end of the gzip stream.",
            hint="The archive must be one gzip member and nothing else.",
        )


def _check_total(archive: memoryview, total: int, budget: int, limits: IntakeLimits) -> None:
    """Refuse a stream that is too long, or that has become long and cannot be as long as its trailer says.

    The trailer alone proves nothing, and at the end zlib compares it; reading it early only saves the work on bombs. A
    file of whole blocks may be padded, so that its last bytes are no trailer.
    """
    if total <= min(limits.eager_bytes, budget):
        return
    announced = int.from_bytes(archive[-4:], "little") if len(archive) % BLOCK else total
    if total > budget or announced > budget:
        raise IntakeError("BUNDLE_TOO_LARGE", "the archive unpacks to more bytes than a bundle may have.")
    if total > announced:
        raise IntakeError(
            "ARCHIVE_MALFORMED",
            "the gzip stream is damaged: it is longer than its trailer says.",
            hint="Upload the archive again.",
        )


class BlockReader:
    """A byte stream cut into tar blocks."""

    def __init__(self, chunks: Iterator[bytes], limits: IntakeLimits) -> None:
        self._chunks = chunks
        self._padding = limits.padding_bytes
        self._buffer = b""
        self._start = 0

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes. Raises `IntakeError` (ARCHIVE_TRUNCATED)."""
        end = self._start + size
        if end <= len(self._buffer):
            taken = self._buffer[self._start : end]
            self._start = end
            return taken
        parts = [self._buffer[self._start :]]
        missing = size - len(parts[0])
        while missing > 0:
            chunk = next(self._chunks, None)
            if chunk is None:
                raise IntakeError("ARCHIVE_TRUNCATED", "the tar archive ends early.", hint="Upload it again.")
            parts.append(chunk if len(chunk) <= missing else chunk[:missing])
            self._buffer, self._start = chunk, min(len(chunk), missing)
            missing -= len(chunk)
        return b"".join(parts)

    def skip(self, size: int) -> None:
        """Take the next `size` bytes without keeping them. Raises `IntakeError` (ARCHIVE_TRUNCATED)."""
        while size > 0:
            step = min(size, max(len(self._buffer) - self._start, BLOCK))
            self.take(step)
            size -= step

    def rest_is_padding(self) -> bool:
        """Consume what is left; say whether it is a bounded run of zeros."""
        rest = self._buffer[self._start :]
        self._buffer, self._start = b"", 0
        size = 0
        while True:
            size += len(rest)
            if size > self._padding or rest.count(0) != len(rest):
                return False
            chunk = next(self._chunks, None)
            if chunk is None:
                return True
            rest = chunk
