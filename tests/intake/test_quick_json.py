"""What the quick reader of JSON vouches for is what the strict one accepts."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.canonical import CanonicalJsonError, read_json
from intake import quick_json
from intake.quick_json import is_plain_json

_PIECES = st.sampled_from(
    [
        *'{}[]:," \t\n\r\f\x01\x7f\\/-+.',
        *("0", "1", "-0", "12", "01", "1.0", "1e5", "NaN", "Infinity", "-Infinity", "true", "null", "9" * 4301),
        *('"a"', '"a":', '"a":1', '"a":1,"a":1', '"\\u0061":', '"\\ud800"', '"é"', '"\\u00e9"', '"a:b"', '"{"', "é"),
        *("9" * 4300, "18446744073709551616", '"a b"', '"ab"'),
    ]
)
_PLAIN = st.none() | st.booleans() | st.integers() | st.sampled_from(["", "a", "ab"])
_KEYS = st.sampled_from(["a", "b", "c", "ab", "a b"])
_TABLES = st.lists(
    st.tuples(_KEYS, _PLAIN | st.lists(_PLAIN, max_size=2) | st.lists(st.tuples(_KEYS, _PLAIN), max_size=3)), max_size=4
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(params=["small texts", "large texts"], autouse=True, scope="module")
def reading(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every test is made in both ways of reading, whatever the size of its texts."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "large texts":
            patch.setattr(quick_json, "_SMALL", -1)
        yield request.param


def _is_strict(data: bytes) -> bool:
    try:
        read_json(data)
    except CanonicalJsonError:
        return False
    return True


@given(st.lists(_PIECES, max_size=14).map("".join))
def test_what_it_vouches_for_is_strict(text: str) -> None:
    assert not is_plain_json(text.encode()) or _is_strict(text.encode())


@given(_VALUES, st.integers(0, 3), _PIECES, st.integers(0, 60), st.integers(0, 4))
def test_what_it_vouches_for_is_strict_near_valid_texts(
    value: object, indent: int, piece: str, place: int, cut: int
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    broken = (text[:place] + piece + text[place + cut :]).encode("utf-8", "surrogatepass")
    assert not is_plain_json(broken) or _is_strict(broken)


def _written(pairs: list[tuple[str, object]], gap: str) -> str:
    """Return the text of an object, keys repeated as they come; a list of pairs is one, too."""
    members = []
    for key, value in pairs:
        is_row = isinstance(value, list) and value and isinstance(value[0], tuple)
        members.append(f'"{key}":{gap}{_written(value, gap) if is_row else json.dumps(value)}')  # type: ignore[arg-type]
    return "{" + f",{gap}".join(members) + "}"


@given(_TABLES, st.sampled_from(["", " ", "\n  "]), st.none() | _PIECES, st.integers(0, 60))
def test_tables_it_vouches_for_are_strict(
    pairs: list[tuple[str, object]], gap: str, piece: str | None, place: int
) -> None:
    """Repeated keys of a table and of its rows, with and without another breach, are left to the strict reader."""
    text = _written(pairs, gap)
    data = (text if piece is None else text[:place] + piece + text[place:]).encode()
    assert not is_plain_json(data) or _is_strict(data)


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":2}',
        '{"a":1,"a":"b"}',
        '{"a":{"b":1},"a":2}',
        '{"a":{"b":1,"b":"c"}}',
        '{"a":{"b":1,"c":1.5}}',
        '{"a":[1,1.0]}',
        '{"a":{"b":1,"b":1}}',
        '[{"a:":1,"a:":1}]',
        '{"a":1.0}',
        "[1e2]",
        '{"a":' + "[" * 200 + "]" * 200 + "}",
        "",
        "{",
    ],
)
def test_no_means_that_the_strict_reader_decides(text: str) -> None:
    assert not is_plain_json(text.encode())


@pytest.mark.parametrize(
    "value",
    [{}, {"a": 1, "b": "x:y"}, {"rows": [{"m": 1, "n": [1, 2]}, [], {"k": True}]}, {"a": False, "b": None, "c": -7}],
)
def test_tables_are_vouched_for(value: object) -> None:
    assert is_plain_json(json.dumps(value, indent=1).encode())
    assert is_plain_json(json.dumps(value).encode())


def test_rows_with_the_same_keys_are_vouched_for_while_small(reading: str) -> None:
    table = {str(rows): {"BLOCK_M": 16 * rows, "num_warps": 4, "layout": "row_major"} for rows in range(40)}
    assert is_plain_json(json.dumps(table).encode()) is (reading == "small texts")
    assert not is_plain_json(json.dumps(table).replace('"num_warps"', '"BLOCK_M"', 1).encode())
