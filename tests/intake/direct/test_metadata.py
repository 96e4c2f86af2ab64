"""Metadata of direct rows: strict JSON in which a scalar may be a float."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import IntakeError
from intake.direct.metadata import capabilities_of, read_direct_metadata


def test_floats_and_bools_are_read_exactly() -> None:
    """The value in the file is the value that is compared."""
    metadata = read_direct_metadata(b'{"capabilities": {"eps": {"exact": 1e-6}, "causal": true, "world_size": 8}}')
    assert capabilities_of(metadata) == {"eps": {"exact": 1e-6}, "causal": True, "world_size": 8}
    assert capabilities_of({}) == {}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b"\xff{}",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": 1e999}',
        b'{"a": 1, "a": 1}',
        b'{"a": {"b": 1, "b": 2}}',
        b"[" * 100_000,
        b'{"a": ' + b"1" * 5000 + b"}",
        b"{}" + b" " * (1 << 20),
    ],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    """Duplicates, numbers without a value, nesting bombs and large files are one error."""
    with pytest.raises(IntakeError) as caught:
        read_direct_metadata(data)
    assert caught.value.code == "DIRECT_METADATA"


def test_capabilities_are_a_table() -> None:
    """Anything else proves nothing."""
    with pytest.raises(IntakeError):
        capabilities_of({"capabilities": [1]})


@given(st.binary(max_size=64))
def test_only_intake_errors_leave(data: bytes) -> None:
    """Whatever the bytes are."""
    try:
        capabilities_of(read_direct_metadata(data))
    except IntakeError:
        return
