"""The few SCALE pieces the node reads and writes by hand.

Invariants
1. Byte strings stay bytes: the generic codec renders them as text when they happen to be UTF-8, which loses
   information, so call arguments and stored byte strings are cut from the raw encoding instead.
2. A reader never returns fewer bytes than asked for: it raises `ScaleError`.
"""

from __future__ import annotations

from hashlib import blake2b


class ScaleError(ValueError):
    """Bytes that end too early or hold a value out of range."""


def blake2_256(data: bytes) -> bytes:
    """Return the 32-byte BLAKE2b hash of `data`."""
    return blake2b(data, digest_size=32).digest()


def to_hex(data: bytes) -> str:
    """Return `0x` and the lower-case hexadecimal form of `data`."""
    return "0x" + data.hex()


def from_hex(text: object) -> bytes:
    """Return the bytes of a hexadecimal text with or without `0x`; raises `ScaleError` for anything else."""
    if not isinstance(text, str):
        raise ScaleError("expected hexadecimal text")
    try:
        return bytes.fromhex(text.removeprefix("0x"))
    except ValueError as error:
        raise ScaleError(f"not hexadecimal: {text[:40]!r}") from error


def compact(value: int) -> bytes:
    """Return the compact encoding of a non-negative integer."""
    if value < 1 << 6:
        return bytes([value << 2])
    if value < 1 << 14:
        return (value << 2 | 1).to_bytes(2, "little")
    if value < 1 << 30:
        return (value << 2 | 2).to_bytes(4, "little")
    raw = value.to_bytes((value.bit_length() + 7) // 8, "little")
    return bytes([(len(raw) - 4) << 2 | 3]) + raw


def byte_vector(data: bytes) -> bytes:
    """Return the encoding of a `Vec<u8>`."""
    return compact(len(data)) + data


def u16(value: int) -> bytes:
    """Return two little-endian bytes."""
    return value.to_bytes(2, "little")


def u32(value: int) -> bytes:
    """Return four little-endian bytes."""
    return value.to_bytes(4, "little")


def u64(value: int) -> bytes:
    """Return eight little-endian bytes."""
    return value.to_bytes(8, "little")


class Reader:
    """A cursor over SCALE bytes; `position` counts bytes from the start of `data`."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        end = self.position + count
        if end > len(self.data):
            raise ScaleError(f"{count} bytes wanted at {self.position}, {len(self.data) - self.position} left")
        piece = self.data[self.position : end]
        self.position = end
        return piece

    def unsigned(self, width: int) -> int:
        """Return a little-endian unsigned integer of `width` bytes."""
        return int.from_bytes(self.take(width), "little")

    def compact(self) -> int:
        """Return a compact-encoded integer."""
        first = self.unsigned(1)
        mode = first & 3
        if mode == 3:
            return self.unsigned((first >> 2) + 4)
        extra = (0, 1, 3)[mode]
        return (first | self.unsigned(extra) << 8) >> 2

    def byte_vector(self) -> bytes:
        """Return a `Vec<u8>`."""
        return self.take(self.compact())

    def u16_vector(self) -> list[int]:
        """Return a `Vec<u16>`."""
        raw = self.take(2 * self.compact())
        return [int.from_bytes(raw[i : i + 2], "little") for i in range(0, len(raw), 2)]

    @property
    def rest(self) -> bytes:
        """The bytes not read yet; the cursor stays."""
        return self.data[self.position :]

    def finish(self) -> None:
        """Raise `ScaleError` unless everything was read."""
        if self.position != len(self.data):
            raise ScaleError(f"{len(self.data) - self.position} bytes left over")
