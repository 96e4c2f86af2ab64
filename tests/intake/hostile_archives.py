"""Hostile archives, each with the code of its refusal.

`HOSTILE` is the corpus: name -> (builder, code). Builders are cheap; bombs are written as repeated compressed blocks,
so that making one costs nothing. `LARGEST` holds what has a legal size, or a legal number of headers, up to the last
one and therefore costs a whole archive's work to refuse.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from itertools import chain

Build = Callable[[], bytes]
Row = tuple[Build, str]

BLOCK = 512
END = bytes(2 * BLOCK)
MIB = 1 << 20
POSIX = b"ustar\x0000"
GNU = b"ustar  \x00"


def header(
    name: bytes, size: int = 0, kind: bytes = b"0", *, magic: bytes = POSIX, fields: dict[int, bytes] | None = None
) -> bytes:
    """Return one tar header with a right checksum; `fields` are bytes written over it (offset -> bytes) before that."""
    raw = bytearray(BLOCK)
    raw[0 : len(name)] = name
    for offset, text in (
        (100, b"0000644\x00"),
        (108, b"0000000\x00"),
        (116, b"0000000\x00"),
        (136, b"0" * 11 + b"\x00"),
    ):
        raw[offset : offset + len(text)] = text
    raw[124:136] = b"%011o\x00" % size
    raw[156:157] = kind
    raw[257:265] = magic
    for offset, text in (fields or {}).items():
        raw[offset : offset + len(text)] = text
    raw[148:156] = b"%06o\x00 " % (sum(raw[:148]) + 8 * 32 + sum(raw[156:]))
    return bytes(raw)


def padded(content: bytes) -> bytes:
    """Return content filled up to whole blocks."""
    return content + bytes(-len(content) % BLOCK)


def member(name: str | bytes, content: bytes = b"1", kind: bytes = b"0", **options: object) -> bytes:
    """Return a header and its content."""
    raw = name.encode() if isinstance(name, str) else name
    return header(raw, len(content), kind, **options) + padded(content)  # type: ignore[arg-type]


def record(key: bytes, value: bytes) -> bytes:
    """Return one PAX record."""
    body = b" " + key + b"=" + value + b"\n"
    size = len(body)
    while len(str(size)) + len(body) != size:
        size = len(str(size)) + len(body)
    return str(size).encode() + body


def pax(*records: bytes, kind: bytes = b"x") -> bytes:
    """Return a PAX extension header."""
    return member("PaxHeaders/a", b"".join(records), kind)


def long_name(content: bytes, kind: bytes = b"L") -> bytes:
    """Return a GNU long-name header."""
    return member("././@LongLink", content, kind, magic=GNU)


A = member("w/a")


def tar(*parts: bytes, end: bytes = END) -> bytes:
    """Return a tar.gz of these parts."""
    return gzip.compress(b"".join(parts) + end, compresslevel=1, mtime=0)


def files(*names: str | bytes) -> bytes:
    """Return a tar.gz of one-byte files with these names."""
    return tar(*map(member, names))


def pairs(count: int) -> bytes:
    """Return a tar.gz of files that are named by an extension header each, no two headers with the same numbers."""
    parts = []
    for index in range(count):
        fields = {108: b"%07o\x00" % index, 136: b"%011o\x00" % (index * 99_991)}
        records = (record(b"path", b"w/%d/%d" % (index % 50, index)), record(b"mtime", b"1.%d" % index))
        parts += [member(b"PaxHeaders/a", b"".join(records), b"x", fields=fields), member(b"w/a", fields=fields)]
    return tar(*parts)


def named(text: str | bytes) -> bytes:
    """Return a tar.gz whose only file has its name from a PAX record."""
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return tar(pax(record(b"path", raw)), A)


def folder(name: str) -> bytes:
    """Return a folder member."""
    return header(f"{name}/".encode(), kind=b"5")


def with_size(text: bytes, kind: bytes = b"0") -> bytes:
    """Return a tar.gz whose second member has this text in its size field."""
    return tar(A, header(b"w/b", kind=kind, fields={124: text}), bytes(BLOCK))


def with_checksum(text: bytes) -> bytes:
    """Return a tar.gz whose first header has this text in its checksum field."""
    raw = bytearray(A)
    raw[148:156] = text
    return tar(bytes(raw))


def stream(*blocks: bytes, crc: int = 0, size: int = 0, head: bytes = b"\x1f\x8b\x08" + bytes(7)) -> bytes:
    """Return a gzip file of raw deflate blocks with this trailer."""
    return head + b"".join(blocks) + struct.pack("<II", crc & 0xFFFFFFFF, size & 0xFFFFFFFF)


def deflated(data: bytes, *, last: bool) -> bytes:
    """Return deflate blocks that depend on nothing before them, so that they can be repeated."""
    squeeze = zlib.compressobj(9, wbits=-15)
    return squeeze.compress(data) + squeeze.flush(zlib.Z_FINISH if last else zlib.Z_FULL_FLUSH)


def bomb(start: bytes, mib: int, size: int) -> bytes:
    """Return a gzip file of `start` and `mib` MiB of zeros whose trailer announces `size` bytes."""
    zeros = deflated(bytes(MIB), last=False)
    return stream(deflated(start, last=False), zeros * mib, deflated(b"", last=True), size=size)


def deflated_file(index: int) -> bytes:
    """Return the deflate blocks of a file of 16 MiB."""
    return deflated(header(b"w/%d" % index, 16 * MIB), last=False) + deflated(bytes(MIB), last=False) * 16


def cut(data: bytes, drop: int) -> bytes:
    """Return `data` without its last `drop` bytes."""
    return data[:-drop]


def edited(offset: int, value: bytes) -> bytes:
    """Return a good archive with bytes replaced, counted from its end when `offset` is negative."""
    raw = bytearray(files("w/a", "w/b"))
    offset %= len(raw)
    raw[offset : offset + len(value)] = value
    return bytes(raw)


def unended(*parts: bytes) -> bytes:
    """Return a tar.gz without an end."""
    return tar(*parts, end=b"")


def a_zip() -> bytes:
    """Return a zip file."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("manifest.toml", "x = 1\n")
    return buffer.getvalue()


