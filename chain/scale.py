"""The few SCALE forms this room reads and writes itself.

The SDK turns `Vec<u8>` into text when the bytes happen to be UTF-8 and into `0x` hex otherwise, so the two byte strings
`30786162` and `ab` decode alike. Whatever needs the exact bytes is read here instead.

Invariants
1. A reader never runs past its data; trailing bytes are an error of the caller's `done()` check, not ignored.
2. Only `ScaleError` leaves this module.
"""

from __future__ import annotations


class ScaleError(ValueError):
    """Bytes that are not the SCALE form asked for; never leaves the chain room."""


class ScaleReader:
    """Sequential reader over SCALE bytes; `position` counts bytes from the start of `data`."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        end = self.position + count
        if end > len(self.data):
            raise ScaleError(f"{count} bytes wanted at {self.position}, {len(self.data) - self.position} left")
        part = self.data[self.position : end]
        self.position = end
        return part

    def unsigned(self, width: int) -> int:
        """Return the next little-endian unsigned integer of `width` bytes."""
        return int.from_bytes(self.take(width), "little")

    def compact(self) -> int:
        """Return the next compact integer; only its shortest form is accepted."""
        first = self.take(1)[0]
        mode = first & 3
        if mode == 3:
            width = (first >> 2) + 4
            value = self.unsigned(width)
            smallest = max(1 << 30, 1 << (8 * (width - 1)))
        else:
            value = int.from_bytes(bytes([first]) + self.take((1 << mode) - 1), "little") >> 2
            smallest = (0, 1 << 6, 1 << 14)[mode]
        if value < smallest:
            raise ScaleError("compact integer is not in its shortest form")
        return value

    def sized_bytes(self) -> bytes:
        """Return the next length-prefixed byte string."""
        return self.take(self.compact())

    def done(self) -> None:
        """Raise unless every byte was read."""
        if self.position != len(self.data):
            raise ScaleError(f"{len(self.data) - self.position} bytes follow the value")


def compact(value: int) -> bytes:
    """Return the shortest compact form of a non-negative integer."""
    if value < 0:
        raise ScaleError("a compact integer is not negative")
    if value < 1 << 6:
        return bytes([value << 2])
    if value < 1 << 14:
        return (value << 2 | 1).to_bytes(2, "little")
    if value < 1 << 30:
        return (value << 2 | 2).to_bytes(4, "little")
    raw = value.to_bytes((value.bit_length() + 7) // 8, "little")
    return bytes([(len(raw) - 4) << 2 | 3]) + raw


def strip_length_prefix(data: bytes) -> bytes:
    """Undo the framing of old clients, which seal `compact(length) || text` instead of the bare text.

    A JSON object begins with `{` (0x7b), which as a compact prefix would announce a 34-byte integer; the two framings
    can therefore not be confused. Data that is not exactly one length-prefixed string is returned unchanged.
    """
    try:
        reader = ScaleReader(data)
        inner = reader.sized_bytes()
        reader.done()
    except ScaleError:
        return data
    return inner
