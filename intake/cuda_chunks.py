"""CUDA text -> the declarations it is made of, and the names each of them declares.

Invariants
1. Comments, blanks, line ends, include guards, includes and `namespace` and `extern "C"` brackets are gone; every other
   token is in exactly one chunk, in order. A region of conditional compilation at the top level is one chunk.
2. A name counts as declared only where the grammar leaves no other reading that occurs in practice: after the name of a
   type, after `*` or `&` behind a type, in a list of declarators, or in a `#define`. A name that the toolchain may
   declare is never renamed, so no two texts are taken for equal that call different functions of it.
3. One pass, linear in the tokens, without recursion.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator, Sequence

from intake.cuda_text import CudaText
from intake.suggest import words

_TOKEN = re.compile(
    r"""\#[ \t\f\v]*define[ \t\f\v]+[A-Za-z_$][\w$]*\(      # the head of a macro with parameters
      | [A-Za-z_$][\w$]*
      | \.?[0-9](?:[eEpP][+-]|['.\w$])*+
      | '(?:[^'\\\n]++|\\.)*+'
      | -> | :: | \+\+ | -- | && | \n | \S""",
    re.VERBOSE | re.ASCII,
)
_INTEGER = re.compile(r"(0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9][0-9]*)([uUlLzZ]*)\Z")
_NAME = re.compile(r"[A-Za-z_$][\w$]*\Z", re.ASCII)
_DEFINE = re.compile(r"#\s*define\s+([\w$]+)\(\Z", re.ASCII)
PLAIN_TYPES = words(
    "void bool char short int long float double signed unsigned auto half size_t ptrdiff_t int8_t int16_t int32_t "
    "int64_t uint8_t uint16_t uint32_t uint64_t uintptr_t half2 __half __half2 __nv_bfloat16 __nv_bfloat162 "
    "nv_bfloat16 nv_bfloat162 bfloat16 float1 float2 float3 float4 double2 double4 int2 int3 int4 uint uint2 "
    "uint3 uint4 short2 short4 char4 uchar4 long2 ulong2 longlong2 ulonglong2 dim3 cudaStream_t cudaError_t"
)
_NOT_TYPES = words(
    "return else do case goto throw new delete sizeof alignof alignas decltype operator not and or xor using namespace "
    "co_return co_yield co_await if while for switch default break continue public private protected friend defined "
    "ifdef ifndef elif undef pragma include template"
)
_KEYWORDS = _NOT_TYPES | words(
    "const constexpr static inline extern volatile mutable register typename class struct union enum typedef true "
    "false nullptr this static_cast reinterpret_cast const_cast dynamic_cast noexcept override final explicit virtual "
    "static_assert threadIdx blockIdx blockDim gridDim warpSize asm"
)
_TYPE_MAKERS = words("typename class struct union enum using")
_RECORDS = words("struct class union enum")
_AFTER_LISTED = frozenset({"=", ",", ";", "[", "{", ":"})
_AFTER_TEMPLATE = frozenset({"=", ";", "{", "["})
_AFTER_POINTER = _AFTER_TEMPLATE | {",", ")"}
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


class Chunk:
    """One declaration: its tokens, the names it declares for others in order, and those it declares for itself."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.shared: dict[str, int] = {}
        self.local: set[str] = set()
        self.members: set[str] = set()
        brace = next((place for place, token in enumerate(tokens) if token in "{("), len(tokens))
        self.is_region = tokens[0] == "#" and tokens[1:2] != ["define"] and tokens[-1] == "#end"
        self.is_directive = tokens[0].startswith("#") and not self.is_region
        self.head: frozenset[str] = frozenset() if self.is_region else frozenset(tokens[:brace])
        self.is_record = bool(self.head & _RECORDS) and "{" in tokens

    def declare(self, name: str, *, shared: bool, member: bool = False) -> None:
        """Note a declared name."""
        if shared:
            self.shared.setdefault(name, len(self.shared))
            if member:
                self.members.add(name)
        else:
            self.local.add(name)