def sparse_old_gnu() -> bytes:
    """Return an old GNU sparse member: one byte of data in a file of 1 GiB."""
    places = b"%011o\x00%011o\x00" % (0, 1) + b"%011o\x00%011o\x00" % (1 << 30, 0)
    return tar(member("w/s", b"1", b"S", magic=GNU, fields={386: places, 483: b"%011o\x00" % (1 << 30)}), A)


def appended() -> bytes:
    """Return two tar archives one after the other, each with its end."""
    return tar(A, END, member("w/b"))


def signed_checksum() -> bytes:
    """Return a header whose checksum counts bytes as signed, as some old tools did."""
    raw = bytearray(member("w/\u00e9"))
    total = sum(byte - 256 * (byte > 127) for byte in chain(raw[:148], raw[156:BLOCK])) + 8 * 32
    raw[148:156] = b"%06o\x00 " % total
    return tar(bytes(raw))


def many(count: int) -> bytes:
    """Return a tar.gz of that many empty files."""
    return tar(*(header(b"w/%d" % index) for index in range(count)))


MALFORMED, TRUNCATED, TRAILING = "ARCHIVE_MALFORMED", "ARCHIVE_TRUNCATED", "ARCHIVE_TRAILING_DATA"
NOT_GZIP, KIND, EXTENSION = "ARCHIVE_NOT_GZIP", "ARCHIVE_MEMBER_KIND", "ARCHIVE_EXTENSION"
DUPLICATE, EMPTY_FOLDER, LARGE = "ARCHIVE_DUPLICATE", "ARCHIVE_EMPTY_FOLDER", "BUNDLE_TOO_LARGE"
INVALID, LONG, EXCLUDED, COLLISION = "NAME_INVALID", "NAME_TOO_LONG", "NAME_EXCLUDED", "NAME_COLLISION"

