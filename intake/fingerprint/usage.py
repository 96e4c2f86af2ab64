"""What one top-level statement binds and reads, scope by scope.

Invariants
1. One pass over the syntax tree; nested scopes are seen once each.
2. A name that a nested scope uses counts as read at least twice where it is bound, and is listed in `inner`.
3. A name that is bound only by parameters and by plain assignments on the straight path of its function has versions:
   each assignment starts one, and reads belong to the version that is current. Inside one statement versions stay the
   same, so its parts may be read in any order.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from intake.fingerprint.folding import MISSING, literal
from intake.syntax import children

FUNCTION, CLASS, COMPREHENSION, MODULE = "function", "class", "comprehension", "module"
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_Nodes = Sequence[ast.AST]
_MANY = 2


class Usage:
    """The names of one scope: how often each is bound and read, and the imports among its bindings."""

    __slots__ = (
        "elsewhere",
        "imports",
        "inner",
        "is_generator",
        "kind",
        "loads",
        "parent",
        "stores",
        "straight",
        "versions",
    )

    def __init__(self, kind: str, parent: Usage | None) -> None:
        self.kind = kind
        self.parent = parent
        self.stores: dict[str, int] = {}
        self.loads: dict[str, int] = {}
        self.versions: dict[str, list[int]] = {}  # reads of each version
        self.straight: dict[str, int] = {}  # bindings on the straight path
        self.inner: set[str] = set()
        self.imports: dict[str, str] = {}
        self.elsewhere: set[str] = set()  # declared global or nonlocal
        self.is_generator = False

    def binds(self, name: str) -> bool:
        """Say whether `name` is bound in this scope."""
        return name in self.stores and name not in self.elsewhere

    def store(self, name: str) -> None:
        """Count one binding."""
        stores = self.stores
        stores[name] = stores.get(name, 0) + 1

    def start_version(self, name: str) -> None:
        """Count one binding on the straight path."""
        self.store(name)
        straight = self.straight
        straight[name] = straight.get(name, 0) + 1
        versions = self.versions.get(name)
        if versions is None:
            self.versions[name] = [0]
        else:
            versions.append(0)

    def load(self, name: str, times: int = 1) -> None:
        """Count reads."""
        loads = self.loads
        loads[name] = loads.get(name, 0) + times
        versions = self.versions.get(name)
        if versions is not None:
            versions[-1] += times

    def has_versions(self, name: str) -> bool:
        """Say whether every binding of a name starts a version."""
        return self.stores.get(name, 0) == self.straight.get(name, 0)


class Analysis:
    """The scopes of one top-level statement, by the id of the node that opens each."""

    def __init__(self, statement: ast.stmt) -> None:
        self.scopes: dict[int, Usage] = {}
        self.module = Usage(MODULE, None)
        self._record([statement], self.module)

    def _record(self, pending: list[Any], scope: Usage) -> None:
        """Record the nodes of a list, which is used up, and everything below them.

        Every node of the statement comes by here, so the frequent kinds are told apart on the spot.
        """
        visitors = self._VISITORS
        loads, stores, versions = scope.loads, scope.stores, scope.versions
        take, add = pending.pop, pending.append
        while pending:
            node = take()
            kind = node.__class__
            while kind is ast.Attribute:
                node = node.value
                kind = node.__class__
            if kind is ast.Name:
                name = node.id
                context = node.ctx.__class__
                if context is ast.Load:
                    loads[name] = loads.get(name, 0) + 1
                    if name in versions:
                        versions[name][-1] += 1
                elif context is ast.Store:
                    stores[name] = stores.get(name, 0) + 1
            elif kind is ast.Call:
                add(node.func)
                pending += node.args
                for keyword in node.keywords:
                    add(keyword.value)
            elif kind is ast.BinOp:
                add(node.left)
                add(node.right)
            elif kind is ast.Subscript:
                add(node.value)
                add(node.slice)
            elif kind is ast.Tuple:
                pending += node.elts
            elif kind is ast.Compare:
                add(node.left)
                pending += node.comparators
            elif kind is not ast.Constant:
                visitor = visitors.get(kind)
                pending += children(node) if visitor is None else visitor(self, node, scope)

    # Visitors do what is particular to a kind and return the nodes that are still to be recorded in the same scope.

    def _yield(self, node: ast.Yield | ast.YieldFrom, scope: Usage) -> _Nodes:
        scope.is_generator = True
        return children(node)

    def _function(self, node: Function, scope: Usage) -> _Nodes:
        arguments = node.args
        around: list[ast.AST] = [*arguments.defaults, *(item for item in arguments.kw_defaults if item is not None)]
        if not isinstance(node, ast.Lambda):
            around += node.decorator_list
            scope.store(node.name)
        inner = self._open(node, FUNCTION, scope)
        for argument in parameters(arguments):
            inner.start_version(argument)
        if isinstance(node, ast.Lambda):
            self._record([node.body], inner)
        else:
            for statement in node.body:
                self._straight(statement, inner)
        self._close(inner)
        return around

    def _straight(self, node: ast.stmt, scope: Usage) -> None:
        """Record a statement on the straight path of a function."""
        if isinstance(node, ast.Expr):
            self._record([node.value], scope)
            return
        if isinstance(node, ast.Assign):
            targets = node.targets
            if len(targets) == 1 and isinstance(targets[0], ast.Name):
                self._record([node.value], scope)
                scope.start_version(targets[0].id)
                return
            for part in taken_apart(node):
                self._straight_part(part, scope)
            return
        if isinstance(node, ast.If) and (known := literal(node.test)) is not MISSING:
            for statement in node.body if known else node.orelse:
                self._straight(statement, scope)
            if any(map(_yields, node.orelse if known else node.body)):
                scope.is_generator = True  # though it never gets there
            return
        self._straight_part(node, scope)

    def _straight_part(self, node: ast.stmt, scope: Usage) -> None:
        target: ast.expr | None = None
        if isinstance(node, ast.Assign):
            target = node.targets[0] if len(node.targets) == 1 else None
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
            target = node.target
        value = getattr(node, "value", None)
        if not isinstance(target, ast.Name) or value is None:
            self._record([node], scope)
            return
        if isinstance(node, ast.AugAssign):
            scope.load(target.id)
        self._record([value], scope)
        scope.start_version(target.id)

    def _class(self, node: ast.ClassDef, scope: Usage) -> _Nodes:
        scope.store(node.name)
        inner = self._open(node, CLASS, scope)
        self._record([*node.body], inner)
        self._close(inner)
        return [*node.decorator_list, *node.bases, *node.keywords]

    def _comprehension(self, node: Comprehension, scope: Usage) -> _Nodes:
        first = node.generators[0]
        inner = self._open(node, COMPREHENSION, scope)
        parts: list[ast.AST] = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        for generator in node.generators:
            if generator is not first:
                parts.append(generator.iter)
            parts += [generator.target, *generator.ifs]
        self._record(parts, inner)
        self._close(inner)
        return (first.iter,)

    def _walrus(self, node: ast.NamedExpr, scope: Usage) -> _Nodes:
        home = scope
        while home.kind == COMPREHENSION and home.parent is not None:
            home.load(node.target.id, _MANY)
            home = home.parent
        home.store(node.target.id)
        home.inner.add(node.target.id)
        return (node.value,)

    def _assign(self, node: ast.Assign, scope: Usage) -> _Nodes:
        first = node.targets[0]
        if len(node.targets) > 1 and isinstance(first, ast.Name) and not isinstance(node.value, ast.Constant):
            scope.load(first.id, len(node.targets) - 1)  # `a = b = v` is read as `a = v; b = a`
        return [node.value, *node.targets]

    def _annotated(self, node: ast.AnnAssign, _: Usage) -> _Nodes:
        return () if node.value is None else (node.value, node.target)

    def _augmented(self, node: ast.AugAssign, scope: Usage) -> _Nodes:
        if isinstance(node.target, ast.Name):
            scope.load(node.target.id)
        return (node.value, node.target)

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Usage) -> _Nodes:
        for name, dotted in imported(node):
            scope.store(name)
            scope.imports[name] = dotted
        return ()

    def _declaration(self, node: ast.Global | ast.Nonlocal, scope: Usage) -> _Nodes:
        scope.elsewhere |= set(node.names)
        if isinstance(node, ast.Nonlocal):
            for name in node.names:
                scope.load(name, _MANY)
        return ()

    def _capture(self, node: ast.AST, scope: Usage) -> _Nodes:
        name = getattr(node, "name", None) or getattr(node, "rest", None)
        if isinstance(name, str):
            scope.store(name)
        return children(node)

    def _open(self, node: ast.AST, kind: str, scope: Usage) -> Usage:
        inner = self.scopes[id(node)] = Usage(kind, scope)
        return inner

    @staticmethod
    def _close(inner: Usage) -> None:
        """Tell the scope around which of its names were used inside."""
        outer = inner.parent
        while outer is not None and outer.kind == CLASS and inner.kind != CLASS:
            outer = outer.parent
        if outer is None:
            return
        used = (inner.loads.keys() | inner.inner) - (inner.stores.keys() - inner.elsewhere)
        for name in used:
            outer.load(name, _MANY)
        outer.inner |= used

    _VISITORS: ClassVar[dict[type, Callable[..., _Nodes]]] = {
        **dict.fromkeys((ast.Yield, ast.YieldFrom), _yield),
        **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda), _function),
        **dict.fromkeys((ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp), _comprehension),
        **dict.fromkeys((ast.Import, ast.ImportFrom), _import),
        **dict.fromkeys((ast.Global, ast.Nonlocal), _declaration),
        **dict.fromkeys((ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping), _capture),
        ast.ClassDef: _class,
        ast.NamedExpr: _walrus,
        ast.Assign: _assign,
        ast.AnnAssign: _annotated,
        ast.AugAssign: _augmented,
    }


def _yields(node: ast.AST) -> bool:
    pending = [node]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            pending += children(node)
    return False


def taken_apart(statement: ast.stmt) -> list[ast.stmt]:
    """Return `a = v` and `b = a` for `a = b = v`, and `a = v` and `b = w` for `a, b = v, w` where that is the same."""
    if not isinstance(statement, ast.Assign):
        return [statement]
    first, value = statement.targets[0], statement.value
    if len(statement.targets) == 1 and first.__class__ is not ast.Tuple:
        return [statement]
    if len(statement.targets) > 1 and isinstance(first, ast.Name):
        again: ast.expr = value if isinstance(value, ast.Constant) else ast.Name(first.id, ast.Load())
        return [ast.Assign([first], value), *(ast.Assign([target], again) for target in statement.targets[1:])]
    if len(statement.targets) == 1 and isinstance(first, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = list(zip(first.elts, value.elts, strict=False))
        if len(first.elts) == len(value.elts) and _are_independent(pairs):
            return [ast.Assign([target], item) for target, item in pairs]
    return [statement]


def _are_independent(pairs: list[tuple[ast.expr, ast.expr]]) -> bool:
    bound: set[str] = set()
    for target, item in pairs:
        read: set[str] = set()
        pending: list[ast.AST] = [item]
        while pending:
            node = pending.pop()
            if isinstance(node, ast.Name):
                read.add(node.id)
            elif isinstance(node, ast.Lambda | ast.NamedExpr | ast.Starred):
                return False
            pending += children(node)
        if not isinstance(target, ast.Name) or bound & read or target.id in bound:
            return False
        bound.add(target.id)
    return True


def parameters(arguments: ast.arguments) -> list[str]:
    """Return the names of all parameters, in the order in which a call fills them."""
    plain = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    if arguments.vararg is not None:
        plain.append(arguments.vararg)
    if arguments.kwarg is not None:
        plain.append(arguments.kwarg)
    return [item.arg for item in plain]


def imported(node: ast.Import | ast.ImportFrom) -> list[tuple[str, str]]:
    """Return the names that an import binds, each with its dotted path; a relative path begins with its dots."""
    if isinstance(node, ast.Import):
        return [
            (alias.asname, alias.name) if alias.asname else (alias.name.partition(".")[0],) * 2 for alias in node.names
        ]
    base = "." * node.level + (f"{node.module}." if node.module else "")
    return [(alias.asname or alias.name, base + alias.name) for alias in node.names]