def chunks_of(text: CudaText, most: int = sys.maxsize) -> list[Chunk]:
    """Return the declarations of one file, `most` of them and one more where there are more. Includes are none: headers
    of the bundle are read with the unit, and those of the toolchain only declare."""
    kept = (tokens for tokens in _split(_unguarded(_tokens(text))) if tokens[:2] != ["#", "include"])
    found = [Chunk(tokens) for tokens in itertools.islice(kept, min(most, sys.maxsize - 1) + 1)]
    types = set(PLAIN_TYPES)
    for chunk in found:
        _declare(chunk, types)
    return found


def is_number(token: str) -> bool:
    """Say whether a token is a number."""
    return token[0].isdigit() or (token[0] == "." and len(token) > 1)


def _tokens(text: CudaText) -> list[str]:
    """Return all tokens, line ends among them; a string is one token that starts with a quote."""
    tokens: list[str] = []
    end = 0
    for item in text.strings:
        tokens += _TOKEN.findall(text.code, end, item.start)
        tokens.append(f'"{item.text}')
        end = item.end
    tokens += _TOKEN.findall(text.code, end)
    return tokens


def _unguarded(tokens: list[str]) -> list[str]:
    """Return the tokens of a file without its include guard."""
    words_only = [place for place, token in enumerate(tokens[:64]) if token != "\n"]
    if len(words_only) < 6:
        return tokens
    head = [tokens[place] for place in words_only[:6]]
    guard = head[:2] == ["#", "ifndef"] and head[3:5] == ["#", "define"] and head[2] == head[5]
    if not guard:
        return tokens
    last = len(tokens)
    while last and tokens[last - 1] == "\n":
        last -= 1
    if tokens[last - 2 : last] != ["#", "endif"] or "else" in tokens or "elif" in tokens:
        return tokens
    inner = tokens[words_only[5] + 1 : last - 2]
    opened = 0
    for place, token in enumerate(inner):
        if token == "#" and place + 1 < len(inner):
            opened += inner[place + 1] in ("if", "ifdef", "ifndef")
            opened -= inner[place + 1] == "endif"
            if opened < 0:
                return tokens  # the guard ends before the file does
    return inner


def _split(tokens: list[str]) -> Iterator[list[str]]:
    """Yield the tokens of each chunk."""
    chunk: list[str] = []
    lasting: list[list[str]] = []
    depth = region = spaces = place = 0
    is_line_start = True
    while place < len(tokens):
        token = tokens[place]
        place += 1
        if token == "\n":
            is_line_start = True
            continue
        if is_line_start and token[0] == "#":
            line = _directive(tokens, place - 1)
            place += len(line) - 1
            kind = line[1] if len(line) > 1 and token == "#" else "define"
            region += (kind in ("if", "ifdef", "ifndef")) - (kind == "endif")
            if not chunk and region == 0 and kind != "endif":
                if kind != "pragma" or line[2:] != ["once"]:
                    yield line
                continue
            chunk += [*line, "#end"]
            if region <= 0 and kind == "endif" and chunk[0] == "#" and depth == 0:
                yield chunk
                chunk = []
            continue
        is_line_start = False
        in_region = bool(chunk) and chunk[0] == "#"
        if token in _OPENING:
            if token == "{" and depth == 0 and _is_bracket(chunk):
                chunk, spaces = [], spaces + 1
                continue
            depth += 1
        elif token in _CLOSING:
            if token == "}" and depth == 0 and spaces and not chunk:
                spaces -= 1
                continue
            depth = max(depth - 1, 0)
        chunk.append(_plain(token))
        if depth == 0 and not in_region and _ends(token, chunk, lasting):
            if chunk != [";"]:
                yield chunk
            chunk = []
    if chunk:
        yield chunk


def _directive(tokens: list[str], start: int) -> list[str]:
    """Return the tokens of one directive."""
    end = start
    while end < len(tokens) and tokens[end] != "\n":
        end += 1
    return [_plain(token) for token in tokens[start:end]]


