"""Where a value stands in the manifest: its TOML path for the message, its line for the location.

Invariants
1. A path holds only keys of the closed grammar and indices; nothing a miner wrote gets into it.
2. Lines are looked up only when a refusal is built; a wrong line can mislead a message and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from config.errors import IntakeError, SourceLocation

MANIFEST = "manifest.toml"
Part = str | int
LineFinder = Callable[[tuple[Part, ...]], int]


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
        text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.parts)
        return text.removeprefix(".")


def row_place(index: int, find_line: LineFinder | None = None) -> Where:
    """Return the place of the `index`-th `[[ops]]` row."""
    return Where(("ops", index), find_line)


def line_finder(lines: TomlLineTable, document: Mapping[str, Any]) -> LineFinder:
    """Return a finder over the parsed manifest `document` whose table lines `lines` knows.

    The deepest table header or key on the path that has a line of its own wins; inline tables share their key's line.
    """

    def find(parts: tuple[Part, ...]) -> int:
        for length in range(len(parts), 0, -1):
            head = parts[:length]
            line = _own_line(lines, document, head)
            if line > 1:
                return line
        return 1

    return find


def _own_line(lines: TomlLineTable, document: Mapping[str, Any], parts: tuple[Part, ...]) -> int:
    """Return the line of the header or key that `parts` ends with; 1 when it has none."""
    line = lines.line(_table_name(parts), _ordinal(document, parts))
    if line > 1 or isinstance(parts[-1], int):
        return line
    parent = parts[:-1]
    return lines.line(_table_name(parent), _ordinal(document, parent), parts[-1])


def _table_name(parts: tuple[Part, ...]) -> str:
    return ".".join(part for part in parts if isinstance(part, str))


def _ordinal(document: Mapping[str, Any], parts: tuple[Part, ...]) -> int:
    """Return how many tables of the same dotted name stand before `parts`, when all are written with headers."""
    level: list[tuple[object, bool]] = [(document, True)]  # (value, is an ancestor of the place)
    before = 0
    keys = [part for part in parts if isinstance(part, str)]
    indices = _index_after_key(parts)
    for key, index in zip(keys, indices, strict=True):
        below: list[tuple[object, bool]] = []
        for value, on_path in level:
            child = value.get(key) if isinstance(value, Mapping) else None
            items = _elements(child)
            below += [(item, on_path and position == index) for position, item in enumerate(items)]
        level = below
    for _, on_path in level:
        if on_path:
            return before
        before += 1
    return 0


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
