"""Which names and attributes of one file may hold something that an import gave, and where attributes of it are set.

Invariants
1. Scopes are ignored: a name means the same everywhere in the file, an attribute the same on every object. What is
   bound to it by an assignment, a loop, a `with`, a pattern, a comprehension or a default may be what it holds.
2. What a call returns was just made and is nobody's property, but for `type(x)`: the class of a live object. A class
   may change its own (`type(self)`).
3. Values that travel through the arguments of a call are not followed.
4. Work is linear in the nodes of the file.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence

from intake.nodes import Kinds
from intake.syntax import attribute_link, values_within

TYPE_OF = "type()"  # stands for the class of some object; no name is spelled so
_OWN = frozenset({"self", "cls"})
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp)
SETTERS = frozenset({"setattr", "delattr"})  # builtins that change an attribute

_Edges = dict[str, list[str]]  # what may be held -> who may hold it


def _sources(value: ast.AST, own: Collection[str]) -> list[str]:
    """Return the names that `value` may be taken from, `.name` of attributes on the way, and `TYPE_OF` for classes."""
    names: list[str] = []
    pending = [value]
    while pending:
        node = pending.pop()
        link = attribute_link(node)
        if isinstance(node, ast.Name):
            names.append(node.id)
        elif link is not None:
            names.append(f".{link[1]}")
            pending.append(link[0])
        elif isinstance(node, _COMPREHENSIONS):
            pending += [node.elt, *(generator.iter for generator in node.generators)]
        elif isinstance(node, ast.DictComp):
            pending += [node.value, *(generator.iter for generator in node.generators)]
        elif _is_class_of(node, own):
            names.append(TYPE_OF)
        else:
            pending += values_within(node)
    return names


def changes(kinds: Kinds, foreign: Collection[str]) -> list[ast.AST]:
    """Return the nodes that set or delete an attribute of what one of the `foreign` names may have given.

    Attributes that are set on a foreign name itself are not among them.
    """
    found = list(_places(kinds))
    own = _own(kinds) if found else ()
    # What `self` is, was seen to where it is called so.
    places = [
        (node, _sources(target, own))
        for node, target in found
        if not (isinstance(node, ast.Attribute) and isinstance(target, ast.Name) and target.id in own)
    ]
    if not places:
        return []
    held = reached(_edges(kinds, own), {*foreign, TYPE_OF}) - set(foreign)
    return [node for node, sources in places if not held.isdisjoint(sources)]


def _own(kinds: Kinds) -> Collection[str]:
    """Return what methods call their object, unless the name is anything else anywhere in the file."""
    methods = [item for node in kinds.get(ast.ClassDef, ()) for item in node.body if isinstance(item, ast.FunctionDef)]
    firsts = set()
    for method in methods:
        named = [*method.args.posonlyargs, *method.args.args]
        if len(named) > len(method.args.defaults):  # no default of its own
            firsts.add(id(named[0]))
    strays = {node.arg for node in kinds.get(ast.arg, ()) if node.arg in _OWN and id(node) not in firsts}
    strays |= {node.id for node in kinds.get(ast.Name, ()) if node.id in _OWN and node.ctx.__class__ is not ast.Load}
    return _OWN - strays


def _is_class_of(node: ast.AST, own: Collection[str]) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "type"):
        return False
    if len(node.args) != 1:
        return False
    return not (isinstance(node.args[0], ast.Name) and node.args[0].id in own)


def _places(kinds: Kinds) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Give every place where an attribute is set or deleted, with the object whose attribute it is."""
    for node in kinds.get(ast.Attribute, ()):
        if node.ctx.__class__ is not ast.Load:
            yield node, node.value
    for node in kinds.get(ast.Call, ()):
        if node.func.__class__ is ast.Name and node.func.id in SETTERS and node.args:
            yield node, node.args[0]