def _plain(token: str) -> str:
    """Return an integer in one spelling; everything else as it is."""
    if not token[0].isdigit():
        return token
    match = _INTEGER.match(token.replace("'", ""))
    if match is None or len(match[1]) > 40:
        return token.lower()
    text = match[1]
    base = 8 if text[0] == "0" and text.isdigit() else 0
    return f"{int(text, base)}{match[2].lower()}"


def _is_bracket(chunk: list[str]) -> bool:
    """Say whether a brace after these tokens only opens a namespace or a linkage."""
    head = chunk[1:4] if chunk[:1] == ["inline"] else chunk[:3]
    return head[:1] == ["namespace"] or (len(head) == 2 and head[0] == "extern" and head[1][0] == '"')


def _ends(token: str, chunk: list[str], lasting: list[list[str]]) -> bool:
    """Say whether a declaration ends with its last token. `lasting` keeps the one that is known to go on after braces:
    it may have one for every other token, and is looked through once."""
    if token != "}":
        return token == ";"
    if not (lasting and lasting[0] is chunk) and _goes_on(chunk):
        lasting[:] = [chunk]
    return not (lasting and lasting[0] is chunk)


def _goes_on(chunk: list[str]) -> bool:
    """Say whether a declaration goes on after its closing brace, up to a semicolon."""
    for token in chunk:
        if token in ("{", "("):
            return False
        if token in _RECORDS or token in ("=", "typedef"):
            return True
    return False


def _declare(chunk: Chunk, types: set[str]) -> None:
    """Note the names that a chunk declares; adds the types among them to `types`."""
    tokens = chunk.tokens
    if chunk.is_directive:
        _declare_macro(chunk)
        return
    parens = braces = angles = 0
    listed: tuple[int, int] | None = None  # where a list of declarators goes on
    in_template = False
    for place, token in enumerate(tokens):
        before = tokens[place - 1] if place else ""
        if token in "([":
            parens += 1
        elif token in ")]":
            parens -= 1
        elif token == "{":
            braces += 1
        elif token == "}":
            braces -= 1
        elif token == ";":
            listed = None
        elif token == "template" and braces + parens == 0:
            in_template, angles = True, 0
        elif in_template and token in "<>":
            angles += 1 if token == "<" else -1
            in_template = angles > 0
        elif _NAME.match(token) and _is_declared(tokens, place, before, types, listed == (parens, braces)):
            is_member = chunk.is_record and braces == 1 and parens == 0
            shared = parens == 0 and (braces == 0 or is_member) and not in_template
            chunk.declare(token, shared=shared, member=is_member)
            listed = (parens, braces)
            if before in _TYPE_MAKERS:
                types.add(token)


def _declare_macro(chunk: Chunk) -> None:
    head = _DEFINE.match(chunk.tokens[0])
    if head is not None:
        chunk.declare(head[1], shared=True)
        end = chunk.tokens.index(")") if ")" in chunk.tokens else 0
        for token in chunk.tokens[1:end]:
            if _NAME.match(token):
                chunk.declare(token, shared=False)
        chunk.tokens = ["#define(", head[1], *chunk.tokens[1:]]
    elif chunk.tokens[1:2] == ["define"] and len(chunk.tokens) > 2:
        chunk.declare(chunk.tokens[2], shared=True)


def _is_declared(tokens: Sequence[str], place: int, before: str, types: set[str], is_listed: bool) -> bool:
    token = tokens[place]
    if token in _KEYWORDS or token in PLAIN_TYPES or token.startswith("__"):
        return False
    after = tokens[place + 1] if place + 1 < len(tokens) else ""
    if before in ("*", "&", "&&"):
        start = place - 1
        while start > 0 and tokens[start] in ("*", "&", "&&"):
            start -= 1
        if tokens[start] == ">":
            return after in _AFTER_POINTER
        return tokens[start] in types or (is_listed and tokens[start] == "," and after in _AFTER_LISTED)
    if before == ",":
        return is_listed and after in _AFTER_LISTED
    if before == ">":
        return after in _AFTER_TEMPLATE
    if _NAME.match(before) is None:
        return False
    return before not in _NOT_TYPES or before == "using"
