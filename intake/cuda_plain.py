"""CUDA text as most of it is written, read quickly; anything else is left to the careful lexer of `intake.cuda_text`.

Invariants
1. What is read here reads exactly as the careful lexer reads it. Nothing is refused here, and nothing is guessed: a
   text with anything that could mean something else in some mode is not plain.
2. A plain text has closed comments, closed literals on one line, ASCII outside both, no raw string, no digit separator,
   no pair of characters that begins a trigraph or a digraph for #, and a bounded number of comments and literals.
3. One pass, linear in the size of the file: a search starts where the one before it ended.
"""

from __future__ import annotations

import itertools
import re
from typing import NamedTuple

_ONE_MARK = bytes.maketrans(b"/'", b'""')  # all that can begin a comment or a literal looks alike: one search finds it
# A string that is not raw, or a character: after a number, a quote would be a digit separator.
_LITERAL = re.compile(r"""(?<!R)"(?:[^"\\\n]++|\\.)*+"|(?<![0-9A-Za-z_$.])'(?:[^'\\\n]++|\\.)*+'""")
_MAX_PLAIN = 50_000  # comments, literals and divisions of one file
_RARE = 1000  # as often a character is looked up one by one


class CudaString(NamedTuple):
    """One string literal of the code: its half-open range in `code` and the text between its quotes, escapes intact."""

    start: int
    end: int
    text: str


def read_plain(text: str) -> tuple[str, tuple[CudaString, ...]] | None:
    """Return a spliced text with its comments blanked, and its string literals; None when the text is not plain."""
    if _holds(text, "??") or _holds(text, "%:"):
        return None
    literal, find, find_mark = (
        _LITERAL.match,
        text.find,
        text.encode("latin-1").translate(_ONE_MARK).decode("latin-1").find,
    )
    pieces: list[str] = []
    strings: list[tuple[int, int, str]] = []
    taken = end = 0
    for _ in range(_MAX_PLAIN):
        start = find_mark('"', end)
        if start < 0:
            code = "".join((*pieces, text[taken:]))
            if not code.isascii() and not _without(code, strings).isascii():
                return None
            return code, tuple(map(tuple.__new__, itertools.repeat(CudaString), strings))
        if text[start] != "/":
            token = literal(text, start)
            if token is None:
                return None
            end = token.end()
            if text[start] == '"':
                strings.append((start, end, text[start + 1 : end - 1]))
            continue
        second = text[start + 1 : start + 2]
        if second == "/":
            end = find("\n", start)
            if end < 0:
                end = len(text)
        elif second == "*":
            end = find("*/", start + 2) + 2
            if end < 2:
                return None
        else:
            end = start + 1
            continue
        pieces += (text[taken:start], " " * (end - start))
        taken = end
    return None


def _holds(text: str, pair: str) -> bool:
    """Say whether `pair` stands in the text; quick where its first character is rare."""
    place = text.find(pair[0])
    for _ in range(_RARE):
        if place < 0 or text.startswith(pair, place):
            return place >= 0
        place = text.find(pair[0], place + 1)
    return pair in text


def _without(code: str, strings: list[tuple[int, int, str]]) -> str:
    """Return the code without its string literals."""
    ends = [0, *(end for _, end, _ in strings)]
    starts = [*(start for start, _, _ in strings), len(code)]
    return "".join(code[end:start] for end, start in zip(ends, starts, strict=True))
