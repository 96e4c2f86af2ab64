"""Path patterns of policies: one meaning, and no star that crosses a folder unless the policy says so.

Invariants
1. A pattern is a relative POSIX path. `?` and `*` stay inside one component.
2. `**` is a whole component: any number of folders in the middle of a pattern, one or more components at its end.
3. Everything else is literal; there are no character classes and no escapes.
"""

from __future__ import annotations

import functools
import re


def matches(pattern: str, path: str) -> bool:
    """Say whether the whole of `path` matches `pattern`."""
    return _compiled(pattern).fullmatch(path) is not None


@functools.lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = pattern.split("/")
    text = ""
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            text += "[^/]+(?:/[^/]+)*" if last else "(?:[^/]+/)*"
        else:
            text += _component(part) + ("" if last else "/")
    return re.compile(text)


def _component(part: str) -> str:
    wild = {"*": "[^/]*", "?": "[^/]"}
    return "".join(wild.get(piece) or re.escape(piece) for piece in re.split(r"(\*|\?)", part))
