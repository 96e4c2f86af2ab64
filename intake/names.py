"""The one rule for names inside a bundle, shared by hashing, packing, unpacking, scanning and publishing.

Invariants
1. A path is relative POSIX in its own normal form: no empty, `.` or `..` component, no backslash, valid UTF-8.
2. It holds no control, format, private-use, unassigned or surrogate character and no line or paragraph separator, so
   that what a person reads in a log is what the file is called.
3. Bounds on bytes per component, bytes per path and components per path come from `config.limits`.
4. Identity-excluded names (`.git`, `__pycache__`, `.pyc`, `.pyo`, AppleDouble `._x`) never belong to a bundle: a local
   tree is read without them, an archive that holds them is refused.
5. Inside one bundle no two paths are equal under Unicode NFC plus case folding, and no file is another one's folder:
   a tree means the same on every file system.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from config.canonical import sorted_paths
from config.errors import IntakeError, SourceLocation
from config.limits import INTAKE, IntakeLimits
from intake.refusal import clip

_EXCLUDED_COMPONENTS = frozenset({".git", "__pycache__"})
_EXCLUDED_SUFFIXES = frozenset({".pyc", ".pyo"})
# What nearly all names are, within the bounds of `INTAKE`: at most 8 components of at most 100 characters.
_USUAL = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}/){0,7}[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_REFUSED_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})


def suffix_of(path: str) -> str:
    """Return the last suffix of the leaf with its dot, or "" (a leading or trailing dot starts no suffix)."""
    leaf = path.rpartition("/")[2]
    dot = leaf.rfind(".")
    return leaf[dot:] if 0 < dot < len(leaf) - 1 else ""


def is_excluded_component(name: str) -> bool:
    """Say whether a file or directory called `name` is outside every bundle, contents included."""
    return name in _EXCLUDED_COMPONENTS


def is_excluded(path: str) -> bool:
    """Say whether the file at `path` is outside the content hash."""
    components = path.split("/")
    if not _EXCLUDED_COMPONENTS.isdisjoint(components):
        return True
    return components[-1].startswith("._") or suffix_of(path) in _EXCLUDED_SUFFIXES


def check_path(path: str, limits: IntakeLimits = INTAKE) -> None:
    """Raise `IntakeError` (NAME_INVALID, NAME_TOO_LONG) unless `path` may name a file or directory of a bundle."""
    if limits is INTAKE and _USUAL.fullmatch(path):
        return
    try:
        size = len(path.encode("utf-8"))
    except UnicodeEncodeError:
        raise _invalid(path, "is not valid UTF-8") from None
    if path.isascii() and path.isprintable():
        if "\\" in path:
            raise _invalid(path, "holds a backslash")
    else:
        _check_characters(path)
    components = path.split("/")
    if not path or "" in components or "." in components or ".." in components:
        raise _invalid(path, "is not a relative path in normal form")
    if size > limits.path_bytes or len(components) > limits.path_depth:
        raise _too_long(path, f"is longer than {limits.path_bytes} bytes or deeper than {limits.path_depth} components")
    if size > limits.component_bytes and any(len(part.encode()) > limits.component_bytes for part in components):
        raise _too_long(path, f"has a component longer than {limits.component_bytes} bytes")


def check_not_excluded(path: str) -> None:
    """Raise `IntakeError` (NAME_EXCLUDED) for a path that the content hash does not cover."""
    if is_excluded(path):
        is_apple_double = path.rpartition("/")[2].startswith("._")
        raise IntakeError(
            "NAME_EXCLUDED",
            f"{clip(path)} is {'an AppleDouble file of macOS, ' * is_apple_double}outside the content hash and may not "
            "stand in an archive.",
            hint="Run: COPYFILE_DISABLE=1 tar -czf bundle.tar.gz FOLDER"
            if is_apple_double
            else "Package the bundle with `cacheon chain-package`, which leaves such files out.",
            location=SourceLocation(path) if path.isprintable() else None,
        )


def check_no_collisions(paths: Iterable[str], folders: Iterable[str] = ()) -> None:
    """Raise `IntakeError` (NAME_COLLISION) when two names of a tree of files (and listed folders) could be one."""
    seen: dict[str, str] = {}
    files = set(paths)
    for path in sorted_paths({*files, *folders}):
        end = path.find("/")
        while end != -1:
            _claim(seen, path[:end])
            end = path.find("/", end + 1)
        _claim(seen, path)
    for path in files:
        parent = path.rpartition("/")[0]
        while parent:
            if parent in files:
                raise _collision(parent, path, "is both a file and a folder")
            parent = parent.rpartition("/")[0]


def _claim(seen: dict[str, str], path: str) -> None:
    folded = path.lower() if path.isascii() else fold(path)
    earlier = seen.setdefault(folded, path)
    if earlier != path:
        raise _collision(earlier, path, "differ only in case or Unicode form")


def fold(path: str) -> str:
    """Return the form under which two names collide: NFC, case folding, NFC again."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _check_characters(path: str) -> None:
    for character in path:
        if character == "\\":
            raise _invalid(path, "holds a backslash")
        if unicodedata.category(character) in _REFUSED_CATEGORIES:
            raise _invalid(path, f"holds the character U+{ord(character):04X}")


def _invalid(path: str, complaint: str) -> IntakeError:
    return IntakeError(
        "NAME_INVALID",
        f"the name {clip(path)} {complaint}.",
        hint="Use plain relative names such as kernels/kernel.py.",
    )


def _too_long(path: str, complaint: str) -> IntakeError:
    return IntakeError("NAME_TOO_LONG", f"the name {clip(path)} {complaint}.", hint="Shorten the path.")


def _collision(first: str, second: str, complaint: str) -> IntakeError:
    return IntakeError(
        "NAME_COLLISION",
        f"{clip(first)} and {clip(second)} collide: one name {complaint}."
        if "both" in complaint
        else f"{clip(first)} and {clip(second)} {complaint}.",
        hint="Rename one of the two.",
    )
