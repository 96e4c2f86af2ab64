"""Archives: one reading or none."""

from __future__ import annotations

import base64
import contextlib
import gzip
import io
import os
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import replace
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
from tests.intake.support import bundle, golden, tar_gz

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


def raw(blocks: bytes) -> bytes:
    """Return a gzip file around raw tar blocks."""
    return gzip.compress(blocks, mtime=0)


def test_produced_bytes_are_counted_not_announced_ones() -> None:
    """A bomb behind a small announcement stops at the limit (B55)."""
    limits = replace(INTAKE, extracted_bytes=MIB, headers=8, members=8, extension_total_bytes=0)
    for blocks, code in (
        (sized({"w/a": 2 * MIB}), "BUNDLE_TOO_LARGE"),
        (raw(gzip.decompress(tar_gz([("w/a", b"1")])) + bytes(64 * MIB)), "ARCHIVE_TRAILING_DATA"),
    ):
        with pytest.raises(IntakeError) as caught:
            unpack(blocks, limits=limits)
        assert caught.value.code == code


def test_headers_and_members_have_budgets() -> None:
    """Endless headers end at the budget (B49)."""
    for limits in (replace(INTAKE, headers=3), replace(INTAKE, members=3)):
        with pytest.raises(IntakeError) as caught:
            unpack(sized({f"w/{i}": 0 for i in range(10)}), limits=limits)
        assert caught.value.code == "BUNDLE_TOO_LARGE"


def test_large_archives_are_read_once_before_they_are_kept() -> None:
    """Contents above the eager bound come back whole, and a fault behind them is still a refusal (B55)."""
    limits = replace(INTAKE, eager_bytes=1000)
    parts = {f"w/{index}": bytes([index]) * 700 for index in range(9)}
    archive = tar_gz(list(parts.items()))
    assert unpack(archive, limits=limits) == {path[2:]: content for path, content in parts.items()}
    for late in (("w/0", b"x"), ("w/../x", b"x")):
        with pytest.raises(IntakeError):
            unpack(tar_gz([*parts.items(), late]), limits=limits)


def test_an_archive_is_fed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The inflater copies what it leaves over, so it is never handed much more than it takes."""
    fed: list[int] = []

    class Inflater:
        def __init__(self, wbits: int) -> None:
            self._inner = inflate(wbits=wbits)

        def decompress(self, data: bytes, limit: int) -> bytes:
            fed.append(len(data))
            return self._inner.decompress(data, limit)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

    inflate = zlib.decompressobj
    monkeypatch.setattr(zlib, "decompressobj", Inflater)
    unpack(tar_gz([(f"w/{index}", os.urandom(MIB)) for index in range(4)]))
    assert max(fed) <= MIB // 4
    assert sum(fed) < 9 * MIB


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=700), st.integers(0, 2048), st.integers(0, 255))
def test_only_intake_errors_leave_damaged_archives(noise: bytes, offset: int, value: int) -> None:
    """Random tar bytes and flipped bytes give a table or an `IntakeError`, nothing else (B59)."""
    blocks = bytearray(gzip.decompress(package_bytes(bundle())))
    blocks[offset % len(blocks)] = value
    for data in (noise, raw(noise), raw(bytes(blocks)), zlib.compress(noise)):
        with contextlib.suppress(IntakeError):
            unpack(data)
