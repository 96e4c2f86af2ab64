"""Archives: one reading or none."""

from __future__ import annotations

import base64
import contextlib
import gzip
import io
import os
import subprocess
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import IntakeError
from config.limits import INTAKE
from intake.archive import unpack
from intake.content_hash import hash_files
from intake.package import package_bytes
from tests.intake.differences import ARCHIVE
from tests.intake.support import bundle, golden, tar_gz, write_tree

VECTORS = golden("archive_vectors")
MIB = 1 << 20


def sized(parts: dict[str, int], fill: bytes = b"\x00") -> bytes:
    """Return an archive of files with these sizes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        for name, size in parts.items():
            info = tarfile.TarInfo(name)
            info.size = size
            archive.addfile(info, io.BytesIO(fill * size))
    return buffer.getvalue()


# Rows that give a size and a rule instead of bytes.
BUILT: dict[str, Callable[[], bytes]] = {
    "empty_bytes": lambda: b"",
    "file_16MiB": lambda: sized({"w/blob": 16 * MIB}),
    "file_16MiB_plus1": lambda: sized({"w/blob": 16 * MIB + 1}),
    "py_8MiB_plus1": lambda: sized({"w/k.py": 8 * MIB + 1}),
    "inspectable_32MiB": lambda: sized({f"w/{i}.py": 8 * MIB for i in range(4)}),
    "members_4096": lambda: sized(dict.fromkeys((f"w/{i}" for i in range(4096)), 0)),
    "total_256MiB": lambda: sized({f"w/{i}": 16 * MIB for i in range(16)}),
    "total_over_256MiB": lambda: sized({**{f"w/{i}": 16 * MIB for i in range(16)}, "w/x": 1}),
}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_golden_archives(vector: dict[str, Any]) -> None:
    """Recorded archives unpack to the recorded hash, or are refused."""
    name = vector["name"]
    data = BUILT[name]() if vector.get("archive_b64") is None else base64.b64decode(vector["archive_b64"])
    if not vector["accept"] or name in ARCHIVE:
        with pytest.raises(IntakeError):
            unpack(data)
        return
    files = unpack(data)
    if name not in BUILT:
        assert hash_files(files) == vector["content_hash"]


def header(name: str, kind: bytes = tarfile.REGTYPE, **fields: Any) -> tarfile.TarInfo:
    """Return a bare member header."""
    info = tarfile.TarInfo(name)
    info.type = kind
    for field, value in fields.items():
        setattr(info, field, value)
    return info


def raw(blocks: bytes) -> bytes:
    """Return a gzip file around raw tar blocks."""
    return gzip.compress(blocks, mtime=0)


def patched(offset: int, value: bytes, *, fix_checksum: bool = True) -> bytes:
    """Return a two-member archive with bytes of its first header replaced."""
    blocks = bytearray(gzip.decompress(tar_gz([("w/a", b"12"), ("w/b", b"3")], format=tarfile.USTAR_FORMAT)))
    blocks[offset : offset + len(value)] = value
    if fix_checksum:
        total = sum(blocks[:148]) + 8 * 32 + sum(blocks[156:512])
        blocks[148:156] = f"{total:06o}\0 ".encode()
    return raw(bytes(blocks))


def pax(records: dict[str, str], kind: int = 0) -> bytes:
    """Return an archive whose member (or, with kind=1, the whole archive) carries PAX records."""
    if kind:
        return tar_gz([("w/a", b"1")], format=tarfile.PAX_FORMAT, pax_headers=records)
    info = tarfile.TarInfo("w/a")
    info.size = 1
    info.pax_headers = records
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info, io.BytesIO(b"1"))
    return buffer.getvalue()


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "hard link": (
        lambda: tar_gz([("w/a", b"1"), header("w/b", tarfile.LNKTYPE, linkname="w/a")]),
        "ARCHIVE_MEMBER_KIND",
    ),
    "device": (lambda: tar_gz([header("w/d", tarfile.CHRTYPE)]), "ARCHIVE_MEMBER_KIND"),
    "pipe": (lambda: tar_gz([header("w/d", tarfile.FIFOTYPE)]), "ARCHIVE_MEMBER_KIND"),
    "contiguous": (lambda: tar_gz([header("w/d", tarfile.CONTTYPE)]), "ARCHIVE_MEMBER_KIND"),
    "sparse": (lambda: tar_gz([header("w/d", b"S")]), "ARCHIVE_MEMBER_KIND"),
    "folder with content": (lambda: patched(156, b"5"), "ARCHIVE_MALFORMED"),
    "file ending in a slash": (lambda: patched(0, b"w/a/\x00"), "NAME_INVALID"),
    "wrong checksum": (lambda: patched(0, b"w/z\x00", fix_checksum=False), "ARCHIVE_MALFORMED"),
    "no magic": (lambda: patched(257, b"\x00" * 8), "ARCHIVE_MALFORMED"),
    "binary size": (lambda: patched(124, b"\x80" + b"\x00" * 10 + b"\x02"), "ARCHIVE_MALFORMED"),
    "negative size": (lambda: patched(124, b"\xff" * 12), "ARCHIVE_MALFORMED"),
    "negative octal size": (lambda: patched(124, b"-0000000002\x00"), "ARCHIVE_MALFORMED"),
    "empty size": (lambda: patched(124, b" " * 12), "ARCHIVE_MALFORMED"),
    "huge size": (lambda: patched(124, b"77777777777\x00"), "BUNDLE_TOO_LARGE"),
    "name not UTF-8": (lambda: patched(0, b"w/\xff\x00"), "ARCHIVE_MALFORMED"),
    "PAX size": (lambda: pax({"size": "5"}), "ARCHIVE_EXTENSION"),
    "PAX link": (lambda: pax({"linkpath": "/etc/passwd"}), "ARCHIVE_EXTENSION"),
    "PAX sparse": (lambda: pax({"GNU.sparse.major": "1"}), "ARCHIVE_EXTENSION"),
    "PAX character set": (lambda: pax({"hdrcharset": "BINARY"}), "ARCHIVE_EXTENSION"),
    "PAX global path": (lambda: pax({"path": "w/b"}, kind=1), "ARCHIVE_EXTENSION"),
    "PAX NUL in a name": (lambda: pax({"path": "w/a\x00b"}), "NAME_INVALID"),
    "trailing bytes after gzip": (lambda: tar_gz([("w/a", b"1")]) + b"x", "ARCHIVE_TRAILING_DATA"),
    "second gzip member": (lambda: tar_gz([("w/a", b"1")]) * 2, "ARCHIVE_TRAILING_DATA"),
    "zeros after gzip": (lambda: tar_gz([("w/a", b"1")]) + bytes(512), "ARCHIVE_TRAILING_DATA"),
    "cut in the middle": (lambda: tar_gz([("w/a", os.urandom(4000))])[:-200], "ARCHIVE_TRUNCATED"),
    "wrong gzip checksum": (lambda: tar_gz([("w/a", b"1")])[:-8] + b"\x00" * 8, "ARCHIVE_MALFORMED"),
    "no tar inside": (lambda: gzip.compress(b"hello"), "ARCHIVE_TRUNCATED"),
    "NFC collision": (lambda: tar_gz([("w/\u00e9", b"1"), ("w/e\u0301", b"2")]), "NAME_COLLISION"),
    "folder case collision": (lambda: tar_gz([("w/A/x", b"1"), ("w/a/y", b"2")]), "NAME_COLLISION"),
    "file as a folder": (lambda: tar_gz([("w/a", b"1"), ("w/a/b", b"2")]), "NAME_COLLISION"),
    "same file twice": (lambda: tar_gz([("w/a", b"1"), ("w/a", b"1")]), "ARCHIVE_DUPLICATE"),
    "invisible character": (lambda: tar_gz([("w/a\u200b", b"1")]), "NAME_INVALID"),
    "too deep": (lambda: tar_gz([("w/" + "a/" * 40 + "b", b"1")]), "NAME_TOO_LONG"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives_are_refused_with_their_code(name: str) -> None:
    """Each way of making readers disagree, or of leaving the tree, has its refusal."""
    build, code = HOSTILE[name]
    with pytest.raises(IntakeError) as caught:
        unpack(build())
    assert caught.value.code == code


def test_produced_bytes_are_counted_not_announced_ones() -> None:
    """A bomb behind a small announcement stops at the limit (B55)."""
    limits = replace(INTAKE, extracted_bytes=MIB, headers=8, members=8, extension_total_bytes=0)
    bomb = raw(gzip.decompress(tar_gz([("w/a", b"1")])) + bytes(64 * MIB))
    with pytest.raises(IntakeError) as caught:
        unpack(bomb, limits=limits)
    assert caught.value.code == "BUNDLE_TOO_LARGE"


def test_headers_and_members_have_budgets() -> None:
    """Endless headers end at the budget (B49)."""
    for limits in (replace(INTAKE, headers=3), replace(INTAKE, members=3)):
        with pytest.raises(IntakeError) as caught:
            unpack(sized({f"w/{i}": 0 for i in range(10)}), limits=limits)
        assert caught.value.code == "BUNDLE_TOO_LARGE"


def test_extension_headers_have_budgets() -> None:
    """Long-name headers cannot carry a payload."""
    with pytest.raises(IntakeError) as caught:
        unpack(pax({"comment": "x" * 70_000}))
    assert caught.value.code == "BUNDLE_TOO_LARGE"


def gnu_tar(folder: Path, *options: str) -> bytes:
    """Return what GNU tar makes of the folder `w` below `folder`."""
    done = subprocess.run(["tar", *options, "-C", str(folder), "-czf", "-", "w"], capture_output=True, check=True)
    return done.stdout


@pytest.mark.parametrize("style", ["--format=gnu", "--format=ustar", "--format=posix", "--format=oldgnu"])
def test_archives_of_gnu_tar_are_accepted(style: str, tmp_path: Path) -> None:
    """Ordinary tools make acceptable archives (B56)."""
    files = {**bundle(), f"{'n' * 60}/{'m' * 60}/long-name.json": b"{}"}
    write_tree(tmp_path / "w", files)
    assert unpack(gnu_tar(tmp_path, style)) == files


@pytest.mark.parametrize("style", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_archives_of_python_are_accepted(style: int, tmp_path: Path) -> None:
    """`tarfile.add` with owners, times and modes of the machine makes acceptable archives."""
    write_tree(tmp_path / "w", bundle())
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=style) as archive:
        archive.add(tmp_path / "w", arcname="w")
    assert unpack(buffer.getvalue()) == bundle()


def test_archives_of_git_are_accepted(tmp_path: Path) -> None:
    """`git archive --prefix` writes a global comment header, which is ignored."""
    write_tree(tmp_path, bundle())
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "core.autocrlf=false"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        subprocess.run(["git", *identity, *command], cwd=tmp_path, check=True, env=environment, capture_output=True)
    made = subprocess.run(
        ["git", "archive", "--format=tar.gz", "--prefix=w/", "HEAD"],
        cwd=tmp_path,
        check=True,
        env=environment,
        capture_output=True,
    )
    assert unpack(made.stdout) == bundle()


def test_extended_attributes_of_macos_are_ignored() -> None:
    """bsdtar on macOS attaches vendor records to each member; they carry no content."""
    records = {"LIBARCHIVE.xattr.com.apple.provenance": "AQ", "SCHILY.xattr.user.x": "1", "mtime": "1700000000.5"}
    assert unpack(pax(records)) == {"a": b"1"}


def test_nothing_is_written_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpacking touches no file system, whatever the members are called."""
    monkeypatch.chdir(tmp_path)
    unpack(package_bytes(bundle()))
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=700), st.integers(0, 2048), st.integers(0, 255))
def test_only_intake_errors_leave_damaged_archives(noise: bytes, offset: int, value: int) -> None:
    """Random tar bytes and flipped bytes give a table or an `IntakeError`, nothing else (B59)."""
    blocks = bytearray(gzip.decompress(package_bytes(bundle())))
    blocks[offset % len(blocks)] = value
    for data in (noise, raw(noise), raw(bytes(blocks)), zlib.compress(noise)):
        with contextlib.suppress(IntakeError):
            unpack(data)