GZIP: dict[str, Row] = {
    "no bytes": (lambda: b"", NOT_GZIP),
    "an error page": (lambda: b"<!doctype html><title>404</title>" * 9, NOT_GZIP),
    "plain tar": (lambda: A + END, NOT_GZIP),
    "zip": (a_zip, NOT_GZIP),
    "xz": (lambda: lzma.compress(A + END), NOT_GZIP),
    "bzip2": (lambda: bz2.compress(A + END), NOT_GZIP),
    "zstd": (lambda: b"\x28\xb5\x2f\xfd" + A, NOT_GZIP),
    "zlib": (lambda: zlib.compress(A + END), NOT_GZIP),
    "unknown gzip method": (partial(edited, 2, b"\x07"), NOT_GZIP),
    "reserved gzip flags": (partial(edited, 3, b"\xe0"), MALFORMED),
    "wrong gzip header checksum": (lambda: b"\x1f\x8b\x08\x02" + bytes(6) + b"\xff\xff" + files("w/a")[10:], MALFORMED),
    "endless gzip file name": (lambda: b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * 5_000_000, TRUNCATED),
    "gzip header only": (lambda: files("w/a")[:10], TRUNCATED),
    "half a gzip header": (lambda: files("w/a")[:5], TRUNCATED),
    "gzip in gzip": (lambda: gzip.compress(b"".join(tar(A) for _ in range(20))), MALFORMED),
    "second gzip member": (lambda: files("w/a") + files("w/b"), TRAILING),
    "empty second gzip member": (lambda: files("w/a") + gzip.compress(b""), TRAILING),
    "a byte after gzip": (lambda: files("w/a") + b"x", TRAILING),
    "a byte after padding": (lambda: files("w/a") + bytes(9999) + b"x", TRAILING),
    "endless padding after gzip": (lambda: files("w/a") + bytes(2 * MIB), TRAILING),
    "cut in the middle": (lambda: files(*map(str, range(99)))[:200], TRUNCATED),
    "cut in the last deflate block": (lambda: cut(files("w/a"), 9), TRUNCATED),
    "no gzip trailer": (lambda: cut(files("w/a"), 8), TRUNCATED),
    "half a gzip trailer": (lambda: cut(files("w/a"), 4), TRUNCATED),
    "wrong gzip checksum": (partial(edited, -8, b"\xde\xad"), MALFORMED),
    "announced size too small": (partial(edited, -4, b"\x01\x00"), MALFORMED),
    "announced size too large": (partial(edited, -4, b"\xff\xff\xff\xff"), MALFORMED),
    "unknown deflate block": (lambda: stream(b"\x07"), MALFORMED),
    "deflate reaches before its start": (lambda: stream(b"\x4b\x04\xb3\x00\x00"), MALFORMED),
    "bomb after the end": (partial(bomb, A + END, 1024, 1024 * MIB), TRAILING),
    "bomb without an archive": (partial(bomb, b"", 1024, 1024 * MIB), TRAILING),
    "bomb in a member": (partial(bomb, header(b"w/a", 1 << 30), 1024, 1024 * MIB), LARGE),
    "bomb in a long name": (partial(bomb, header(b"L", 1 << 30, b"L", magic=GNU), 1024, 1024 * MIB), LARGE),
    "bomb of legal members": (
        lambda: stream(
            *map(deflated_file, range(99)),
            size=99 * 16 * MIB,
        ),
        LARGE,
    ),
    "bomb with a small announcement": (
        lambda: stream(
            *map(deflated_file, range(9)),
            size=10240,
        ),
        MALFORMED,
    ),
}


def with_number(offset: int, text: bytes) -> bytes:
    """Return a tar.gz whose second header has this text in one of the fields that mean nothing here."""
    return tar(A, header(b"w/b", fields={offset: text}), member("w/c"))


