"""Declared CUDA sources: names, units, and everything they can include.

Invariants
1. A declared file is a `.cu` unit or a `.cuh` header of the bundle. The stem of a unit is its import name: a Python
   identifier, no keyword, one unit each, and no module of the bundle.
2. Every include names its file literally. A file of the bundle that an include can reach is declared and a header; a
   name that is not in the bundle belongs to the toolchain and is a plain relative path.
3. `__has_include` asks about files, so it follows the same rule. Nothing else may bring a file in: no `#include_next`,
   `#import`, `#embed`, module import, precompiled header, `.incbin` or assembler `.include`.
4. Directives come from a closed list. This is defence in depth: the builder also checks what the compiler really read.
"""

from __future__ import annotations

import bisect
import keyword
import posixpath
import re
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from config.canonical import path_order, sorted_paths
from config.errors import IntakeError, SourceLocation
from intake.cuda_text import CudaText, read_cuda
from intake.cuda_tokens import token_digest
from intake.manifest_fields import MANIFEST
from intake.names import suffix_of
from intake.refusal import Findings, clip
from intake.suggest import words

_HASH = re.compile(r"#[ \t\f\v]*([^\n]*)")
_NAME = re.compile(r"[A-Za-z_][0-9A-Za-z_$\x80-\xff]*")
_ALLOWED = words("include define undef if ifdef ifndef elif elifdef elifndef else endif error warning pragma line")
# Directives that say nothing about files, as far as their first words tell.
_PLAIN = r"(?:define|undef|if(?:n?def)?|el(?:se|if(?:n?def)?)|endif|error|warning|line)(?![0-9A-Za-z_$\x80-\xff])"
_PLAIN_PRAGMA = r"pragma[ \t]+(?:once|unroll)[ \t0-9()]*+(?!.)"
_NOTABLE = re.compile(rf"#(?![ \t\f\v]*(?:{_PLAIN}|{_PLAIN_PRAGMA}))[ \t\f\v]*([^\n]*)")
_MAX_INCLUDES = 4096  # of one file
_MAX_DIRECTIVES = 100_000  # of one file
_MAX_REFUSALS = 10_000  # of one file, those included that are alike or beyond the number that is told
_HEADER = re.compile(r'(?P<system><[^>\n]*>)|(?P<quoted>"[^"\n]*")')
_PASTE = r"(?:\s*\#\#\s*)?"  # `in##cbin` is one word to the compiler
# Patterns start with a literal and look back after it, which lets the scan skip at C speed.
_HAS_FILE = re.compile(
    rf"_(?<!\w_){_PASTE}{_PASTE.join('_has_')}{_PASTE}(?:{_PASTE.join('include')}|{_PASTE.join('embed')})"
    rf"(?P<next>{_PASTE}{_PASTE.join('_next')})?(?!\w)"
)
# Bounded, as in a hostile line every question would read on to the end of the line.
_ASKED = re.compile(r'\s*\(\s*(<[^>\n]{0,4096}+>|"[^"\n]{0,4096}+")\s*\)')
_DEFINES = re.compile(r"(?:\bdefined\s*\(?|#\s*(?:(?:el)?ifn?def|define|undef))\s*\Z")
_INCBIN = re.compile(rf"[iI](?<!\w[iI]){_PASTE}(?i:{_PASTE.join('ncbin')})(?!\w)")
# Every question and every other way is one of these words, whatever stands between its pasted pieces: with all other
# characters gone it is in one piece.
_WORDS = (b"_has_", b"incbin", b"import")
_LOWER = bytes(range(256)).lower()
_ELSE = bytes(code for code in range(256) if bytes((code,)).lower() not in b"".join(_WORDS))
_MODULE = re.compile(r"import(?<!\wimport)\s*[<\"]")
_IN_STRINGS = re.compile(r"incbin|\.include\b|pch_preprocess|include_alias|GCC\s+dependency", re.IGNORECASE)
_TELLING = ("incbin", ".include", "pch_preprocess", "include_alias", "dependency")  # one is in all of these strings
_IN_PRAGMAS = re.compile(r"\b(?:pch_preprocess|include_alias|dependency)\b")
_NEARBY = 64  # characters before a question in which `defined` or `#ifdef` may stand
_LITERAL = 'Write "file.cuh" or <header> itself, without macros.'
_SEPARATES = re.compile(r"[,;(){}]")
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]+|[0-7]{1,3}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})")


