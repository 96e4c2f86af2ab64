"""Typed access to one TOML table of the manifest; every wrong value becomes a finding with its line.

Invariants
1. No coercion: a value has the right type or is refused. Text has no surrounding blanks and a length bound.
2. Identifiers are ASCII from one alphabet; names of callables are Python identifiers, no keywords, no dunders.
3. A declared path is in normal form and names a file of the bundle.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from typing import Any

from config.errors import IntakeError
from config.limits import IntakeLimits
from intake.names import check_path, is_excluded
from intake.refusal import Findings, clip
from intake.toml_lines import TomlLines

MANIFEST = "manifest.toml"
_IDENTIFIER = re.compile(r"[0-9A-Za-z._\-]+")
_CALLABLE = re.compile(r"[A-Za-z_][0-9A-Za-z_]*")


class Context:
    """What all tables of one manifest share."""

    def __init__(self, files: Mapping[str, bytes], lines: TomlLines, findings: Findings, limits: IntakeLimits) -> None:
        self.files = files
        self.lines = lines
        self.findings = findings
        self.limits = limits
        self.clean = True


class Table:
    """One table: the `index`-th one called `name` ("" = top level)."""

    def __init__(self, context: Context, value: dict[str, Any], name: str = "", index: int = 0) -> None:
        self._context = context
        self._name = name
        self._index = index
        self.value = value

    @property
    def index(self) -> int:
        """Which table of its name this is, from 0."""
        return self._index

    @property
    def line(self) -> int:
        """Where the table begins."""
        return self._context.lines.line(self._name, self._index)

    def refuse(self, code: str, message: str, hint: str = "", *, key: str = "") -> None:
        """Record a finding at `key`, or at the table itself."""
        line = self._context.lines.line(self._name, self._index, key)
        self._context.clean = False
        self._context.findings.add(code, message, hint=hint, path=MANIFEST, line=line)

    def text(self, key: str, *, required: bool = False) -> str | None:
        """Return a non-empty text without surrounding blanks; None when absent or refused."""
        value = self.value.get(key)
        if value is None:
            if required:
                self.refuse("MANIFEST_MISSING_KEY", f"{key} is missing.", f'Add {key} = "...".')
        elif not isinstance(value, str):
            self.refuse("MANIFEST_TYPE", f"{key} is not text.", "Put the value in quotes.", key=key)
        elif not value or value != value.strip() or len(value) > self._context.limits.path_bytes:
            self.refuse("MANIFEST_VALUE", f"{key} is empty, too long, or has blanks around it.", key=key)
        else:
            return value
        return None

    def identifier(self, key: str, *, required: bool = False) -> str | None:
        """Return a text from the identifier alphabet."""
        value = self.text(key, required=required)
        most = self._context.limits.identifier_characters
        if value is not None and (not _IDENTIFIER.fullmatch(value) or len(value) > most or not value.strip(".")):
            message = f"{key} {clip(value)} is not an identifier of 1..{most} characters from 0-9 A-Z a-z . _ -"
            self.refuse("MANIFEST_VALUE", f"{message}.", key=key)
            return None
        return value

    def callable(self, key: str, *, required: bool = False) -> str | None:
        """Return the name of a Python function."""
        value = self.text(key, required=required)
        if value is None:
            return None
        good = _CALLABLE.fullmatch(value) and not keyword.iskeyword(value) and not value.startswith("__")
        if not good or len(value) > self._context.limits.identifier_characters:
            message = f"{key} {clip(value)} is not the name of a Python function (ASCII, no keyword, no dunder)."
            self.refuse("MANIFEST_VALUE", message, key=key)
            return None
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return an array of texts; () when absent or refused."""
        value = self.value.get(key, [])
        good = isinstance(value, list) and len(value) <= self._context.limits.list_entries
        if not good or not all(isinstance(item, str) and item and item == item.strip() for item in value):
            self.refuse("MANIFEST_TYPE", f"{key} is not an array of text.", f'Write {key} = ["..."].', key=key)
            return ()
        return tuple(value)

    def path(self, key: str, *, required: bool = False) -> str | None:
        """Return the path of a file of the bundle."""
        value = self.text(key, required=required)
        return value if value is not None and self.is_file(value, key) else None

    def is_file(self, value: str, key: str) -> bool:
        """Say whether `value` names a file of the bundle; refuse `key` when it does not."""
        try:
            check_path(value, self._context.limits)
        except IntakeError as error:
            self.refuse("MANIFEST_PATH", f"{key}: {error.message}", error.hint, key=key)
            return False
        if is_excluded(value) or value not in self._context.files:
            hint = "Name a file of the bundle by its path from the folder that holds manifest.toml."
            self.refuse(
                "MANIFEST_PATH", f"{key} names {clip(value)}, which is not a file of the bundle.", hint, key=key
            )
            return False
        return True
