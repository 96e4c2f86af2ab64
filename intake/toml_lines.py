"""Where a key stands in a TOML file, so that every manifest error can name its line.

Invariants
1. This never decides what the file means; `tomli` does. A wrong guess can only mislead a message.
2. One pass over the text, no backtracking.
"""

from __future__ import annotations

import re

_HEADER = re.compile(r"\s*\[\[?([^\[\]#]+)\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"""\s*("[^"\n]*"|'[^'\n]*'|[A-Za-z0-9_\-]+)\s*(?:=|\.)""")
_MULTILINE = re.compile(r'"""|\'\'\'')


class TomlLines:
    """Line numbers (from 1) of the tables and keys of a TOML text."""

    def __init__(self, text: str) -> None:
        self._tables: dict[tuple[str, int], int] = {("", 0): 1}
        self._keys: dict[tuple[str, int, str], int] = {}
        self._scan(text)

    def line(self, table: str = "", index: int = 0, key: str = "") -> int:
        """Return the best known line of `key` in the `index`-th table called `table` ("" = top level)."""
        if key and (table, index, key) in self._keys:
            return self._keys[(table, index, key)]
        if key and not table and (key, 0) in self._tables:
            return self._tables[(key, 0)]
        if (table, index) in self._tables:
            return self._tables[(table, index)]
        # Inline tables: `ops = [{...}]` has no header of its own.
        return self._keys.get(("", 0, table), 1)

    def _scan(self, text: str) -> None:
        table, index = "", 0
        counts: dict[str, int] = {}
        inside_text = False
        for number, line in enumerate(text.split("\n"), start=1):
            toggles = len(_MULTILINE.findall(line)) % 2 == 1
            if inside_text:
                inside_text = not toggles
                continue
            inside_text = toggles
            header = _HEADER.fullmatch(line.rstrip("\r"))
            if header:
                table = header.group(1).strip()
                index = counts.get(table, 0)
                counts[table] = index + 1
                self._tables[(table, index)] = number
                continue
            key = _KEY.match(line)
            if key:
                self._keys.setdefault((table, index, key.group(1).strip("\"'")), number)