class Include(NamedTuple):
    """One literal include (or `__has_include`) at `line`; `quoted` tells `"name"` from `<name>`."""

    name: str
    quoted: bool
    line: int


class CudaSources(NamedTuple):
    """The CUDA side of a bundle. `units` maps import names to `.cu` paths; `edges` maps every declared file to the
    headers of the bundle it includes; `external` are the toolchain headers that are named; `digests` say what each
    file that could be read holds (`intake.cuda_tokens`). All in path order."""

    units: dict[str, str]
    headers: tuple[str, ...]
    edges: dict[str, tuple[str, ...]]
    external: tuple[str, ...]
    digests: dict[str, str]

    def closure(self, path: str) -> tuple[str, ...]:
        """Return every header of the bundle that a declared file reaches, in path order."""
        reached: set[str] = set()
        pending = [path]
        while pending:
            fresh = set(self.edges.get(pending.pop(), ())) - reached
            reached |= fresh
            pending += fresh
        return tuple(sorted_paths(reached))


def load_cuda(
    declared: Mapping[str, int], files: Mapping[str, bytes], findings: Findings, modules: Collection[str] = ()
) -> CudaSources:
    """Check the declared files and what they include; what is wrong becomes findings.

    `declared` maps each path of any row's `cuda_sources` to the line of its row in the manifest; paths that are no
    file of the bundle are the manifest's business and skipped. `modules` are the top-level Python names of the bundle.
    Codes: CUDA_SUFFIX, CUDA_UNIT, CUDA_INCLUDE, CUDA_DIRECTIVE, CUDA_LEXICAL, CUDA_NOT_TEXT,
    CUDA_TOO_COMPLEX.
    """
    paths = [path for path in sorted_paths(declared) if path in files]
    units = _units(paths, declared, modules, findings)
    edges: dict[str, tuple[str, ...]] = {}
    digests: dict[str, str] = {}
    external: set[str] = set()
    for path in paths:
        text = findings.attempt(lambda path=path: read_cuda(path, bytes(files[path])))  # type: ignore[misc]
        if text is None:
            continue
        local: set[str] = set()
        for include in find_includes(text, findings):
            try:
                target = _resolve(path, include, declared, files)
            except IntakeError as error:
                findings.take(error)
                continue
            if target:
                local.add(target)
            else:
                external.add(include.name)
        edges[path] = tuple(sorted_paths(local))
        digests[path] = token_digest(text, local)
    headers = tuple(path for path in paths if suffix_of(path) == ".cuh")
    return CudaSources(units, headers, edges, tuple(sorted(external, key=path_order)), digests)


def _units(
    paths: list[str], declared: Mapping[str, int], modules: Collection[str], findings: Findings
) -> dict[str, str]:
    units: dict[str, str] = {}
    folded: dict[str, str] = {}
    hint = "A unit is imported by its stem: rename the file."
    for path in paths:
        stem = path.rpartition("/")[2].removesuffix(".cu")
        problem = ""
        if suffix_of(path) == ".cuh":
            continue
        if suffix_of(path) != ".cu":
            findings.add("CUDA_SUFFIX", f"{clip(path)} is not a .cu or .cuh file.", path=MANIFEST, line=declared[path])
            continue
        if not (stem.isascii() and stem.isidentifier()) or keyword.iskeyword(stem):
            problem = f"the stem of {clip(path)} is not a plain identifier."
        elif stem in modules:
            problem = f"{clip(path)} has the import name of a Python module of the bundle."
        elif folded.setdefault(stem.casefold(), path) != path:
            problem = f"{clip(path)} and {clip(folded[stem.casefold()])} have one import name."
        if problem:
            findings.add("CUDA_UNIT", problem, hint=hint, path=MANIFEST, line=declared[path])
        else:
            units[stem] = path
    return units