STRUCTURE: dict[str, Row] = {
    "nothing in gzip": (lambda: gzip.compress(b""), TRUNCATED),
    "text in gzip": (lambda: gzip.compress(b"hello"), TRUNCATED),
    "noise in gzip": (lambda: gzip.compress(bytes(range(256)) * 8), MALFORMED),
    "half a header": (lambda: unended(A[:300]), TRUNCATED),
    "a header without its content": (lambda: unended(header(b"w/a", 9)), TRUNCATED),
    "half a content": (lambda: unended(header(b"w/a", 9000), bytes(5000)), TRUNCATED),
    "no padding after a content": (lambda: unended(header(b"w/a", 9), b"123456789"), TRUNCATED),
    "no end": (lambda: unended(A), TRUNCATED),
    "half an end": (lambda: tar(A, end=bytes(BLOCK)), TRUNCATED),
    "half an extension": (lambda: unended(header(b"p", 900, b"x"), bytes(100)), TRUNCATED),
    "an extension without a member": (lambda: tar(A, pax(record(b"path", b"w/b"))), MALFORMED),
    "a member after one zero block": (lambda: tar(A, bytes(BLOCK), member("w/b")), MALFORMED),
    "a second tar archive": (appended, TRAILING),
    "bytes after the end": (lambda: tar(A, END, bytes(99), b"x"), TRAILING),
    "endless padding after the end": (lambda: tar(A, END, bytes(2 * MIB)), TRAILING),
    "wrong checksum": (partial(with_checksum, b"000000\x00 "), MALFORMED),
    "no checksum": (partial(with_checksum, b"        "), MALFORMED),
    "negative checksum": (partial(with_checksum, b"-00001\x00 "), MALFORMED),
    "binary checksum": (partial(with_checksum, b"\x80\x00\x00\x00\x00\x00\x20\x00"), MALFORMED),
    "signed checksum": (signed_checksum, MALFORMED),
    "old V7 header": (lambda: tar(member("w/a", magic=bytes(8))), MALFORMED),
    "unknown tar version": (lambda: tar(member("w/a", magic=b"ustar\x0001")), MALFORMED),
    "no members": (tar, "BUNDLE_EMPTY"),
    "only folders": (lambda: tar(folder("w"), folder("w/a")), "BUNDLE_EMPTY"),
    "empty folder": (lambda: tar(A, folder("w/b")), EMPTY_FOLDER),
    "folder with content": (lambda: tar(member("w/a/", b"1", b"5"), member("w/a/b")), MALFORMED),
    "too many members": (partial(many, 4097), LARGE),
    "extension headers in a row": (lambda: tar(pax(record(b"comment", b""), kind=b"g") * 9, A), LARGE),
    "huge extension header": (lambda: tar(pax(record(b"comment", b"x" * 65_536)), A), LARGE),
    "huge extension headers in all": (lambda: tar(pax(record(b"comment", b"x" * 65_000)) * 17, A), LARGE),
    "huge file": (lambda: tar(header(b"w/a", 16 * MIB + 1)), LARGE),
    "huge source": (lambda: tar(header(b"w/a.py", 8 * MIB + 1)), LARGE),
}

SIZES: dict[str, Row] = {
    f"{what} size {label}": (partial(with_size, text, kind), MALFORMED)
    for what, kind in (("member", b"0"), ("extension", b"x"))
    for label, text in {
        "in base 256": b"\x80" + bytes(10) + b"\x01",
        "negative in base 256": b"\xff" * 10 + b"\xfe\x00",  # CVE-2025-8194: an offset that leads back
        "negative": b"-0000000512\x00",
        "with a sign": b"+0000000001\x00",
        "blank": b" " * 12,
        "absent": bytes(12),
        "not octal": b"00000000008\x00",
        "hexadecimal": b"0x000000010\x00",
        "after a NUL": b"\x0000000000214",
        "in two parts": b"00001\x0000001\x00",
    }.items()
} | {
    "size of 8 GiB": (partial(with_size, b"77777777777\x00"), LARGE),
    "size without a terminator": (partial(with_size, b"777777777777"), LARGE),
    "extension size of 8 GiB": (partial(with_size, b"77777777777\x00", b"x"), LARGE),
}

# Python's tarfile ends an archive without a word at such a header, and other readers go on.
NUMBERS: dict[str, Row] = {
    f"{field} {label}": (partial(with_number, offset, text), MALFORMED)
    for field, offset in {"mode": 100, "owner": 108, "group": 116, "time": 136, "device": 329}.items()
    for label, text in {
        "of letters": b"rw-r--r",
        "not octal": b"0000008",
        "negative": b"-000001",
        "after a NUL": b"\x00000644",
    }.items()
}

KINDS: dict[str, Row] = {
    label: (lambda kind=kind: tar(A, header(b"w/b", kind=kind, fields={157: b"w/a"})), KIND)  # type: ignore[misc]
    for label, kind in {
        "hard link": b"1",
        "symbolic link": b"2",
        "character device": b"3",
        "block device": b"4",
        "named pipe": b"6",
        "contiguous file": b"7",
        "continuation of a volume": b"M",
        "volume label": b"V",
        "folder dump": b"D",
        "old long name": b"N",
        "Solaris extension": b"X",
        "access list": b"A",
        "inode metadata": b"I",
        "unknown digit": b"9",
        "unknown byte": b"\xff",
    }.items()
} | {
    "link out of the tree": (lambda: tar(header(b"w/b", kind=b"2", fields={157: b"/etc/passwd"}), A), KIND),
    "link with content": (lambda: tar(member("w/b", b"1234", b"2"), A), KIND),
    "sparse file of old GNU tar": (sparse_old_gnu, KIND),
    "long link name": (lambda: tar(long_name(b"w/a\x00", b"K"), A), KIND),
}

