"""The few SCALE pieces the node reads and writes by hand.

Invariants
1. Byte strings stay bytes: the generic codec renders them as text when they happen to be UTF-8, which loses
   information, so call arguments and stored byte strings are cut from the raw encoding instead.
2. A reader never returns fewer bytes than asked for: it raises `ScaleError`.
"""

from __future__ import annotations

from hashlib import blake2b

from chain.scale import ScaleError, ScaleReader, compact

__all__ = (
    "Reader", "ScaleError", "blake2_256", "byte_vector", "compact", "from_hex", "to_hex", "u16", "u32", "u64",
)


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


class Reader(ScaleReader):
    """A reader with the forms that only the node needs."""

    __slots__ = ()

    def u16_vector(self) -> list[int]:
        """Return a `Vec<u16>`."""
        raw = self.take(2 * self.compact())
        return [int.from_bytes(raw[i : i + 2], "little") for i in range(0, len(raw), 2)]

    @property
    def rest(self) -> bytes:
        """The bytes not read yet; the cursor stays."""
        return self.data[self.position :]
