"""All nodes of a syntax tree, sorted by kind, at a fraction of the cost of visiting them one by one.

Invariants
1. The nodes are those of `intake.syntax.walk`: all but operators, contexts and aliases, which hold nothing.
2. One level after the other, so that size and nesting are bounded before they cost anything. Children are gathered for
   all nodes of a kind at once, which leaves one step of Python per node.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import chain
from operator import attrgetter
from typing import Any

from intake.suggest import words

ONE = "one"
OPTIONAL = "optional"  # None for what is not there
MANY = "many"
SPARSE = "sparse"  # a list that holds None for what is not there
NONE = "none"  # a plain text or value
ANY = "any"  # whatever it may be: fields that other versions of the language add

# Kinds that bind a name which stands in them as a text, not as a node.
NAMING: tuple[type[ast.AST], ...] = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.ExceptHandler,
    ast.MatchAs,
    ast.MatchStar,
    ast.MatchMapping,
)
# Fields that hold no nodes, or none that matter: operators, contexts and aliases.
_LEAVES = words(
    "ctx op ops id attr arg kind type_comment level module names conversion is_async simple asname rest kwd_attrs "
    "type_ignores"
)
# The fields that hold nodes, in the order of the language's own grammar.
_KNOWN: dict[type[ast.AST], dict[str, str]] = {
    ast.Name: {},
    ast.Constant: {"value": NONE},
    ast.Attribute: {"value": ONE},
    ast.Call: {"func": ONE, "args": MANY, "keywords": MANY},
    ast.Subscript: {"value": ONE, "slice": ONE},
    ast.Expr: {"value": ONE},
    ast.Assign: {"targets": MANY, "value": ONE},
    ast.AugAssign: {"target": ONE, "value": ONE},
    ast.AnnAssign: {"target": ONE, "annotation": ONE, "value": OPTIONAL},
    ast.NamedExpr: {"target": ONE, "value": ONE},
    ast.BinOp: {"left": ONE, "right": ONE},
    ast.BoolOp: {"values": MANY},
    ast.UnaryOp: {"operand": ONE},
    ast.Compare: {"left": ONE, "comparators": MANY},
    ast.IfExp: {"test": ONE, "body": ONE, "orelse": ONE},
    ast.Tuple: {"elts": MANY},
    ast.List: {"elts": MANY},
    ast.Set: {"elts": MANY},
    ast.Dict: {"keys": SPARSE, "values": MANY},
    ast.Slice: {"lower": OPTIONAL, "upper": OPTIONAL, "step": OPTIONAL},
    ast.Starred: {"value": ONE},
    ast.keyword: {"value": ONE},
    ast.arg: {"annotation": OPTIONAL},
    ast.arguments: {
        "posonlyargs": MANY,
        "args": MANY,
        "vararg": OPTIONAL,
        "kwonlyargs": MANY,
        "kw_defaults": SPARSE,
        "kwarg": OPTIONAL,
        "defaults": MANY,
    },
    ast.FunctionDef: {"name": NONE, "args": ONE, "body": MANY, "decorator_list": MANY, "returns": OPTIONAL},
    ast.Return: {"value": OPTIONAL},
    ast.If: {"test": ONE, "body": MANY, "orelse": MANY},
    ast.For: {"target": ONE, "iter": ONE, "body": MANY, "orelse": MANY},
    ast.While: {"test": ONE, "body": MANY, "orelse": MANY},
    ast.With: {"items": MANY, "body": MANY},
    ast.withitem: {"context_expr": ONE, "optional_vars": OPTIONAL},
    ast.Assert: {"test": ONE, "msg": OPTIONAL},
    ast.Raise: {"exc": OPTIONAL, "cause": OPTIONAL},
    ast.JoinedStr: {"values": MANY},
    ast.FormattedValue: {"value": ONE, "format_spec": OPTIONAL},
    ast.ListComp: {"elt": ONE, "generators": MANY},
    ast.GeneratorExp: {"elt": ONE, "generators": MANY},
    ast.comprehension: {"target": ONE, "iter": ONE, "ifs": MANY},
    ast.Lambda: {"args": ONE, "body": ONE},
    ast.SetComp: {"elt": ONE, "generators": MANY},
    ast.DictComp: {"key": ONE, "value": ONE, "generators": MANY},
    ast.Await: {"value": ONE},
    ast.Yield: {"value": OPTIONAL},
    ast.YieldFrom: {"value": ONE},
    ast.Module: {"body": MANY},
    ast.Expression: {"body": ONE},
    ast.AsyncFunctionDef: {"name": NONE, "args": ONE, "body": MANY, "decorator_list": MANY, "returns": OPTIONAL},
    ast.ClassDef: {"name": NONE, "bases": MANY, "keywords": MANY, "body": MANY, "decorator_list": MANY},
    ast.AsyncFor: {"target": ONE, "iter": ONE, "body": MANY, "orelse": MANY},
    ast.AsyncWith: {"items": MANY, "body": MANY},
    ast.Delete: {"targets": MANY},
    ast.Try: {"body": MANY, "handlers": MANY, "orelse": MANY, "finalbody": MANY},
    ast.TryStar: {"body": MANY, "handlers": MANY, "orelse": MANY, "finalbody": MANY},
    ast.ExceptHandler: {"type": OPTIONAL, "name": NONE, "body": MANY},
    ast.Match: {"subject": ONE, "cases": MANY},
    ast.match_case: {"pattern": ONE, "guard": OPTIONAL, "body": MANY},
    ast.MatchValue: {"value": ONE},
    ast.MatchSingleton: {"value": NONE},
    ast.MatchSequence: {"patterns": MANY},
    ast.MatchMapping: {"keys": MANY, "patterns": MANY},
    ast.MatchClass: {"cls": ONE, "patterns": MANY, "kwd_patterns": MANY},
    ast.MatchStar: {"name": NONE},
    ast.MatchAs: {"pattern": OPTIONAL, "name": NONE},
    ast.MatchOr: {"patterns": MANY},
    ast.Import: {},
    ast.ImportFrom: {},
    ast.Global: {},
    ast.Nonlocal: {},
    ast.Pass: {},
    ast.Break: {},
    ast.Continue: {},
}


def _fields_of(kind: type[ast.AST]) -> dict[str, str]:
    known = _KNOWN.get(kind, {})
    named = {name: known.get(name, ANY) for name in kind._fields if name not in _LEAVES}
    return {name: how for name, how in named.items() if how != NONE}


# Of every kind of node there is: the fields that hold nodes, in the order of the language's own grammar.
FIELDS = {kind: _fields_of(kind) for kind in vars(ast).values() if isinstance(kind, type) and issubclass(kind, ast.AST)}


def nodes_in(value: object) -> list[ast.AST]:
    """Return the nodes that a field of unknown shape holds."""
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, ast.AST)]


Kinds = dict[type[ast.AST], list[Any]]
_Gather = Callable[[list[ast.AST]], Iterable[ast.AST]]


def _gather(field: str, how: str) -> _Gather:
    get = attrgetter(field)
    if how == ONE:
        return lambda nodes: map(get, nodes)
    if how == OPTIONAL:
        return lambda nodes: filter(None, map(get, nodes))
    if how == MANY:
        return lambda nodes: chain.from_iterable(map(get, nodes))
    if how == SPARSE:
        return lambda nodes: filter(None, chain.from_iterable(map(get, nodes)))
    return lambda nodes: chain.from_iterable(nodes_in(getattr(node, field, None)) for node in nodes)


_GATHER = {kind: [_gather(field, how) for field, how in fields.items()] for kind, fields in FIELDS.items()}


def sort_nodes(root: ast.AST, levels: int, limit: int) -> Kinds | None:
    """Return every node at or below `root` by its kind; None when there are more than `limit` or more `levels`.

    Nodes of one kind are in the order of their level.
    """
    found: defaultdict[type[ast.AST], list[ast.AST]] = defaultdict(list)
    level: list[ast.AST] = [root]
    left = limit
    for _ in range(levels):
        left -= len(level)
        if left < 0:
            return None
        kinds: defaultdict[type[ast.AST], list[ast.AST]] = defaultdict(list)
        for node in level:
            kinds[node.__class__].append(node)
        level = []
        for kind, nodes in kinds.items():
            found[kind] += nodes
            for gather in _GATHER[kind]:
                level += gather(nodes)
        if not level:
            return found
    return None
