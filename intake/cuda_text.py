"""CUDA source as the preprocessor sees it: splices joined, comments gone, strings kept, every byte still countable.

Invariants
1. Comments, strings, character constants, raw strings and digit separators are told apart as C++17 does, so nothing
   can hide in a comment that the compiler does not see as one, and nothing outside can look hidden.
2. Where compilers or their modes disagree, the text is refused instead of guessed: trigraphs, `%:` digraphs, lone
   carriage returns, characters beyond ASCII outside literals and comments, raw strings glued to another token or
   running on from a directive, comments that never end.
3. `code` has one character for each byte of the spliced text; a comment becomes blanks, also across lines, so a line of
   `code` is a logical line. Bytes above 127, in literals, stand as themselves (Latin-1).
4. One pass, linear in the size of the file; the number of literals, comments and joined lines is bounded.
"""

from __future__ import annotations

import bisect
import itertools
import re
import string
from typing import NamedTuple

from config.errors import IntakeError, SourceLocation
from intake.cuda_plain import CudaString, read_plain

_SPLICE = re.compile(r"\\[ \t\f]*\n")  # GCC, which preprocesses for nvcc, joins lines across trailing blanks too
_WORD = r"0-9A-Za-z_$"
# Where something begins that is not plain code. Each alternative starts with a literal: the scan skips at C speed.
_STARTS = re.compile(r""""|'|//|/\*|%:|\?\?[=/'()!<>-]""")
# Possessive repeats: backtracking into a hostile literal would cost memory for each of its characters.
_QUOTED = re.compile(
    r"""
      "(?:[^"\\\n]++|\\.)*+(?:"|(?=\n)|\\?\Z)
    | '(?:[^'\\\n]++|\\.)*+(?:'|(?=\n)|\\?\Z)
    """,
    re.VERBOSE,
)
_RAW_PREFIX = re.compile(rf"(?<![{_WORD}])(?:u8|[uUL])?R\Z")
_NUMBER_START = re.compile(rf"(?<![{_WORD}])[0-9]")
_IN_NUMBERS = string.ascii_letters + string.digits + "_$."
_NUMBER_REST = re.compile(rf"(?:'[0-9A-Za-z_][{_WORD}.]*+)++")
_FOREIGN = re.compile(r"[^\x00-\x7f]")
_MAX_TOKENS = 100_000  # literals and comments, or joined lines, of one file; bounds memory
_BLOCK = 4096  # characters between two known line numbers
_DELIMITER = re.compile(r'[^()\\\s"]{0,16}')
_TRIGRAPH = re.compile(r"\?\?[=/'()!<>-]")
_SPLICING_TRIGRAPH = re.compile(r"\?\?/[ \t\f]*\n")
_GLUE = frozenset("\"'.+-")  # a raw-string prefix right after one of these belongs to another token in some mode


class LineMap:
    """Original line numbers of offsets in spliced text; `splices` are the offsets at which lines were joined."""

    def __init__(self, text: str, splices: list[int]) -> None:
        self._text = text
        self._splices = splices
        self._before: list[int] = []  # line ends before each block; counted when an offset beyond the first asks

    def line(self, offset: int) -> int:
        """Return the line of the character at `offset`."""
        if offset < _BLOCK:
            return 1 + self._text.count("\n", 0, offset) + bisect.bisect_right(self._splices, offset)
        if not self._before:
            counts = (self._text.count("\n", start, start + _BLOCK) for start in range(0, len(self._text), _BLOCK))
            self._before = list(itertools.accumulate(counts, initial=0))
        block = min(offset, len(self._text)) // _BLOCK
        inside = self._text.count("\n", block * _BLOCK, offset)
        return 1 + self._before[block] + inside + bisect.bisect_right(self._splices, offset)

    def is_joined(self, start: int, end: int) -> bool:
        """Say whether lines were joined inside a half-open range."""
        return bisect.bisect_right(self._splices, start) != bisect.bisect_left(self._splices, end)


class CudaText(NamedTuple):
    """A readable CUDA file: spliced text with comments blanked, its string literals, and where its lines were."""

    path: str
    code: str
    strings: tuple[CudaString, ...]
    lines: LineMap