def reached(edges: Mapping[str, Sequence[str]], sources: Collection[str]) -> set[str]:
    """Return `sources` and all names that `edges` lead to from them."""
    found: set[str] = set()
    pending = list(sources)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += edges.get(name, ())
    return found


def _edges(kinds: Kinds, own: Collection[str]) -> _Edges:
    edges: _Edges = {}
    for number, (targets, values) in enumerate(_bindings(kinds)):
        # By way of one hub for each binding: so many targets of so many values would be too many pairs.
        hub = f"={number}"
        for value in values:
            for root in _sources(value, own):
                edges.setdefault(root, []).append(hub)
        edges[hub] = [key for target in targets for key in _keys(target)]
    for body in (node.body for node in kinds.get(ast.ClassDef, ())):
        for name in (target.id for item in body for target in _names_set(item)):
            edges.setdefault(name, []).append(f".{name}")
    return edges


def _names_set(statement: ast.stmt) -> list[ast.Name]:
    targets: list[ast.expr] = statement.targets if isinstance(statement, ast.Assign) else []
    targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
    return [target for target in targets if isinstance(target, ast.Name)]


def _bindings(kinds: Kinds) -> Iterator[tuple[Sequence[ast.AST | str], Sequence[ast.AST]]]:
    """Give every binding of the file: what is bound (a target or a name), and the values it may be bound to."""
    for node in kinds.get(ast.Assign, ()):
        for target in node.targets[1:]:
            yield from _pairs(target, node.value)
        yield from _pairs(node.targets[0], node.value)
    for kind in (ast.AnnAssign, ast.NamedExpr):
        yield from (((node.target,), (node.value,)) for node in kinds.get(kind, ()) if node.value is not None)
    for loop in (ast.For, ast.AsyncFor, ast.comprehension):
        yield from (((node.target,), (node.iter,)) for node in kinds.get(loop, ()))
    for node in kinds.get(ast.withitem, ()):
        if node.optional_vars is not None:
            manager = node.context_expr
            yield (node.optional_vars,), (manager.args if isinstance(manager, ast.Call) else (manager,))
    for node in kinds.get(ast.Match, ()):
        captured = [name for case in node.cases for name in _captures(case.pattern)]
        if captured:
            yield captured, (node.subject,)
    for node in kinds.get(ast.arguments, ()):
        positional = [*node.posonlyargs, *node.args]
        defaults = zip(positional[len(positional) - len(node.defaults) :], node.defaults, strict=True)
        for argument, default in (*defaults, *zip(node.kwonlyargs, node.kw_defaults, strict=True)):
            if default is not None:
                yield (argument.arg,), (default,)


def _pairs(target: ast.AST, value: ast.AST) -> Iterator[tuple[Sequence[ast.AST], Sequence[ast.AST]]]:
    """Give `a, b = c, d` as two bindings, anything else as one."""
    left, right = (node.elts if isinstance(node, ast.Tuple | ast.List) else [] for node in (target, value))
    if not left or len(left) != len(right) or any(isinstance(item, ast.Starred) for item in (*left, *right)):
        yield (target,), (value,)
    else:
        yield from (((one,), (other,)) for one, other in zip(left, right, strict=True))


def _captures(pattern: ast.pattern) -> list[str]:
    names = (getattr(node, "name", None) or getattr(node, "rest", None) for node in ast.walk(pattern))
    return [name for name in names if isinstance(name, str)]


def _keys(target: ast.AST | str) -> list[str]:
    """Return what a binding of `target` changes: names, `.name` for attributes, the owner of an element."""
    if isinstance(target, str):
        return [target]
    if isinstance(target, ast.Name):
        return [target.id]
    if isinstance(target, ast.Attribute):
        return [f".{target.attr}"]
    if isinstance(target, ast.Subscript | ast.Starred):
        return _keys(target.value)
    if isinstance(target, ast.Tuple | ast.List):
        return [key for item in target.elts for key in _keys(item)]
    return []
