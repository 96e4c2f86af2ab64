"""One tar header block at a time: the strict subset of ustar, PAX and GNU tar that a bundle may use.

Invariants
1. A header is accepted only with a right checksum and a `ustar` magic, octal sizes, and a type that is a regular file,
   a folder, or an extension header listed here.
2. PAX records may only name the member (`path`) or carry facts that are ignored (times, owners, comments, extended
   attributes). A key that could change what or how much is read (`size`, `linkpath`, sparse maps, `hdrcharset`) is
   refused, also in global headers.
3. Every number of a header is a number, also those that mean nothing here: other readers end the archive, without a
   word, at the first header that they cannot read.
4. A name that an extension header replaces is not looked at: tools leave a copy there that is cut in mid-character.
"""

from __future__ import annotations

import re
import zlib
from functools import lru_cache
from typing import NamedTuple

from config.errors import IntakeError
from intake.refusal import clip

BLOCK = 512
# A header as tar tools write it: nothing to look at more closely in its numbers. Groups: size, checksum, type.
_PLAIN = re.compile(
    rb"(?s).{100}(?:[0-7]{6}[0-7 ][ \x00]){3}([0-7]{11})[ \x00][0-7]{11}[ \x00]([0-7]{6}(?:[0-7]\x00|\x00 | \x00))(.)"
    rb".{100}ustar(?:\x0000|  \x00).{64}(?:(?:[0-7]{6}[0-7 ]|\x00{7})[ \x00]){2}.{167}"
)
_RECORD = re.compile(rb"([1-9][0-9]{0,6}) ")
_IGNORED_KEYS = frozenset(
    {
        "atime",
        "ctime",
        "mtime",
        "uid",
        "gid",
        "uname",
        "gname",
        "comment",
        "LIBARCHIVE.creationtime",
        "SCHILY.dev",
        "SCHILY.ino",
        "SCHILY.nlink",
        "SCHILY.fflags",
        "RHT.security.selinux",
    }
)
_IGNORED_PREFIXES = ("LIBARCHIVE.xattr.", "SCHILY.xattr.", "SCHILY.acl.")
_KINDS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    b"6": "a named pipe",
    b"7": "a contiguous file",
    b"K": "a long link name",
    b"S": "a sparse file",
    b"M": "a continuation of another volume",
    b"V": "a volume label",
    b"D": "a folder dump",
}


class Member(NamedTuple):
    """A regular file (`size` content bytes follow) or a folder."""

    name: str
    size: int
    is_folder: bool


class Extension(NamedTuple):
    """A PAX (`x`), global PAX (`g`) or GNU long-name (`L`) header; `size` bytes follow."""

    kind: str
    size: int


def parse_header(block: bytes, name_override: str | None = None) -> Member | Extension:
    """Parse one non-zero header block of a member whose name an extension header may have given.

    Raises `IntakeError` (ARCHIVE_MALFORMED, ARCHIVE_MEMBER_KIND).
    """
    plain = _PLAIN.fullmatch(block)
    size, kind = _read_plainly(block, *plain.groups()) if plain else _read_carefully(block)
    posix = block[262:265] == b"\x0000"
    if kind in (b"x", b"g", b"L"):
        return Extension(kind.decode(), size)
    if not posix and kind in (b"0", b"\x00", b"5") and any(block[345:500]):
        # GNU tar keeps times, sparse maps and volume offsets where others read the start of a name.
        raise _malformed("a header of GNU tar holds more than a name", "Run tar without --incremental.")
    full = _name(block, posix=posix) if name_override is None else name_override
    if kind == b"5":
        if size:
            raise _malformed(f"the folder {clip(full)} has content")
        return Member(full, 0, is_folder=True)
    if kind in (b"0", b"\x00"):
        return Member(full, size, is_folder=False)
    raise IntakeError(
        "ARCHIVE_MEMBER_KIND",
        f"{clip(full)} is {_KINDS.get(kind, f'a member of unknown type {kind!r}')}.",
        hint="Run tar with --hard-dereference, or package with `cacheon chain-package`: both write plain copies."
        if kind == b"1"
        else "A bundle archive holds regular files and folders only.",
    )


def _read_plainly(block: bytes, size: bytes, checksum: bytes, kind: bytes) -> tuple[int, bytes]:
    _check_sum(block, int(checksum.rstrip(b" \x00"), 8))
    return int(size, 8), kind


