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

from intake.syntax import children

_one = "one"
_optional = "optional"  # None for what is not there
_many = "many"
_sparse = "sparse"  # a list that holds None for what is not there

# The fields that hold nodes, in the order of the source. Kinds that are not listed are asked for their children.
_FIELDS: dict[type[ast.AST], dict[str, str]] = {
    ast.Name: {},
    ast.Constant: {},
    ast.Attribute: {"value": _one},
    ast.Call: {"func": _one, "args": _many, "keywords": _many},
    ast.Subscript: {"value": _one, "slice": _one},
    ast.Expr: {"value": _one},
    ast.Assign: {"targets": _many, "value": _one},
    ast.AugAssign: {"target": _one, "value": _one},
    ast.AnnAssign: {"target": _one, "annotation": _one, "value": _optional},
    ast.NamedExpr: {"target": _one, "value": _one},
    ast.BinOp: {"left": _one, "right": _one},
    ast.BoolOp: {"values": _many},
    ast.UnaryOp: {"operand": _one},
    ast.Compare: {"left": _one, "comparators": _many},
    ast.IfExp: {"test": _one, "body": _one, "orelse": _one},
    ast.Tuple: {"elts": _many},
    ast.List: {"elts": _many},
    ast.Set: {"elts": _many},
    ast.Dict: {"keys": _sparse, "values": _many},
    ast.Slice: {"lower": _optional, "upper": _optional, "step": _optional},
    ast.Starred: {"value": _one},
    ast.keyword: {"value": _one},
    ast.arg: {"annotation": _optional},
    ast.arguments: {
        "posonlyargs": _many,
        "args": _many,
        "vararg": _optional,
        "kwonlyargs": _many,
        "kw_defaults": _sparse,
        "kwarg": _optional,
        "defaults": _many,
    },
    ast.FunctionDef: {"args": _one, "body": _many, "decorator_list": _many, "returns": _optional},
    ast.Return: {"value": _optional},
    ast.If: {"test": _one, "body": _many, "orelse": _many},
    ast.For: {"target": _one, "iter": _one, "body": _many, "orelse": _many},
    ast.While: {"test": _one, "body": _many, "orelse": _many},
    ast.With: {"items": _many, "body": _many},
    ast.withitem: {"context_expr": _one, "optional_vars": _optional},
    ast.Assert: {"test": _one, "msg": _optional},
    ast.Raise: {"exc": _optional, "cause": _optional},
    ast.JoinedStr: {"values": _many},
    ast.FormattedValue: {"value": _one, "format_spec": _optional},
    ast.ListComp: {"elt": _one, "generators": _many},
    ast.GeneratorExp: {"elt": _one, "generators": _many},
    ast.comprehension: {"target": _one, "iter": _one, "ifs": _many},
    ast.Lambda: {"args": _one, "body": _one},
}

_Gather = Callable[[list[ast.AST]], Iterable[ast.AST]]


def _gather(field: str, how: str) -> _Gather:
    get = attrgetter(field)
    if how == _one:
        return lambda nodes: map(get, nodes)
    if how == _optional:
        return lambda nodes: filter(None, map(get, nodes))
    if how == _many:
        return lambda nodes: chain.from_iterable(map(get, nodes))
    return lambda nodes: filter(None, chain.from_iterable(map(get, nodes)))


_GATHER: dict[type[ast.AST], list[_Gather]] = {
    kind: [_gather(field, how) for field, how in fields.items()] for kind, fields in _FIELDS.items()
}


def sort_nodes(root: ast.AST, levels: int, limit: int) -> dict[type[ast.AST], list[ast.AST]] | None:
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
            gather = _GATHER.get(kind)
            if gather is None:
                for node in nodes:
                    level += children(node)
            else:
                for field in gather:
                    level += field(nodes)
        if not level:
            return found
    return None
