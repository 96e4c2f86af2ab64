"""The canonical stream is the preimage of the content hash, and is read in one way only."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import IntakeError
from config.limits import INTAKE
from intake.content_hash import hash_files
from intake.file_stream import encode_stream, read_stream
from tests.intake.support import bundle


def record(path: bytes, content: bytes = b"x") -> bytes:
    """Return one record."""
    return len(path).to_bytes(4, "big") + path + len(content).to_bytes(8, "big") + content


def test_its_digest_is_the_content_hash() -> None:
    """Hashing the stream proves every byte of the table it decodes to."""
    stream = b"".join(encode_stream(bundle()))
    assert hashlib.sha256(stream).hexdigest() == hash_files(bundle())
    assert {path: bytes(content) for path, content in read_stream(stream).items()} == bundle()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        record(b"b") + record(b"a"),
        record(b"a") + record(b"a"),
        record(b"a-b") + record(b"a/b"),
        record(b"A") + record(b"a"),
        record(b"a") + record(b"a/b"),
        record(b"../a"),
        record(b"/a"),
        record(b""),
        record(b"\xff"),
        record(b"a.pyc"),
        record(b".git/x"),
        record(b"a")[:-1],
        record(b"a") + b"\x00",
        b"\xff\xff\xff\xff" + b"a" * 100,
        record(b"a")[:5] + b"\xff" * 8,
    ],
)
def test_any_other_spelling_is_refused(data: bytes) -> None:
    """Order, names, lengths and the end are all checked."""
    with pytest.raises(IntakeError) as caught:
        read_stream(data)
    assert caught.value.code == "FILE_STREAM_MALFORMED"


def test_limits_hold_in_the_trusted_parent_too() -> None:
    """The parent does not rely on the child for any bound."""
    data = record(b"a", b"12") + record(b"b", b"12")
    for limits in (replace(INTAKE, members=1), replace(INTAKE, file_bytes=1), replace(INTAKE, extracted_bytes=3)):
        with pytest.raises(IntakeError):
            read_stream(data, limits=limits)


@given(st.binary(max_size=80))
def test_any_bytes_give_a_table_or_an_intake_error(data: bytes) -> None:
    """No bytes make the reader raise anything else."""
    with contextlib.suppress(IntakeError):
        assert b"".join(encode_stream(read_stream(data))) == data
