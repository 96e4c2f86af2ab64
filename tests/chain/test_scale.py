"""The SCALE forms read by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chain.scale import ScaleError, ScaleReader, compact, strip_length_prefix


@given(st.integers(0, 2**70))
def test_compact_round_trip(value: int) -> None:
    """Every non-negative integer has one compact form that reads back."""
    reader = ScaleReader(compact(value))
    assert reader.compact() == value
    reader.done()


@pytest.mark.parametrize("data", ["", "01", "0100", "02000000", "0300000000", "0700000000"])
def test_short_or_wasteful_compact_forms_are_refused(data: str) -> None:
    """A truncated or longer-than-needed compact integer is an error."""
    with pytest.raises(ScaleError):
        ScaleReader(bytes.fromhex(data)).compact()


def test_negative_has_no_compact_form_and_trailing_bytes_are_seen() -> None:
    """Misuse is an error, not a wrong number."""
    with pytest.raises(ScaleError):
        compact(-1)
    with pytest.raises(ScaleError):
        ScaleReader(b"x").done()


@given(st.binary(max_size=2000))
def test_both_framings_open_to_the_same_bytes(payload: bytes) -> None:
    """Length-prefixed data loses its prefix; a bare JSON object is left alone."""
    assert strip_length_prefix(compact(len(payload)) + payload) == payload
    bare = b"{" + payload
    assert strip_length_prefix(bare) == bare
