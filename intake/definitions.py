"""Questions about how functions and classes are defined and decorated, which the source policy asks.

Invariants
1. Every answer is read from the tree alone; what a name means is asked elsewhere.
2. Work is linear in the nodes of the file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from intake.nodes import Kinds
from intake.syntax import dotted_name

_DEFINITIONS: tuple[tuple[type[ast.AST], str], ...] = (
    (ast.FunctionDef, "name"),
    (ast.AsyncFunctionDef, "name"),
    (ast.ClassDef, "name"),
    (ast.ExceptHandler, "name"),
    (ast.MatchAs, "name"),
    (ast.MatchStar, "name"),
    (ast.MatchMapping, "rest"),
)


def last_decorators(kinds: Kinds) -> Iterator[ast.AST]:
    """Give what stands as `@name` or `@name(...)` right above each definition."""
    for kind in (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef):
        for node in kinds.get(kind, ()):
            for decorator in node.decorator_list[-1:]:
                yield decorator.func if isinstance(decorator, ast.Call) else decorator


def definitions(kinds: Kinds) -> Iterator[tuple[ast.AST, str]]:
    """Give every node other than a plain name or a parameter that binds one, with that name."""
    for kind, field in _DEFINITIONS:
        for node in kinds.get(kind, ()):
            yield node, getattr(node, field)


def is_plain_call(node: ast.Call) -> bool:
    """Say whether something is called with one argument that is written out."""
    return not node.keywords and len(node.args) == 1 and not isinstance(node.args[0], ast.Starred)


def makes_classes(node: ast.ClassDef) -> bool:
    """Say whether a class defines how its objects are made."""
    return any(isinstance(item, ast.FunctionDef) and item.name == "__new__" for item in node.body)


def maker(node: ast.ClassDef) -> ast.AST:
    """Return what is called, or named, by the decorator right above a class that has one."""
    decorator = node.decorator_list[-1]
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def is_made(base: ast.AST) -> bool:
    """Say whether a base is no class that has a name, alone or with parameters."""
    return dotted_name(base.value if isinstance(base, ast.Subscript) else base) is None
