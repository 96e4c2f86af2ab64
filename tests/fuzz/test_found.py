"""Inputs that once failed, by target, with the answer that is right."""

from __future__ import annotations

import pytest

from tests.fuzz.engine import Target, run_one
from tests.fuzz.targets import TARGETS
from tests.intake.hostile_archives import END, GNU, A, header, member

BY_NAME: dict[str, Target] = {target.name: target for target in TARGETS}
LONG_NAME = b"import os\n\n\ndef silu_and_mul(x, out):\n    os." + b"e" * 5000 + b"\n"

FOUND = [
    # Read to the end here, silently cut short by tarfile.
    ("tar", A + header(b"w/b", fields={108: b"\xc3000000\x00"}) + member("w/c") + END, "ARCHIVE_MALFORMED"),
    ("tar", header(b"w/b", fields={136: b"0000000000_\x00"}) + END, "ARCHIVE_MALFORMED"),
    # 140 bytes here and for GNU tar, none for tarfile and bsdtar.
    ("tar", A + header(b"w/b", 140, fields={124: b"\x0000000000214"}) + bytes(512) + END, "ARCHIVE_MALFORMED"),
    # `w/a` here and for GNU tar and bsdtar, `00000000001/w/a` for tarfile.
    ("tar", member("w/a", magic=GNU, fields={345: b"00000000001"}) + END, "ARCHIVE_MALFORMED"),
    # A canonical form that was not its own canonical form: the node routed by another domain than intake proved.
    ("metadata", b'{"architectures": ["sm_-1"]}', ""),
    ("metadata", b'{"architectures": ["SM__90"]}', ""),
    # Control characters and endless names in a sentence.
    ("report", b'{"cl\x7fsure":[]}', "REPORT_MALFORMED"),
    ("python", b"import os\n\n\ndef silu_and_mul(x, out):\n    getattr(os, 'a\\x08b')\n", "SCAN_ATTRIBUTE"),
    ("python", LONG_NAME, "SCAN_ATTRIBUTE"),
]


@pytest.mark.parametrize(("name", "data", "expected"), FOUND)
def test_found_inputs_have_their_answer(name: str, data: bytes, expected: str) -> None:
    """What fuzzing found stays mended."""
    shape, failure = run_one(BY_NAME[name], data)
    assert not failure
    assert shape.split(" ")[0] == expected
