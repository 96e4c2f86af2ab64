"""Applying one file's part of a dependency patch: exactly, or not at all.

Invariants
1. No fuzz and no offset: every old line of a hunk stands at its line, byte for byte.
2. A hunk without old lines goes after the line it names, as git and GNU patch put it.
3. An original ends with LF, or is refused. A new file must not exist; its content is the added lines, each with LF.
4. Pure: bytes in, bytes out.
"""

from __future__ import annotations

from config.errors import IntakeError, SourceLocation
from intake.refusal import clip
from intake.unified_diff import FilePatch


def apply_file(patch: FilePatch, original: bytes | None, *, source: str = "") -> bytes:
    """Return the patched content of one file; `original` is None when the file does not exist.

    `source` names the patch file in errors. Raises `IntakeError`: PATCH_TARGET_MISSING, PATCH_TARGET_EXISTS,
    PATCH_TARGET_FORM, PATCH_MISMATCH.
    """
    where = SourceLocation(source or patch.path, patch.line)
    shown = clip(patch.path)
    if patch.is_new:
        if original is not None:
            raise IntakeError("PATCH_TARGET_EXISTS", f"the patch adds {shown}, which already exists.", location=where)
        return _joined(list(patch.hunks[0].new))
    if original is None:
        raise IntakeError("PATCH_TARGET_MISSING", f"the patch changes {shown}, which does not exist.", location=where)
    if not original.endswith(b"\n"):
        message = f"{shown} is empty or does not end with a line feed, so hunks cannot be placed in it."
        raise IntakeError("PATCH_TARGET_FORM", message, location=where)
    lines = original[:-1].split(b"\n")
    result: list[bytes] = []
    position = 0
    for hunk in patch.hunks:
        end = hunk.start + len(hunk.old)
        if end > len(lines) or lines[hunk.start : end] != list(hunk.old):
            raise IntakeError(
                "PATCH_MISMATCH",
                f"the hunk does not fit {shown} at line {hunk.start + 1}.",
                hint="Make the patch against the pinned version of the dependency; nothing is searched or guessed.",
                location=SourceLocation(source or patch.path, hunk.line),
            )
        result += lines[position : hunk.start]
        result += hunk.new
        position = end
    return _joined(result + lines[position:])


def _joined(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)
