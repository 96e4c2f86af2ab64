"""Typed access to untrusted TOML or JSON values; the first wrong one raises `IntakeError` with its path.

Invariants
1. No coercion: bool is not an integer, an integer is not a float, text is text. Tables are closed.
2. What is shown of a value is short, printable, and safe for values of any size.
3. `None` (JSON null) counts as absent; TOML cannot write it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from intake.direct.where import Where

_MOST_SHOWN = 12  # words of a vocabulary that a hint lists


def shown(value: object) -> str:
    """Return an untrusted value for use in a message."""
    if isinstance(value, str):
        return ascii(value if len(value) <= 60 else value[:59] + "\u2026")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if value.bit_length() <= 64 else "a huge integer"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return "a table"
    return "an array" if isinstance(value, list) else f"a {type(value).__name__}"


def one_of(words: Collection[str]) -> str:
    """Return a hint that lists a closed vocabulary."""
    ordered = sorted(words)
    more = ", ..." if len(ordered) > _MOST_SHOWN else ""
    return f"Use one of: {', '.join(ordered[:_MOST_SHOWN])}{more}." if ordered else ""


def as_integer(value: object, where: Where, low: int, high: int) -> int:
    """Return an exact integer in `low..high`. Raises DIRECT_TYPE, DIRECT_VALUE."""
    if type(value) is not int:
        raise where.refusal("DIRECT_TYPE", f"{shown(value)} is not an integer.")
    if not low <= value <= high:
        raise where.refusal("DIRECT_VALUE", f"{shown(value)} is outside {low}..{high}.")
    return value


def as_text(value: object, where: Where) -> str:
    """Return a text. Raises DIRECT_TYPE."""
    if type(value) is not str:
        raise where.refusal("DIRECT_TYPE", f"{shown(value)} is not text.")
    return value


def as_choice(value: object, where: Where, choices: Collection[str]) -> str:
    """Return a word of a closed vocabulary. Raises DIRECT_TYPE, DIRECT_VALUE."""
    text = as_text(value, where)
    if text not in choices:
        raise where.refusal("DIRECT_VALUE", f"{shown(text)} is not known here.", one_of(choices))
    return text


def kind_of(value: object, where: Where, kinds: Collection[str]) -> str:
    """Return the `kind` of a table whose other keys follow from it. Raises DIRECT_TYPE, DIRECT_VALUE, DIRECT_*_KEY."""
    if not isinstance(value, Mapping):
        raise where.refusal("DIRECT_TYPE", f"{shown(value)} is not a table.")
    if value.get("kind") is None:
        raise where.refusal("DIRECT_MISSING_KEY", "the key kind is missing.", one_of(kinds))
    return as_choice(value["kind"], where.at("kind"), kinds)


def as_items(value: object, where: Where, low: int, high: int) -> list[tuple[Any, Where]]:
    """Return the entries of an array of `low..high` entries, each with its place. Raises DIRECT_TYPE, DIRECT_LIMIT."""
    if type(value) is not list:
        raise where.refusal("DIRECT_TYPE", f"{shown(value)} is not an array.")
    if not low <= len(value) <= high:
        raise where.refusal("DIRECT_LIMIT", f"{len(value)} entries are not {low}..{high}.")
    return [(item, where.at(index)) for index, item in enumerate(value)]


def is_power_of_two(value: int) -> bool:
    """Say whether a positive integer is a power of two."""
    return value > 0 and value & (value - 1) == 0


class Table:
    """One closed table. Every accessor raises `IntakeError` for a value of the wrong type or outside its range."""

    def __init__(self, value: object, where: Where, required: str, optional: str = "") -> None:
        """`required` and `optional` are blank-separated keys; no other key may stand.

        Raises DIRECT_TYPE, DIRECT_UNKNOWN_KEY, DIRECT_MISSING_KEY.
        """
        if not isinstance(value, Mapping):
            raise where.refusal("DIRECT_TYPE", f"{shown(value)} is not a table.")
        known = (*required.split(), *optional.split())
        for key in value:
            if key not in known:
                raise where.refusal("DIRECT_UNKNOWN_KEY", f"{shown(key)} is not a key here.", one_of(known))
        for key in required.split():
            if value.get(key) is None:
                raise where.refusal("DIRECT_MISSING_KEY", f"the key {key} is missing.")
        self._value: Mapping[str, Any] = value
        self.where = where

    def __iter__(self) -> Iterator[str]:
        return (key for key, value in self._value.items() if value is not None)

    def has(self, key: str) -> bool:
        """Say whether `key` is given."""
        return self._value.get(key) is not None

    def get(self, key: str) -> Any:
        """Return the raw value of `key`; None when absent."""
        return self._value.get(key)

    def at(self, key: str) -> Where:
        """Return the place of `key`."""
        return self.where.at(key)

    def integer(self, key: str, low: int, high: int) -> int:
        """Return an integer in `low..high`."""
        return as_integer(self.get(key), self.at(key), low, high)

    def optional_integer(self, key: str, low: int, high: int) -> int | None:
        """Return an integer in `low..high`, or None when absent."""
        return self.integer(key, low, high) if self.has(key) else None

    def choice(self, key: str, choices: Collection[str], default: str | None = None) -> str:
        """Return a word of `choices`; `default` when absent and there is one."""
        if default is not None and not self.has(key):
            return default
        return as_choice(self.get(key), self.at(key), choices)

    def text(self, key: str) -> str:
        """Return a text."""
        return as_text(self.get(key), self.at(key))

    def matching(self, key: str, pattern: re.Pattern[str], what: str) -> str:
        """Return a text that is wholly `pattern`. Raises DIRECT_VALUE."""
        text = self.text(key)
        if not pattern.fullmatch(text):
            raise self.at(key).refusal("DIRECT_VALUE", f"{shown(text)} is not {what}.")
        return text

    def flag(self, key: str) -> bool:
        """Return true or false; false when absent."""
        value = self.get(key)
        if value is None:
            return False
        if type(value) is not bool:
            raise self.at(key).refusal("DIRECT_TYPE", f"{shown(value)} is not true or false.")
        return value

    def items(self, key: str, low: int, high: int) -> list[tuple[Any, Where]]:
        """Return the entries of an array, each with its place; none when absent and `low` is 0."""
        if low == 0 and not self.has(key):
            return []
        return as_items(self.get(key), self.at(key), low, high)

    def alignment(self, key: str, high: int) -> int | None:
        """Return a power of two up to `high`, or None when absent. Raises DIRECT_VALUE."""
        value = self.optional_integer(key, 1, high)
        if value is not None and not is_power_of_two(value):
            raise self.at(key).refusal("DIRECT_VALUE", f"{value} is not a power of two.")
        return value
