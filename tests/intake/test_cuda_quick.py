"""Shortcuts in reading CUDA change nothing: a text that takes them reads like the same text that cannot."""

from __future__ import annotations

import hashlib
import re
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import IntakeError
from intake.cuda_plain import read_plain
from intake.cuda_sources import find_includes, load_cuda
from intake.cuda_text import CudaText, LineMap, read_carefully, read_cuda
from intake.cuda_tokens import token_digest
from intake.refusal import Findings

_SLOW = "/*??!*/\n"  # what begins like a trigraph is left to the careful lexer
_SHIFT = len(_SLOW)
_PASTE = "#define JOINED a##b\n"  # pasted words turn the shortcuts of the searches off
_PIECES = st.sampled_from(
    [
        *(
            "/",
            "//",
            "/*",
            "*/",
            '"',
            "'",
            "\\",
            "\n",
            "\\\n",
            "#",
            "%:",
            "??/",
            "??=",
            "\r\n",
            "R",
            "u8R",
            'R"(',
            ')"',
        ),
        *('R"x(', ')x"', "1'000", "x", " ", "\t", "(", ")", ";", '"abc"', '"a\\"b"', "// note\n", "/* a\nb */", "'\"'"),
        *('#include "a.cuh"\n', "#include <x>\n", '__has_include("a")', "__has_include_next(<a>)", "__has_embed(<a>)"),
        *(
            "_has_include(<a>)",
            "incbin",
            "inc",
            "bin",
            ".IncBin",
            'asm(".incbin")',
            "import <a>",
            "import",
            "ximport <a>",
        ),
        *('".inc" "bin"', "#define A\n", "defined(", "#ifdef ", '"\\x69nc" "bin"', '"\\u00\\\\41"', '".include" "x"'),
        *("??", "%", "'a'", "'\\''", "1.", "é", '"é"', "// é\n", "don't", "/**/", "#pragma once\n"),
        "#pragma dependency\n",
        *("#pragma unroll (4)\n", "#pragma unroll dependency\n", "#elif A\n", "#elifx\n", "# 1\n"),
        *("#define$\n", "\x0c"),
        *("_##has_include(<a>)", "i##n ## cbin", "IMPORT <a>", "__global__ void f(float* a);", "\x85", "\xa0", "\x1f"),
    ]
)
_TEXTS = st.lists(_PIECES, max_size=16).map("".join)


def _read(text: str) -> CudaText | tuple[str, str, int]:
    try:
        return read_cuda("a.cuh", text.encode())
    except IntakeError as error:
        return error.code, error.message, error.location.line if error.location else 0


@settings(max_examples=400)
@given(_TEXTS)
def test_the_lexer_reads_the_same_with_and_without_shortcuts(text: str) -> None:
    quick, slow = _read(text), _read(_SLOW + text)
    if not isinstance(quick, CudaText) or not isinstance(slow, CudaText):
        assert isinstance(quick, tuple)
        assert isinstance(slow, tuple)
        assert (*quick[:2], quick[2] + 1) == slow
        return
    assert quick.code == slow.code[_SHIFT:]
    assert list(quick.strings) == [(item.start - _SHIFT, item.end - _SHIFT, item.text) for item in slow.strings]
    assert all(quick.lines.line(place) + 1 == slow.lines.line(place + _SHIFT) for place in range(len(quick.code)))


@settings(max_examples=400)
@given(_TEXTS)
def test_the_searches_find_the_same_with_and_without_shortcuts(text: str) -> None:
    quick, slow = _read(text), _read(_PASTE + text)
    if not isinstance(quick, CudaText) or not isinstance(slow, CudaText):
        return
    found, expected = Findings(), Findings()
    includes = [include._replace(line=include.line + 1) for include in find_includes(quick, found)]
    assert includes == find_includes(slow, expected)
    assert [(item.code, item.message) for item in found.documents()] == [
        (item.code, item.message) for item in expected.documents()
    ]


def test_lines_are_known_beyond_the_first_block() -> None:
    text = read_cuda("a.cuh", b"int a;\n" * 2000)
    assert [text.lines.line(place) for place in (0, 7, 4095, 4096, 13_999)] == [1, 2, 586, 586, 2000]


@settings(max_examples=400)
@given(_TEXTS)
def test_what_is_read_as_plain_text_reads_the_same_carefully(text: str) -> None:
    spliced = text.replace("\\\n", "").encode().decode("latin-1")
    plain = read_plain(spliced)
    if plain is not None:
        careful = read_carefully("a.cuh", spliced, LineMap(spliced, []))
        assert plain == (careful.code, careful.strings)


@pytest.mark.parametrize(
    "text", ["a // é\n", 'f("é %s\\n", "", \'"\');\n', "a / b /* ' \" */ // don't", "a % b ? c : d;\n"]
)
def test_ordinary_texts_are_plain(text: str) -> None:
    assert read_plain(text.encode().decode("latin-1")) is not None


@pytest.mark.parametrize(
    "text", ["/*", '"a', "'a", 'R"(a)"', "1'000", "é", "??", "%:", '"a\n"', "/ " * 60_000, '"";' * 60_000]
)
def test_anything_else_is_left_to_the_careful_lexer(text: str) -> None:
    assert read_plain(text) is None


_BLANKS = st.text(" \t\n\x0b\x0c\x1c\x1f\x85\xa0", max_size=20)
_WORDS = st.sampled_from(["a", "b_1", "$", "+", "(", "->", "é", "#", "0x1F", ""])


@settings(max_examples=300)
@given(st.lists(st.tuples(_WORDS, _BLANKS), max_size=30), st.integers(1, 64))
def test_blanks_count_between_words_only_wherever_the_windows_end(parts: list[tuple[str, str]], window: int) -> None:
    code = "".join(word + blanks for word, blanks in parts)
    tokens = " ".join(code.split())
    expected = re.sub(r"(?<=[\w$]) (?=[\w$])", "\x1f", tokens).replace(" ", "")
    with patch("intake.cuda_tokens._WINDOW", window):
        digest = token_digest(CudaText("a.cuh", code, (), LineMap(code, [])), ())
    assert digest == hashlib.sha256(expected.encode("latin-1")).hexdigest()


@pytest.mark.parametrize(
    "text",
    [
        "1." * 500_000 + " 'a'",
        "__has_include(<" * 200_000,
        "__has_include(<" * 200_000 + ">",
        "incbin " * 400_000,
        "#define A " + "# a " * 400_000,
        '"' + "GCC " * 400_000 + '"',
    ],
)
def test_hostile_lines_take_no_more_than_linear_time(text: str) -> None:
    """Read in less than a second. Growing with the square of the length, time would exceed the limit of a test."""
    findings = Findings()
    load_cuda({"a.cuh": 1}, {"a.cuh": text.encode()}, findings)
    assert {item.code for item in findings.documents()} <= {"CUDA_INCLUDE", "CUDA_TOO_COMPLEX"}