EXTENSIONS: dict[str, Row] = (
    {
        f"PAX {key}": (lambda key=key, value=value: tar(pax(record(key.encode(), value)), A), EXTENSION)  # type: ignore[misc]
        for key, value in {
            "size": b"100000",
            "linkpath": b"/etc/passwd",
            "hdrcharset": b"BINARY",
            "charset": b"ISO-IR 8859 1 1998",
            "GNU.sparse.major": b"1",
            "GNU.sparse.name": b"w/b",
            "GNU.sparse.size": b"1073741824",
            "GNU.sparse.map": b"0,1,1073741824,0",
            "GNU.sparse.offset": b"0",
            "GNU.volume.filename": b"w/b",
            "GNU.dumpdir": b"Yw/a\x00",
            "SCHILY.realsize": b"5",
            "SCHILY.filetype": b"symlink",
            "SCHILY.offset": b"5",
            "LIBARCHIVE.symlinktype": b"file",
            "VENDOR.key": b"1",
            "PATH": b"w/b",
            "path\x00": b"w/b",
        }.items()
    }
    | {
        "global PAX path": (lambda: tar(pax(record(b"path", b"w/b"), kind=b"g"), A), EXTENSION),
        "global PAX size": (lambda: tar(pax(record(b"size", b"9"), kind=b"g"), A), EXTENSION),
        "PAX key twice": (lambda: tar(pax(record(b"path", b"w/a"), record(b"path", b"w/b")), A), MALFORMED),
        "PAX path twice": (lambda: tar(pax(record(b"path", b"w/a")), pax(record(b"path", b"w/b")), A), MALFORMED),
        "PAX path and long name": (lambda: tar(pax(record(b"path", b"w/a")), long_name(b"w/b\x00"), A), MALFORMED),
        "long name twice": (lambda: tar(long_name(b"w/a\x00"), long_name(b"w/b\x00"), A), MALFORMED),
        "long name without an end": (lambda: tar(long_name(b"w/a"), A), MALFORMED),
        "no long name": (lambda: tar(long_name(b""), A), MALFORMED),
        "empty long name": (lambda: tar(long_name(b"\x00"), A), INVALID),
        "long name out of the tree": (lambda: tar(long_name(b"../" * 40 + b"x\x00"), A), INVALID),
    }
    | {
        f"PAX record {label}": (lambda text=text: tar(pax(text), A), MALFORMED)  # type: ignore[misc]
        for label, text in {
            "of length 0": b"0 path=w/b\n",  # CVE-2019-20907: a record that never ends
            "too short": b"3 path=w/b\n",
            "too long": b"99 path=w/b\n",
            "of negative length": b"-1 path=w/b\n",
            "with a zero before its length": b"012 path=w/b\n",
            "with a sign": b"+11 path=w/b\n",
            "with a blank before its length": b" 11 path=w/b\n",
            "of endless length": b"9" * 5000 + b" path=w/b\n",
            "without a length": b"path=w/b\n",
            "without a value": b"8 path\n\n",
            "without a key": b"7 =w/b\n",
            "without a line feed": b"11 path=w/bx",
            "whose key is not UTF-8": record(b"\xff", b"1"),
            "whose path is not UTF-8": record(b"path", b"w/\xff"),
            "of zeros": bytes(12),
        }.items()
    }
)

