"""Where a value stands in a JSON text, so that errors can name its line.

Invariants
1. This never decides what the text means; `config.canonical.read_json` does. A wrong guess can only mislead a message.
2. One pass over the text, no backtracking, no recursion. Places deeper than `_DEPTH` are those of their parent, which
   keeps time and memory linear in hostile texts.
"""

from __future__ import annotations

import json
import re

from config.canonical import CanonicalJsonError

_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"?|[{}\[\],:\n]|[^\s{}\[\],:"]+')

_DEPTH = 6

Step = str | int


class JsonLines:
    """Line numbers (from 1) of the values and keys of a JSON text; `duplicate` is the line of a repeated key, or 0."""

    def __init__(self, text: str) -> None:
        self.duplicate = 0
        self._lines: dict[tuple[Step, ...], int] = {(): 1}
        self._scan(text)

    def line(self, *path: Step) -> int:
        """Return the line of the value at `path` (keys and indices from the root), or of its nearest known parent."""
        while path not in self._lines:
            path = path[:-1]
        return self._lines[path]

    def _scan(self, text: str) -> None:
        number = 1
        containers: list[bool] = []  # True for arrays
        here: list[Step] = []  # the path of the value that comes next; one step for each container
        expects_key = False
        for match in _TOKEN.finditer(text):
            token = match.group()
            if token == "\n":
                number += 1
            elif token == ":":
                expects_key = False
            elif token == ",":
                if containers and containers[-1]:
                    last = here[-1]
                    here[-1] = last + 1 if isinstance(last, int) else 0
                expects_key = bool(containers) and not containers[-1]
            elif token in "}]":
                if containers:
                    containers.pop()
                    here.pop()
                expects_key = False
            elif expects_key:
                here[-1] = token.strip('"')
                if self._note(here, number) and not self.duplicate:
                    self.duplicate = number
            else:
                self._note(here, number)
                if token in "{[":
                    containers.append(token == "[")
                    here.append(0 if token == "[" else "")
                    expects_key = token == "{"

    def _note(self, here: list[Step], number: int) -> bool:
        """Note the line of a path; say whether it had one before."""
        if len(here) > _DEPTH:
            return False
        path = tuple(here)
        known = path in self._lines
        self._lines.setdefault(path, number)
        return known


def fault_line(data: bytes, error: CanonicalJsonError) -> int:
    """Return the line on which `data` stops being strict JSON, 0 when the parser does not say."""
    if isinstance(error.__cause__, json.JSONDecodeError):
        return error.__cause__.lineno
    if error.__cause__ is not None:
        return 0
    return JsonLines(data.decode("utf-8", "replace")).duplicate