def find_includes(text: CudaText, findings: Findings) -> list[Include]:
    """Return every literal include of one file; every other way of bringing a file in becomes a finding."""
    scan = _FileScan(text, findings)
    try:
        scan.directives()
        if may_have_words(text.code):
            scan.questions()
            scan.other_ways()
        scan.strings()
    except IntakeError as error:
        findings.take(error)
    return scan.includes


def may_have_words(code: str) -> bool:
    """Say whether code, its words pasted or not, may ask for a file or bring one in other than by a directive."""
    letters = code.encode("latin-1").translate(_LOWER, _ELSE)
    return any(word in letters for word in _WORDS)


class _FileScan:
    def __init__(self, text: CudaText, findings: Findings) -> None:
        self._text = text
        self._findings = findings
        self._refusals = 0
        self.includes: list[Include] = []

    def directives(self) -> None:
        """Read `#include` lines and refuse directives outside the closed list."""
        for count, (body, offset) in enumerate(self._directive_lines()):
            if count == _MAX_DIRECTIVES:
                raise self._too_complex(f"the file has more than {_MAX_DIRECTIVES} directives.", offset)
            match = _NAME.match(body)
            name = match.group() if match else ""
            if not name and body.strip():
                self._refuse("CUDA_DIRECTIVE", "a directive has no name.", offset)
            elif name and name not in _ALLOWED:
                self._refuse("CUDA_DIRECTIVE", f"the directive {clip('#' + name)} is not admitted.", offset)
            elif name == "include":
                self._include(body[len(name) :].strip(" \t\f\v"), offset)
            elif name == "pragma" and _IN_PRAGMAS.search(body):
                self._refuse("CUDA_DIRECTIVE", "the pragma reads another file.", offset)

    def _directive_lines(self) -> Iterator[tuple[str, int]]:
        """Yield what follows each # that is the first character of its line but for blanks, and where it starts."""
        code = self._text.code
        # A directive takes two characters at least, so a short file has not too many of them, whatever they are.
        is_short = len(code) <= 2 * _MAX_DIRECTIVES
        for match in (_NOTABLE if is_short else _HASH).finditer(code):
            if not code[code.rfind("\n", 0, match.start()) + 1 : match.start()].strip(" \t\f\v"):
                yield match.group(1), match.start(1)

    def questions(self) -> None:
        """Read `__has_include(...)`, which asks about a file as `#include` does."""
        code = self._text.code
        for match in _HAS_FILE.finditer(code):
            start, end = match.span()
            before = code[max(0, start - _NEARBY) : start].rpartition("\n")[2]
            asked = _ASKED.match(code, end)
            if self._in_string(start) or _DEFINES.search(before):
                continue
            if asked is None or match["next"] or "embed" in match.group():
                self._refuse("CUDA_INCLUDE", "the question for a file does not name it literally.", start, _LITERAL)
            else:
                self._include(asked.group(1), start)

    def other_ways(self) -> None:
        """Refuse assembler directives and module imports."""
        for pattern, message in ((_INCBIN, ".incbin brings a file in."), (_MODULE, "an import brings a file in.")):
            for match in pattern.finditer(self._text.code):
                if not self._in_string(match.start()):
                    self._refuse("CUDA_INCLUDE", message, match.start())

    def strings(self) -> None:
        """Refuse strings that name a file to read."""
        for offset, joined in _joined_strings(self._text) if _may_tell(self._text) else ():
            if _IN_STRINGS.search(joined):
                message = "a string tells the assembler or the compiler to read a file."
                self._refuse("CUDA_INCLUDE", message, offset)

    def _include(self, header: str, offset: int) -> None:
        name = header[1:-1].encode("latin-1").decode("utf-8", "replace")
        if _HEADER.fullmatch(header) is None or "\ufffd" in name:
            self._refuse("CUDA_INCLUDE", "the include does not name its file literally.", offset, _LITERAL)
        elif len(self.includes) == _MAX_INCLUDES:
            raise self._too_complex(f"the file has more than {_MAX_INCLUDES} includes.", offset)
        else:
            self.includes.append(Include(name, header.startswith('"'), self._text.lines.line(offset)))

    def _in_string(self, offset: int) -> bool:
        index = bisect.bisect_right(self._text.strings, offset, key=lambda item: item.start) - 1
        return index >= 0 and offset < self._text.strings[index].end

    def _too_complex(self, message: str, offset: int) -> IntakeError:
        where = SourceLocation(self._text.path, self._text.lines.line(offset))
        return IntakeError("CUDA_TOO_COMPLEX", message, location=where)

    def _refuse(self, code: str, message: str, offset: int, hint: str = "") -> None:
        self._refusals += 1
        if self._refusals > _MAX_REFUSALS:
            raise self._too_complex(f"the file breaks rules in more than {_MAX_REFUSALS} places.", offset)
        self._findings.add(code, message, hint=hint, path=self._text.path, line=self._text.lines.line(offset))


