"""Where a value stands in the manifest: its TOML path for the message, its line for the location.

Invariants
1. A path holds only keys of the closed grammar and indices; nothing a miner wrote gets into it.
2. Lines are looked up only when a refusal is built; a wrong line can mislead a message and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from config.errors import IntakeError, SourceLocation

MANIFEST = "manifest.toml"
Part = str | int
LineFinder = Callable[[tuple[Part, ...]], int]
_NO_LINE = 1 << 62


class TomlLineTable(Protocol):
    """What is asked of `intake.toml_lines.TomlLines`."""

    def line(self, table: str = "", index: int = 0, key: str = "") -> int:
        """Return the line of `key` in the `index`-th table called `table`."""


@dataclass(frozen=True)
class Where:
    """A place in the manifest, such as `ops[0].aot_exports[1].bindings[2].cast`."""

    parts: tuple[Part, ...] = ()
    find_line: LineFinder | None = None

    def at(self, *parts: Part) -> Where:
        """Return the place below this one."""
        return Where((*self.parts, *parts), self.find_line)

    def refusal(self, code: str, message: str, hint: str = "") -> IntakeError:
        """Return the error that refuses what stands here. `message` is a sentence without its subject's path."""
        line = 0 if self.find_line is None else self.find_line(self.parts)
        return IntakeError(code, f"{self}: {message}", hint=hint, location=SourceLocation(MANIFEST, line))

    def __str__(self) -> str:
        return "".join(_spelled(part) for part in self.parts).removeprefix(".")


def _spelled(part: Part) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    return f'."{part}"' if "." in part else f".{part}"


def row_place(index: int, find_line: LineFinder | None = None) -> Where:
    """Return the place of the `index`-th `[[ops]]` row."""
    return Where(("ops", index), find_line)


def line_finder(lines: TomlLineTable, document: Mapping[str, Any]) -> LineFinder:
    """Return a finder over the parsed manifest `document` whose table lines `lines` knows.

    The deepest table header or key on the path that has a line of its own wins; inline tables share their key's line.
    """

    def find(parts: tuple[Part, ...]) -> int:
        low, high = 1, _NO_LINE
        for length in range(1, len(parts) + 1):
            is_array = length < len(parts) and isinstance(parts[length], int)
            for line, following in _candidates(lines, document, parts[:length], is_array=is_array):
                # Headers are counted as if no such table were inline; a miscount lies outside its parent.
                if low < line < high:
                    low, high = line, min(high, following)
                    break
        return low

    return find


def _candidates(
    lines: TomlLineTable, document: Mapping[str, Any], parts: tuple[Part, ...], *, is_array: bool
) -> Iterator[tuple[int, int]]:
    """Yield where the header, then the key, that `parts` ends with may stand, each with the next header of its name.

    An array has no header of its own; its elements do.
    """
    if not is_array:
        name, ordinal = _table_name(parts), _ordinal(document, parts)
        following = lines.line(name, ordinal + 1)
        yield lines.line(name, ordinal), following if following > 1 else _NO_LINE
    if isinstance(parts[-1], str) and len(parts) > 1:
        parent = parts[:-1]
        yield lines.line(_table_name(parent), _ordinal(document, parent), parts[-1]), _NO_LINE


def _table_name(parts: tuple[Part, ...]) -> str:
    return ".".join(part for part in parts if isinstance(part, str))


def _ordinal(document: Mapping[str, Any], parts: tuple[Part, ...]) -> int:
    """Return how many tables of the same dotted name stand before `parts`, when all are written with headers."""
    level: list[tuple[object, bool]] = [(document, True)]  # (value, is an ancestor of the place)
    keys = [part for part in parts if isinstance(part, str)]
    indices = _index_after_key(parts)
    for key, index in zip(keys, indices, strict=True):
        below: list[tuple[object, bool]] = []
        for value, on_path in level:
            child = value.get(key) if isinstance(value, Mapping) else None
            items = _elements(child)
            below += [(item, on_path and position == index) for position, item in enumerate(items)]
        level = below
    return next((before for before, (_, on_path) in enumerate(level) if on_path), 0)


def _elements(child: object) -> Sequence[object]:
    if child is None:
        return ()
    return child if isinstance(child, list) else (child,)


def _index_after_key(parts: tuple[Part, ...]) -> list[int]:
    """Return, for each key of the path, the index that follows it (0 when none does)."""
    indices: list[int] = []
    for part in parts:
        if isinstance(part, str):
            indices.append(0)
        elif indices:
            indices[-1] = part
    return indices