def _read_carefully(block: bytes) -> tuple[int, bytes]:
    """Return size and type of a header of which no number was looked at yet."""
    _check_sum(block, _octal(block[148:156], "checksum"))
    if block[257:265] not in (b"ustar\x0000", b"ustar  \x00"):
        raise _malformed("a header is not in ustar, PAX or GNU format", "Run tar with --format=ustar.")
    if not (_are_numbers(block[100:124], 8) and _are_numbers(block[136:148], 12) and _are_numbers(block[329:345], 8)):
        raise _malformed("a header holds a number that is none")
    return _octal(block[124:136], "size"), block[156:157]


def _check_sum(block: bytes, checksum: int) -> None:
    if checksum != _sum(block[:256]) + _sum(block[256:]) - sum(block[148:156]) + 8 * 32:
        raise _malformed("a header checksum is wrong")


def _name(block: bytes, *, posix: bool) -> str:
    name = _text(block[0:100])
    if not posix or not block[345]:
        return name
    return f"{_text(block[345:500])}/{name}"


def parse_extension(header: Extension, content: bytes) -> str | None:
    """Return the member name that an extension header gives, or None when it gives none.

    Raises `IntakeError` (ARCHIVE_MALFORMED, ARCHIVE_EXTENSION).
    """
    if header.kind == "L":
        if not content.endswith(b"\x00"):
            raise _malformed("a long name is not terminated")
        return _text(content)
    path: str | None = None
    seen: set[str] = set()
    for key, value in _records(content):
        if key in seen:
            raise _malformed(f"the extension key {clip(key)} stands twice")
        seen.add(key)
        if key == "path" and header.kind == "x":
            path = _decode(value)
        elif key not in _IGNORED_KEYS and not key.startswith(_IGNORED_PREFIXES):
            raise IntakeError("ARCHIVE_EXTENSION", f"the extension key {clip(key)} is not allowed.", hint=_hint(key))
    return path


def _hint(key: str) -> str:
    if key == "hdrcharset":
        return "Run tar in a UTF-8 locale (LC_ALL=C.UTF-8), or use ASCII names."
    if key.startswith("GNU.sparse."):
        return "Run tar without -S (--sparse, or --no-read-sparse for bsdtar)."
    return "Package the bundle with `cacheon chain-package`."


def _records(content: bytes) -> list[tuple[str, bytes]]:
    """Split PAX records (`LENGTH KEY=VALUE\\n`), where LENGTH counts the whole record."""
    records: list[tuple[str, bytes]] = []
    offset, size = 0, len(content)
    while offset < size:
        start = _RECORD.match(content, offset)
        if start is None:
            raise _malformed("an extension record has no length")
        end = offset + int(start[1])
        key, equals, value = content[start.end() : end - 1].partition(b"=")
        if end > size or content[end - 1 : end] != b"\n" or not equals or not key:
            raise _malformed("an extension record has the wrong length")
        records.append((key.decode("ascii") if key.isascii() else _decode(key), value))
        offset = end
    return records


def _sum(half: bytes) -> int:
    """Return the sum of at most 256 bytes: the low half of Adler-32, which wraps only above that, and is faster."""
    return zlib.adler32(half, 0) & 0xFFFF


@lru_cache(256)
def _are_numbers(fields: bytes, width: int) -> bool:
    """Say whether readers agree that fields are numbers: octal, absent, or binary as GNU tar writes large ones."""
    for start in range(0, len(fields), width):
        field = fields[start : start + width]
        if field[0] not in (0x80, 0xFF) and _digits(field).strip(b"01234567"):
            return False
    return True


def _digits(field: bytes) -> bytes:
    # Blanks may stand before a number; a NUL ends it for some readers, so none may.
    return field.lstrip(b" ").rstrip(b" \x00")


def _octal(field: bytes, what: str) -> int:
    digits = _digits(field)
    if not digits or digits.strip(b"01234567"):
        raise _malformed(f"the {what} field is not an octal number")
    return int(digits, 8)


def _text(field: bytes) -> str:
    return _decode(field.partition(b"\x00")[0])


def _decode(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise _malformed("a name is not UTF-8") from None


def _malformed(complaint: str, hint: str = "Package it with `cacheon chain-package`.") -> IntakeError:
    return IntakeError("ARCHIVE_MALFORMED", f"the tar archive is malformed: {complaint}.", hint=hint)
