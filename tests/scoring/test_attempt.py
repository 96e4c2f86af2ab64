"""The attempt document has one byte form and is read strictly."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.arena import Arena
from config.errors import CacheonError, GradeError
from scoring.attempt import SCHEMAS, attempt_digest, encode_attempt, read_attempt
from scoring.grade import grade
from tests.scoring.support import FakeReferee, make_arena

ARENA = make_arena()
ATTEMPT = FakeReferee(ARENA).measure()
DATA = encode_attempt(ATTEMPT)


def test_reading_returns_what_was_written() -> None:
    """Encoding and reading are inverse, and the digest names the bytes."""
    assert read_attempt(DATA, expected_digest=attempt_digest(DATA)) == ATTEMPT


def test_a_file_written_before_the_governor_was_recorded_still_reads() -> None:
    """A field that older files of the first schema lack has a value that says so; the verdict is the same."""
    first = encode_attempt(msgspec.structs.replace(ATTEMPT, schema=SCHEMAS[0]))
    older = first.replace(b'"governor":"",', b"")
    assert older != first
    assert read_attempt(older) == read_attempt(first)
    assert grade(read_attempt(older), ARENA) == grade(ATTEMPT, ARENA)


def test_a_changed_byte_is_detected_by_the_digest() -> None:
    """A file that differs from the named one in one character is refused."""
    changed = DATA.replace(b'"cpu":"cpu"', b'"cpu":"cpv"')
    with pytest.raises(GradeError) as refused:
        read_attempt(changed, expected_digest=attempt_digest(DATA))
    assert refused.value.code == "ATTEMPT_DIGEST_MISMATCH"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "ATTEMPT_NOT_CANONICAL"),
        (b"\xff\xfe", "ATTEMPT_NOT_CANONICAL"),
        (b"[" * 100_000, "ATTEMPT_NOT_CANONICAL"),
        (json.dumps(json.loads(DATA), indent=1).encode(), "ATTEMPT_NOT_CANONICAL"),
        (DATA.replace(b'"launch', b'"lunch'), "ATTEMPT_NOT_CANONICAL"),
        (DATA.replace(b"200000", b"0.5"), "ATTEMPT_NOT_CANONICAL"),
        (DATA.replace(b"200000", b"NaN"), "ATTEMPT_NOT_CANONICAL"),
        (b"{}", "ATTEMPT_SCHEMA_UNKNOWN"),
        (b"[]", "ATTEMPT_SCHEMA_UNKNOWN"),
        (DATA.replace(b"cacheon.attempt.v2", b"cacheon.attempt.v9"), "ATTEMPT_SCHEMA_UNKNOWN"),
        (b'{"schema":"cacheon.attempt.v1"}', "ATTEMPT_MALFORMED"),
        (DATA.replace(b'"core":0', b'"core":"0"'), "ATTEMPT_MALFORMED"),
        (DATA.replace(b'"core":0', b'"core":-1'), "ATTEMPT_MALFORMED"),
        (DATA.replace(b'"prepare_ns":0', b'"prepare_ns":' + b"9" * 40), "ATTEMPT_MALFORMED"),
        (DATA.replace(b'"ending":"decided"', b'"ending":"done"'), "ATTEMPT_MALFORMED"),
        (DATA.replace(b'"role":"primary"', b'"role":"primary","rule":1'), "ATTEMPT_MALFORMED"),
    ],
)
def test_every_malformed_file_has_a_code(data: bytes, code: str) -> None:
    """Malformed bytes are refused with a code, never with a foreign exception."""
    with pytest.raises(GradeError) as refused:
        read_attempt(data)
    assert refused.value.code == code


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(0, len(DATA) - 1), st.integers(0, 255))
def test_no_bytes_escape_the_error_family(noise: bytes, at: int, byte: int) -> None:
    """Random bytes, and random single-byte changes of a good file, give a verdict or one of our errors."""
    for data in (noise, DATA[:at] + bytes([byte]) + DATA[at + 1 :], DATA[:at]):
        try:
            grade(data, ARENA)
        except CacheonError as error:
            assert error.code  # noqa: PT017 - either ending is right


def test_an_attempt_of_64_launches_stays_small() -> None:
    """64 launches of 256 calls each stay below 4 MB."""
    arena: Arena = make_arena(launches_min=64, launches_max=64, blocks_per_launch=8, calls_per_block=16)
    assert len(encode_attempt(FakeReferee(arena).measure())) < 4_000_000
