"""The open scopes of the statement that is being written.

Invariants
1. While a scope is open, the scopes around it stay the same ones, so each name has one home.
2. A local of a function is its own where no nested scope sees it.
3. A name that stands for an expression means, inside that expression, what it meant before.
"""

from __future__ import annotations

import ast
from typing import NamedTuple

from intake.fingerprint.usage import FUNCTION, Usage


class Value(NamedTuple):
    """An expression that stands for a name, and what stood for the same name before, to which the expression refers."""

    node: ast.expr
    before: Value | None


class Frame:
    """One open scope: its usage, the tokens of its locals, and the expressions that stand for some of them."""

    __slots__ = ("depths", "homes", "is_function", "is_kernel", "numbers", "own", "started", "usage", "values")

    def __init__(self, usage: Usage, *, is_kernel: bool = False) -> None:
        self.usage = usage
        self.is_kernel = is_kernel
        self.is_function = usage.kind == FUNCTION
        # Locals of this function that no nested scope sees.
        self.own = usage.stores.keys() - usage.elsewhere - usage.inner if self.is_function else frozenset[str]()
        self.homes: dict[str, Frame | None] = {}  # name -> the scope that binds it, seen from here
        self.numbers: dict[str, str] = {}  # the tokens of locals, each with its number
        self.values: dict[str, Value] = {}
        self.depths: dict[str, int] = {}
        self.started: dict[str, int] = {}  # versions of each name that were written so far

    def stand_in(self, name: str) -> Value:
        """Return what stands for a name, which means what it meant to that expression until the caller puts it back."""
        value = self.values.pop(name)
        if value.before is not None:
            self.values[name] = value.before
        return value

    def next_version(self, name: str, *, is_straight: bool) -> tuple[int, int]:
        """Return how often what is assigned now is bound, and how often it is read."""
        usage = self.usage
        if is_straight and name in self.own and usage.has_versions(name):
            versions, started = usage.versions[name], self.started.get(name, 0)
            if started < len(versions):
                return 1, versions[started]
        return usage.stores.get(name, 0), usage.loads.get(name, 0)

    def start_version(self, name: str) -> None:
        """Note that an assignment on the straight path was written."""
        self.started[name] = self.started.get(name, 0) + 1
