"""The quick reading of headers and names says what the careful one says."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from config.errors import IntakeError
from config.limits import INTAKE
from intake import tar_header
from intake.archive import unpack
from intake.names import check_path
from intake.tar_header import parse_header
from tests.intake.hostile_archives import GNU, POSIX, header, pairs

_NUMBERS = (100, 108, 116, 124, 136, 148, 329, 337)
_NEVER = re.compile(rb"(?!)")
_TEXTS = st.text(st.sampled_from("0123456789 \0\x80\xff-"), max_size=12).map(lambda text: text.encode("latin-1"))
_PATHS = st.text(st.sampled_from("aB0_.-/ \\\n\u00e9~"), max_size=24)


@given(
    kind=st.sampled_from([b"0", b"\0", b"5", b"x", b"g", b"L", b"1", b"?"]),
    magic=st.sampled_from([POSIX, GNU, b"ustar\x0001", b"ustar 00"]),
    name=st.binary(max_size=20),
    fields=st.dictionaries(st.sampled_from(_NUMBERS), _TEXTS, max_size=4),
    late=st.dictionaries(st.sampled_from([*_NUMBERS, 156, 257, 345]), _TEXTS, max_size=1),
)
@example(kind=b"0", magic=POSIX, name=b"w/a", fields={}, late={})
@example(kind=b"0", magic=POSIX, name=b"w/a", fields={329: bytes(8), 337: bytes(8)}, late={})
@example(kind=b"0", magic=GNU, name=b"w/a", fields={124: b"00000000017\0"}, late={})
def test_a_header_means_one_thing(
    kind: bytes, magic: bytes, name: bytes, fields: dict[int, bytes], late: dict[int, bytes]
) -> None:
    """`late` bytes are written after the checksum was made, as who damages a header does."""
    block = bytearray(header(name, 1, kind, magic=magic, fields=fields))
    for offset, text in late.items():
        block[offset : offset + len(text)] = text
    quick = _read(bytes(block))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tar_header, "_PLAIN", _NEVER)
        assert quick == _read(bytes(block))


def _read(block: bytes) -> object:
    try:
        return parse_header(block)
    except IntakeError as error:
        return str(error)


def test_what_tar_tools_write_is_read_quickly() -> None:
    """Otherwise the test above compares nothing."""
    for magic in (POSIX, GNU):
        assert tar_header._PLAIN.fullmatch(header(b"w/a", 1, magic=magic, fields={329: b"0000000\0" * 2}))


@given(_PATHS)
@example("a/" * 7 + "a")
@example("a/" * 8 + "a")
@example("a" * 101)
@example("a\n")
def test_a_name_is_judged_alike(path: str) -> None:
    """Limits that are equal but not the usual object are looked at carefully."""

    def judged(limits: object) -> str:
        try:
            check_path(path, limits)  # type: ignore[arg-type]
        except IntakeError as error:
            return str(error)
        return "fine"

    assert judged(INTAKE) == judged(replace(INTAKE))


def test_the_largest_number_of_named_files_is_legal() -> None:
    """An extension header for each: twice as many headers as members."""
    assert len(unpack(pairs(INTAKE.members))) == INTAKE.members
