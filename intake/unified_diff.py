"""The strict subset of unified diffs that a dependency patch may be written in.

Invariants
1. Bytes are UTF-8 and lines end with LF. A CR before it belongs to the content of body lines and is ignored in headers.
2. A patch holds at least one file section; a section is `--- a/PATH`, `+++ b/PATH` and at least one hunk, or
   `--- /dev/null` and exactly one hunk for a new file. Each file once. No deletions, renames, copies, binary parts,
   links, quoted names or mode-only changes.
3. The counts of a hunk are met exactly, and it changes something. Hunks are in order and do not overlap.
4. The new side of every hunk stands where the earlier hunks put it. Tools disagree about hunks whose sides disagree,
   so such a hunk has no meaning here.
5. Only `git` header lines may stand between sections, and they agree with the section that follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from config.errors import IntakeError, SourceLocation
from intake.names import check_path
from intake.refusal import clip

_HUNK = re.compile(rb"@@ -([0-9]{1,9})(?:,([0-9]{1,9}))? \+([0-9]{1,9})(?:,([0-9]{1,9}))? @@")
_HEADERS = (b"diff ", b"index ", b"new file mode ", b"old mode ", b"new mode ")
_NAMED = {
    b"GIT binary patch": "a binary patch",
    b"Binary files ": "a binary change",
    b"rename from ": "a rename",
    b"rename to ": "a rename",
    b"copy from ": "a copy",
    b"copy to ": "a copy",
    b"deleted file mode ": "a deletion",
    b"\\ No newline": "a file without a final line feed",
}
_MODES = frozenset({b"100644", b"100755"})
_NOWHERE = b"/dev/null"
_MAX_LINES = 200_000  # lines of one patch; short lines would otherwise cost far more memory than their bytes


class Hunk(NamedTuple):
    """One change. `start` is the line (from 0) of the original at which `old` stands, or before which an insertion
    goes; `old` and `new` are the lines before and after, without line feeds; `line` is the header's place."""

    start: int
    old: tuple[bytes, ...]
    new: tuple[bytes, ...]
    line: int


class FilePatch(NamedTuple):
    """The changes of one file; a new file has one hunk without old lines. `line` is where the section begins."""

    path: str
    is_new: bool
    hunks: tuple[Hunk, ...]
    line: int