def _may_tell(text: CudaText) -> bool:
    """Say whether any strings of a file, however they are joined, may tell something to read a file."""
    joined = "".join([item.text for item in text.strings]).replace("\\\\", "")
    return _ESCAPE.search(joined) is not None or any(word in joined.replace("\\", "").lower() for word in _TELLING)


def _joined_strings(text: CudaText) -> Iterator[tuple[int, str]]:
    """Yield adjacent string literals as one text, escapes resolved: macros between them do not part them."""
    group: list[str] = []
    offset = 0
    end = 0
    for item in text.strings:
        if group and _SEPARATES.search(text.code, end, item.start):
            yield offset, _unescaped("".join(group))
            group = []
        if not group:
            offset = item.start
        group.append(item.text)
        end = item.end
    if group:
        yield offset, _unescaped("".join(group))


def _unescaped(text: str) -> str:
    """Return the characters a literal stands for, but for escapes that stand for no letter: they leave theirs."""
    if "\\" not in text:
        return text
    # A run of backslashes is read in pairs from its start, so pairs can go first; what is left escapes what follows.
    return _ESCAPE.sub(_character, text.replace("\\\\", "")).replace("\\", "")


def _character(match: re.Match[str]) -> str:
    body = match.group(1)
    code = int(body, 8) if body[0] in "01234567" else int(body[-8:].lstrip("xuU"), 16)
    return chr(code) if code < 0x110000 else "?"


def _resolve(path: str, include: Include, declared: Collection[str], files: Collection[str]) -> str:
    """Return the header of the bundle that an include means, or "" when it is the toolchain's."""

    def refuse(complaint: str, hint: str) -> IntakeError:
        message = f"the include of {clip(include.name)} {complaint}."
        return IntakeError("CUDA_INCLUDE", message, hint=hint, location=SourceLocation(path, include.line))

    name = include.name
    if not name or "\\" in name or name.startswith("/"):
        raise refuse("is not a relative path", "Name the file relative to the including one.")
    beside = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
    # The root of the bundle may be on the compiler's search path: what stands there counts as reachable too.
    candidates = (beside, name) if include.quoted else (name,)
    for candidate in candidates:
        if candidate not in files:
            continue
        if suffix_of(candidate) != ".cuh":
            raise refuse("reaches a file that is not a header", "Only .cuh files are included; .cu files are units.")
        if candidate not in declared:
            raise refuse("reaches an undeclared file", f"Add {clip(candidate)} to cuda_sources.")
        return candidate
    if not {"", ".", ".."}.isdisjoint(name.split("/")):
        raise refuse("leaves the bundle or is not in normal form", "Name toolchain headers by their plain path.")
    return ""