NAMES: dict[str, Row] = (
    {
        f"name {label}": (partial(files, name), INVALID)
        for label, name in {
            "absolute": "/etc/passwd",
            "of a drive": "C:\\windows\\x",
            "with a backslash": "w\\a",
            "up": "../x",
            "up in the middle": "w/../../x",
            "up at the end": "w/..",
            "here": "./w/a",
            "here in the middle": "w/./a",
            "with an empty part": "w//a",
            "empty": "",
            "with a slash at its end": "w/a/",
            "with a line feed": "w/a\nb",
            "with an escape": "w/\x1b[2Ja",
            "with a delete": "w/a\x7f",
            "with a right-to-left override": "w/\u202egnp.py",
            "with an invisible blank": "w/a\u200b.py",
            "with a byte-order mark": "w/\ufeffa.py",
            "with a soft hyphen": "w/a\u00ad.py",
            "with a line separator": "w/a\u2028b",
            "of private use": "w/\ue000",
            "without a meaning": "w/\u0378",
            "with a tag character": "w/a\U000e0041",
        }.items()
    }
    | {
        "folder up": (lambda: tar(folder(".."), A), INVALID),
        "folder here": (lambda: tar(folder("."), member("./a")), INVALID),
        "prefix of GNU tar": (lambda: tar(member("w/a", magic=GNU, fields={345: b"00000000001"})), MALFORMED),
        "prefix up": (lambda: tar(member("a", fields={345: b"../.."})), INVALID),
        "PAX name with NUL": (partial(named, "w/a\x00b"), INVALID),
        "PAX name empty": (partial(named, ""), INVALID),
        "PAX name of a folder": (partial(named, "w/a/"), INVALID),
        "name not UTF-8": (partial(files, b"w/\xff"), MALFORMED),
        "name overlong UTF-8": (partial(files, b"w/\xc0\xae\xc0\xae"), MALFORMED),
        "name of a surrogate": (partial(named, "w/\ud800"), MALFORMED),
        "name too deep": (lambda: named("w/" + "a/" * 32 + "b"), LONG),
        "name too long": (lambda: named("w/" + "/".join(["a" * 200] * 6)), LONG),
        "component too long": (lambda: named("w/" + "a" * 256), LONG),
        "component too long in UTF-8": (lambda: named("w/" + "\u00e9" * 128), LONG),
    }
    | {
        f"excluded {name}": (partial(files, "w/b", name), EXCLUDED)
        for name in ("w/.git/config", "w/.git", "w/__pycache__/a.txt", "w/a.pyc", "w/a.pyo", "w/._a", "._w")
    }
    | {
        "excluded folder": (lambda: tar(A, folder("w/.git")), EXCLUDED),
        "case collision": (partial(files, "w/a.py", "w/A.py"), COLLISION),
        "case folding collision": (partial(files, "w/stra\u00dfe", "w/strasse"), COLLISION),
        "NFC collision": (partial(files, "w/\u00e9", "w/e\u0301"), COLLISION),
        "folder case collision": (partial(files, "w/A/x", "w/a/y"), COLLISION),
        "empty folder case collision": (lambda: tar(A, folder("w/A")), COLLISION),
        "file below a file": (partial(files, "w/a", "w/a/b"), COLLISION),
        "file above a file": (partial(files, "w/a/b", "w/a"), COLLISION),
        "file twice": (partial(files, "w/a", "w/a"), DUPLICATE),
        "file twice by a long name": (lambda: tar(A, long_name(b"w/a\x00"), member("w/b")), DUPLICATE),
        "folder twice": (lambda: tar(folder("w"), folder("w"), A), DUPLICATE),
        "file and folder": (lambda: tar(A, folder("w/a")), DUPLICATE),
    }
)

HOSTILE: dict[str, Row] = {**GZIP, **STRUCTURE, **SIZES, **NUMBERS, **KINDS, **EXTENSIONS, **NAMES}


def _sixteen_and_one() -> bytes:
    """Return 256 MiB of files, which is allowed, and one byte more; CRC and announced size are right."""
    parts = [(header(b"w/%d" % index, 16 * MIB), 16) for index in range(16)] + [(member("w/x") + END, 0)]
    zeros, plain = deflated(bytes(MIB), last=False), bytes(MIB)
    blocks, crc, size = [], 0, 0
    for text, mib in parts:
        blocks += [deflated(text, last=False), zeros * mib]
        crc = zlib.crc32(text, crc)
        for _ in range(mib):
            crc = zlib.crc32(plain, crc)
        size += len(text) + mib * MIB
    return stream(*blocks, deflated(b"", last=True), crc=crc, size=size)


LARGEST: dict[str, Row] = {
    "256 MiB and a byte": (_sixteen_and_one, LARGE),
    "8,192 headers and one": (partial(pairs, 4097), LARGE),
}
