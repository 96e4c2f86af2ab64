"""Which expressions only read names, attributes and elements and compute; moving or dropping them changes no work.

Invariants
1. An expression is impure where something in it is called, awaited, yielded or bound. Bodies of functions inside it do
   not run with it and do not count.
2. Only what is asked about is looked at. A tree that a reading holds does not change, so each answer is found once.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from intake.syntax import children

_ACTS = frozenset({ast.Call, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr})


class Purity:
    """The purity of the expressions of one top-level statement."""

    def __init__(self) -> None:
        self._known: dict[int, bool] = {}
        self._tainted: set[int] = set()
        self._made: list[ast.AST] = []

    def is_pure(self, node: ast.AST) -> bool:
        """Say whether a node only reads and computes."""
        kind: Any = node.__class__
        if kind is ast.Call:
            return False
        if self._tainted and id(node) in self._tainted:
            return False
        if kind is ast.Name or kind is ast.Constant:
            return True
        known = self._known.get(id(node))
        if known is None:
            known = self._known[id(node)] = _computes(node)
        return known

    def adopt(self, node: ast.AST, *, like: ast.AST) -> None:
        """Treat a node that was made later as another one."""
        if not self.is_pure(like):
            self._tainted.add(id(node))
        self._made.append(node)  # its id has to stay its own

    def taint(self, node: ast.AST, name: str) -> bool:
        """Make everything around a use of `name` impure; return whether there is one."""
        if isinstance(node, ast.Name):
            found = node.id == name
        else:
            found = sum(self.taint(child, name) for child in children(node)) > 0  # all of them, not the first
        if found:
            self._made.append(node)
            self._tainted.add(id(node))
        return found


def _computes(node: ast.AST) -> bool:
    pending: list[ast.AST] = [node]
    while pending:
        node = pending.pop()
        kind: Any = node.__class__
        if kind is ast.Name or kind is ast.Constant:
            continue
        if kind in _ACTS:
            return False
        parts = _PARTS.get(kind)
        pending += children(node) if parts is None else parts(node)
    return True


def _defaults(node: Any) -> Sequence[ast.AST]:
    arguments = node.args
    return [*arguments.defaults, *filter(None, arguments.kw_defaults), *getattr(node, "decorator_list", ())]


def _annotated(node: ast.AnnAssign) -> Sequence[ast.AST]:
    return () if node.value is None else (node.value, node.target)


# What of a kind runs where it stands, if that is not all of it.
_PARTS: dict[type, Callable[[Any], Sequence[ast.AST]]] = {
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda), _defaults),
    ast.AnnAssign: _annotated,
}