def parse_diff(name: str, data: bytes) -> tuple[FilePatch, ...]:
    """Parse the bytes of the patch file called `name`. Raises `IntakeError` (PATCH_SYNTAX, PATCH_UNSUPPORTED,
    PATCH_PATH, PATCH_HUNK) with the line."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise IntakeError("PATCH_SYNTAX", "the patch is not UTF-8.", location=SourceLocation(name, line)) from None
    if data.count(b"\n") > _MAX_LINES:
        message = f"the patch has more than {_MAX_LINES} lines."
        raise IntakeError("PATCH_SYNTAX", message, location=SourceLocation(name))
    reader = _Reader(name, data)
    sections: list[FilePatch] = []
    seen: set[str] = set()
    while (section := _section(reader)) is not None:
        if section.path in seen:
            raise reader.refusal("PATCH_SYNTAX", f"{clip(section.path)} has two sections.", line=section.line)
        seen.add(section.path)
        sections.append(section)
    if not sections:
        raise reader.refusal("PATCH_SYNTAX", "the patch changes no file.")
    return tuple(sections)


class _Reader:
    def __init__(self, name: str, data: bytes) -> None:
        self._name = name
        self._lines = data.split(b"\n")
        if self._lines[-1] == b"":
            self._lines.pop()
        self.number = 0  # lines taken, which is also the number of the last one

    def peek(self) -> bytes | None:
        return self._lines[self.number] if self.number < len(self._lines) else None

    def take(self) -> bytes | None:
        line = self.peek()
        self.number += line is not None
        return line

    def refusal(self, code: str, message: str, hint: str = "", line: int = 0) -> IntakeError:
        return IntakeError(code, message, hint=hint, location=SourceLocation(self._name, line or self.number))


def _section(reader: _Reader) -> FilePatch | None:
    announced, is_new_announced = _headers(reader)
    old_line = reader.take()
    if old_line is None:
        return None
    line = reader.number
    old = _side(reader, old_line, b"--- ")
    new_line = reader.take()
    if new_line is None or not new_line.startswith(b"+++ "):
        raise reader.refusal("PATCH_SYNTAX", "a --- line is not followed by a +++ line.")
    new = _side(reader, new_line, b"+++ ")
    if new == _NOWHERE:
        hint = "Change the file so that it does nothing, or leave it alone."
        raise reader.refusal("PATCH_UNSUPPORTED", "the patch deletes a file.", hint)
    path = _path(reader, new, b"b/")
    is_new = old == _NOWHERE
    if not is_new and _path(reader, old, b"a/") != path:
        raise reader.refusal("PATCH_UNSUPPORTED", "the two sides of a section name different files.")
    if announced not in (b"", b"a/%s b/%s" % (path.encode(), path.encode())) or is_new_announced > is_new:
        raise reader.refusal("PATCH_SYNTAX", "the diff header does not agree with its section.", line=line)
    hunks = tuple(_hunks(reader))
    if not hunks:
        raise reader.refusal("PATCH_SYNTAX", f"the section of {clip(path)} has no hunk.", line=line)
    if is_new and (len(hunks) > 1 or hunks[0].old or hunks[0].start):
        raise reader.refusal("PATCH_HUNK", "a new file has exactly one hunk, which only adds.", line=hunks[-1].line)
    return FilePatch(path, is_new, hunks, line)


def _headers(reader: _Reader) -> tuple[bytes, bool]:
    """Skip what may stand before a section; return what `diff --git` announces and whether it announces a new file."""
    announced, is_new, pending = b"", False, False
    while (line := reader.peek()) is not None:
        if line.startswith(b"--- "):
            return announced, is_new
        reader.take()
        text = line.rstrip(b"\r")
        if not text:
            continue
        if not text.startswith(_HEADERS):
            what = next((what for start, what in _NAMED.items() if text.startswith(start)), "")
            if what:
                hint = "Dependency patches change and add text files, line by line."
                raise reader.refusal("PATCH_UNSUPPORTED", f"the patch holds {what}.", hint)
            hint = "Write the output of `git diff`, and nothing around it."
            raise reader.refusal("PATCH_SYNTAX", f"unexpected text {clip(text.decode())}.", hint)
        if text.startswith(b"diff "):
            if pending:
                raise reader.refusal("PATCH_SYNTAX", "a diff header has no section of its own.")
            pending = True
            announced = text.removeprefix(b"diff --git ") if text.startswith(b"diff --git ") else b""
        _check_mode(reader, text)
        is_new = is_new or text.startswith(b"new file mode ")
    if pending or is_new:
        raise reader.refusal("PATCH_SYNTAX", "a diff header has no section of its own.")
    return announced, is_new


def _check_mode(reader: _Reader, text: bytes) -> None:
    words = text.split()
    has_mode = b" mode " in text if not text.startswith(b"index ") else len(words) == 3
    if has_mode and not text.startswith(b"diff ") and words[-1] not in _MODES:
        hint = "Only modes 100644 and 100755 are files."
        raise reader.refusal("PATCH_UNSUPPORTED", "the patch makes something other than a plain file.", hint)


def _side(reader: _Reader, line: bytes, prefix: bytes) -> bytes:
    if not line.startswith(prefix):
        raise reader.refusal("PATCH_SYNTAX", f"a {prefix.decode().strip()} line was expected.")
    return line[len(prefix) :].split(b"\t", 1)[0].rstrip(b"\r")


def _path(reader: _Reader, side: bytes, prefix: bytes) -> str:
    text = side.decode("utf-8")
    hint = "Name files by their path in the dependency: a/package/file on the old side, b/package/file on the new."
    if not side.startswith(prefix) or text != text.strip():
        raise reader.refusal("PATCH_PATH", f"{clip(text)} does not start with {prefix.decode()}.", hint)
    path = text[len(prefix) :]
    try:
        check_path(path)
    except IntakeError as error:
        raise reader.refusal("PATCH_PATH", error.message, hint) from None
    return path


def _hunks(reader: _Reader) -> Iterator[Hunk]:
    end = 0  # first line of the original (from 0) that the next hunk may touch
    inserted_at = -1
    shift = 0  # how far earlier hunks moved the new side
    while (line := reader.peek()) is not None and line.startswith(b"@@ "):
        reader.take()
        header, number = _HUNK.match(line), reader.number
        if header is None:
            raise reader.refusal("PATCH_HUNK", "the hunk header is malformed.", "Write @@ -line,count +line,count @@.")
        old_count, new_count = (1 if text is None else int(text) for text in header.group(2, 4))
        start = _start(int(header[1]), old_count)
        if start < 0 or _start(int(header[3]), new_count) != start + shift:
            hint = "Take the output of `git diff` as it is; after editing a patch by hand run `recountdiff`."
            raise reader.refusal("PATCH_HUNK", "the line numbers of the two sides do not agree.", hint)
        if start < end or (old_count == 0 and start == inserted_at):
            raise reader.refusal("PATCH_HUNK", "hunks overlap or are out of order.")
        old, new = _body(reader, old_count, new_count)
        if old == new:
            raise reader.refusal("PATCH_HUNK", "the hunk changes nothing.", line=number)
        yield Hunk(start, old, new, number)
        end, shift = start + old_count, shift + new_count - old_count
        inserted_at = start if old_count == 0 else -1


def _start(number: int, count: int) -> int:
    """Return the index of the first line: with a count of zero the number names the line before it."""
    return number if count == 0 else number - 1


def _body(reader: _Reader, old_count: int, new_count: int) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    old: list[bytes] = []
    new: list[bytes] = []
    while len(old) < old_count or len(new) < new_count:
        line = reader.take()
        tag = b"" if line is None else line[:1] or b" "
        if line is None or tag not in (b" ", b"-", b"+"):
            hint = "The counts in the @@ line say how many lines follow."
            raise reader.refusal("PATCH_HUNK", "the hunk is shorter than its counts, or has a malformed line.", hint)
        if tag != b"+":
            old.append(line[1:])
        if tag != b"-":
            new.append(line[1:])
        if len(old) > old_count or len(new) > new_count:
            raise reader.refusal("PATCH_HUNK", "the lines of the hunk do not add up to its counts.")
    return tuple(old), tuple(new)