def read_cuda(path: str, data: bytes) -> CudaText:
    """Read one .cu or .cuh file. Raises `IntakeError` (CUDA_NOT_TEXT, CUDA_LEXICAL) with the line."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise IntakeError("CUDA_NOT_TEXT", "the file is not UTF-8.", location=SourceLocation(path, line)) from None
    text = data.decode("latin-1")
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    for bad, what in (("\r", "a carriage return without a line feed"), ("\0", "a NUL byte")):
        if bad in text:
            line = text.count("\n", 0, text.index(bad)) + 1
            raise IntakeError("CUDA_NOT_TEXT", f"the file holds {what}.", location=SourceLocation(path, line))
    spliced, splices = _join_lines(text)
    if len(splices) > _MAX_TOKENS:
        message = f"the file joins more than {_MAX_TOKENS} lines."
        raise IntakeError("CUDA_TOO_COMPLEX", message, location=SourceLocation(path))
    lines = LineMap(spliced, splices)
    plain = read_plain(spliced)
    return read_carefully(path, spliced, lines) if plain is None else CudaText(path, *plain, lines)


def read_carefully(path: str, spliced: str, lines: LineMap) -> CudaText:
    """Read any spliced text. Raises `IntakeError` (CUDA_LEXICAL, CUDA_TOO_COMPLEX) with the line."""
    return _Lexer(path, spliced, lines).run()


def _join_lines(text: str) -> tuple[str, list[int]]:
    """Join continued lines, up to one more than the bound allows."""
    if "\\" not in text:
        return text, []
    pieces: list[str] = []
    splices: list[int] = []
    end = length = 0
    for match in itertools.islice(_SPLICE.finditer(text), _MAX_TOKENS + 1):
        pieces.append(text[end : match.start()])
        length += match.start() - end
        splices.append(length)
        end = match.end()
    pieces.append(text[end:])
    return "".join(pieces), splices


class _Lexer:
    def __init__(self, path: str, text: str, lines: LineMap) -> None:
        self._path = path
        self._text = text
        self._lines = lines
        self._pieces: list[str] = []
        self._strings: list[CudaString] = []
        self._plain_ascii = text.isascii()
        self._line_head = ""  # first character of the logical line that is not blank, after `_heads` pieces
        self._heads = 0

    def run(self) -> CudaText:
        text, end = self._text, 0
        while (match := _STARTS.search(text, end)) is not None:
            start = match.start()
            if len(self._pieces) > 2 * _MAX_TOKENS:
                message = f"the file has more than {_MAX_TOKENS} literals and comments"
                raise self._refusal(message, start, "CUDA_TOO_COMPLEX")
            self._plain(end, start)
            end = self._token(match.group(), end, start)
        self._plain(end, len(text))
        return CudaText(self._path, "".join(self._pieces), tuple(self._strings), self._lines)

    def _token(self, opening: str, before: int, start: int) -> int:
        """Take what begins at `start` into `code` and return where it ends; plain code runs from `before` to it."""
        match opening:
            case "//" | "/*":
                return self._comment(start, block=opening == "/*")
            case "%:":
                raise self._refusal("the digraph %: stands for #", start)
            case "'" if (rest := self._number_rest(before, start)) is not None:
                self._pieces.append(self._text[start:rest])
                return rest
            case '"' if (prefix := _RAW_PREFIX.search(self._text, max(before, start - 3), start)) is not None:
                return self._raw(prefix.start(), start)
            case "'" | '"':
                return self._quoted(start)
        raise self._refusal("the code holds a trigraph", start)

    def _number_rest(self, before: int, start: int) -> int | None:
        """Return where the number ends in which the quote at `start` is a digit separator; None when it is not one."""
        rest = _NUMBER_REST.match(self._text, start)
        if rest is None:
            return None
        # The word is found from its end: from every digit of hostile code it would be read again and again.
        word = start - len(plain := self._text[before:start]) + len(plain.rstrip(_IN_NUMBERS))
        return rest.end() if _NUMBER_START.search(self._text, word, start) else None

    def _quoted(self, start: int) -> int:
        token = _QUOTED.match(self._text, start)
        end = token.end() if token else start + 1
        if _TRIGRAPH.search(self._text, start, end):
            raise self._refusal("a literal holds a trigraph", start)
        text = self._text[start:end]
        if text[0] == '"':
            self._strings.append(CudaString(start, end, text[1:].removesuffix('"')))
        self._pieces.append(text)
        return end

    def _plain(self, start: int, end: int) -> None:
        foreign = None if self._plain_ascii else _FOREIGN.search(self._text, start, end)
        if foreign:
            raise self._refusal("the code holds a character beyond ASCII outside a literal", foreign.start())
        self._pieces.append(self._text[start:end])

    def _continues_directive(self) -> bool:
        """Say whether the logical line so far is a directive."""
        for piece in self._pieces[self._heads :]:
            _, newline, rest = piece.rpartition("\n")
            if newline or not self._line_head:
                self._line_head = rest.lstrip(" \t\f\v")[:1]
        self._heads = len(self._pieces)
        return self._line_head == "#"

    def _comment(self, start: int, *, block: bool) -> int:
        end = self._text.find("*/" if block else "\n", start + 2)
        if end < 0 and block:
            raise self._refusal("a comment never ends", start)
        end = len(self._text) if end < 0 else end + 2 * block
        if _SPLICING_TRIGRAPH.search(self._text, start, end + 1):
            raise self._refusal("the trigraph ??/ at the end of a line continues a comment in some modes", start)
        self._pieces.append(" " * (end - start))
        return end

    def _raw(self, start: int, quote: int) -> int:
        delimiter = _DELIMITER.match(self._text, quote + 1)
        opening = delimiter.end() if delimiter else quote + 1
        closing = ")" + self._text[quote + 1 : opening] + '"'
        close = self._text.find(closing, opening)
        if not self._text.startswith("(", opening) or close < 0:
            raise self._refusal("a raw string is malformed", start)
        if start and self._text[start - 1] in _GLUE:
            raise self._refusal("a raw string is glued to the token before it", start)
        end = close + len(closing)
        if self._lines.is_joined(start, opening + 1) or self._lines.is_joined(close, end):
            raise self._refusal("a delimiter of a raw string holds a line splice", start)
        if "\n" in self._text[start:end] and self._continues_directive():
            raise self._refusal("a raw string continues a directive on the next line", start)
        # Escapes mean nothing in a raw string: double the backslashes so that all strings read alike.
        content = self._text[opening + 1 : close].replace("\\", "\\\\")
        self._strings.append(CudaString(start, end, content))
        self._pieces.append('"' + "_" * (end - quote - 2) + '"')
        return end

    def _refusal(self, complaint: str, offset: int, code: str = "CUDA_LEXICAL") -> IntakeError:
        hint = "Write plain C++17: compilers, or their modes, read this in different ways." if "LEX" in code else ""
        where = SourceLocation(self._path, self._lines.line(offset))
        return IntakeError(code, f"{complaint}.", hint=hint, location=where)
