"""The bounded memory of what a child wrote."""

from __future__ import annotations

from qualify.sandbox.outcome import LOG_TAIL_BYTES


class LogTail:
    """Keeps the last `LOG_TAIL_BYTES` of a stream and counts all of it; memory stays below twice the tail."""

    def __init__(self) -> None:
        self.total_bytes = 0
        self._kept = bytearray()

    def add(self, chunk: bytes) -> None:
        """Append what was read."""
        self.total_bytes += len(chunk)
        self._kept += chunk
        if len(self._kept) >= 2 * LOG_TAIL_BYTES:
            del self._kept[:-LOG_TAIL_BYTES]

    def tail(self) -> bytes:
        """Return the last bytes."""
        return bytes(self._kept[-LOG_TAIL_BYTES:])
