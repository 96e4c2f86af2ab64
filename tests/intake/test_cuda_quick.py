"""Shortcuts in reading CUDA change nothing: a text that takes them reads like the same text that cannot."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import IntakeError
from intake.cuda_sources import find_includes
from intake.cuda_text import CudaText, read_cuda
from intake.refusal import Findings

_SLOW = "/*é*/\n"  # a character beyond ASCII turns the shortcuts of the lexer off
_SHIFT = len(_SLOW.encode())
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
        *('".inc" "bin"', "#define A\n", "defined(", "#ifdef "),
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
