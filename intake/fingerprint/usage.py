"""What one definition binds and reads, scope by scope, and which of its parts may do more than compute a value.

Invariants
1. One pass over the syntax tree; nested scopes are seen once each.
2. `impure` holds every node below which something is called, awaited, yielded or bound in an expression. Everything
   else only reads names, attributes and elements and computes; moving or dropping it changes no work.
3. A name that a nested scope uses counts as read at least twice where it is bound, and is listed in `inner`.
4. A name that is bound only by parameters and by plain assignments on the straight path of its function has versions:
   each assignment starts one, and reads belong to the version that is current.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from intake.fingerprint.folding import MISSING, literal
from intake.syntax import children

FUNCTION, CLASS, COMPREHENSION, MODULE = "function", "class", "comprehension", "module"
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_MANY = 2


class Usage:
    """The names of one scope: how often each is bound and read, and the imports among its bindings."""

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

    def store(self, name: str, *, is_straight: bool = False) -> None:
        """Count one binding; one on the straight path starts a version."""
        self.stores[name] = self.stores.get(name, 0) + 1
        if is_straight:
            self.straight[name] = self.straight.get(name, 0) + 1
            self.versions.setdefault(name, []).append(0)

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
    """The scopes of one top-level statement, by the id of the node that opens each, and its impure nodes."""

    def __init__(self, statement: ast.stmt) -> None:
        self.scopes: dict[int, Usage] = {}
        self.impure: set[int] = set()
        self.module = Usage(MODULE, None)
        self._made: list[ast.AST] = []
        self._visit(statement, self.module)

    def adopt(self, node: ast.AST, *, like: ast.AST) -> None:
        """Treat a node that was made later as another one."""
        if id(like) in self.impure:
            self.impure.add(id(node))
        self._made.append(node)  # its id has to stay its own

    def taint(self, node: ast.AST, name: str) -> bool:
        """Make everything around a use of `name` impure; return whether there is one."""
        if isinstance(node, ast.Name):
            found = node.id == name
        else:
            found = sum(self.taint(child, name) for child in children(node)) > 0  # all of them, not the first
        if found:
            self.adopt(node, like=node)
            self.impure.add(id(node))
        return found

    def _visit(self, node: ast.AST, scope: Usage) -> bool:
        """Record `node` and everything below; return whether it is impure."""
        return self._all((node,), scope)

    def _all(self, nodes: Iterable[ast.AST], scope: Usage) -> bool:
        """Record some nodes and everything below them; return whether one is impure.

        Every node of the statement comes by here, so the frequent kinds are told apart on the spot.
        """
        any_impure = False
        visitors = self._VISITORS
        for node in nodes:
            kind: Any = node.__class__
            if kind is ast.Name:
                self._name(node, scope)  # type: ignore[arg-type]
                continue
            if kind is ast.Constant:
                continue
            visitor = visitors.get(kind)
            impure = self._all(children(node), scope) if visitor is None else visitor(self, node, scope)
            if impure:
                any_impure = True
                self.impure.add(id(node))
        return any_impure

    @staticmethod
    def _name(node: ast.Name, scope: Usage) -> bool:
        kind = node.ctx.__class__
        if kind is ast.Load:
            name, loads = node.id, scope.loads
            loads[name] = loads.get(name, 0) + 1
            versions = scope.versions.get(name)
            if versions is not None:
                versions[-1] += 1
        elif kind is ast.Store:
            scope.store(node.id)
        return False

    def _attribute(self, node: ast.Attribute, scope: Usage) -> bool:
        """Record a chain of attributes at once; what its root does, all of it does."""
        links: list[ast.AST] = []
        base: ast.AST = node.value
        while base.__class__ is ast.Attribute:
            links.append(base)
            base = base.value
        if base.__class__ is ast.Name:
            return self._name(base, scope)
        if self._all((base,), scope):
            self.impure.update(map(id, links))
            return True
        return False

    def _call(self, node: ast.Call, scope: Usage) -> bool:
        self._all((node.func, *node.args), scope)
        keywords = node.keywords
        if keywords:
            self._all(keywords, scope)
        return True

    def _await(self, node: ast.AST, scope: Usage) -> bool:
        self._all(children(node), scope)
        return True

    def _yield(self, node: ast.AST, scope: Usage) -> bool:
        scope.is_generator = True
        return self._await(node, scope)

    def _function(self, node: Function, scope: Usage) -> bool:
        arguments = node.args
        impure = self._all([*arguments.defaults, *(item for item in arguments.kw_defaults if item is not None)], scope)
        if not isinstance(node, ast.Lambda):
            impure |= self._all(node.decorator_list, scope)
            scope.store(node.name)
        inner = self._open(node, FUNCTION, scope)
        for argument in parameters(arguments):
            inner.store(argument, is_straight=True)
        if isinstance(node, ast.Lambda):
            self._visit(node.body, inner)
        else:
            for statement in node.body:
                self._straight(statement, inner)
        self._close(inner)
        return impure

    def _straight(self, node: ast.stmt, scope: Usage) -> None:
        """Record a statement on the straight path of a function."""
        if isinstance(node, ast.If) and (known := literal(node.test)) is not MISSING:
            for statement in node.body if known else node.orelse:
                self._straight(statement, scope)
            if any(map(_yields, node.orelse if known else node.body)):
                scope.is_generator = True  # though it never gets there
            return
        parts = taken_apart(node) if node.__class__ is ast.Assign else (node,)
        for part in parts:
            self._straight_part(part, scope)

    def _straight_part(self, node: ast.stmt, scope: Usage) -> None:
        target: ast.expr | None = None
        if isinstance(node, ast.Assign):
            target = node.targets[0] if len(node.targets) == 1 else None
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
            target = node.target
        value = getattr(node, "value", None)
        if not isinstance(target, ast.Name) or value is None:
            self._visit(node, scope)
            return
        if isinstance(node, ast.AugAssign):
            scope.load(target.id)
        if self._visit(value, scope):
            self.impure.add(id(node))
        scope.store(target.id, is_straight=True)

    def _class(self, node: ast.ClassDef, scope: Usage) -> bool:
        impure = self._all([*node.decorator_list, *node.bases, *node.keywords], scope)
        scope.store(node.name)
        inner = self._open(node, CLASS, scope)
        impure |= self._all(node.body, inner)
        self._close(inner)
        return impure

    def _comprehension(self, node: Comprehension, scope: Usage) -> bool:
        first = node.generators[0]
        impure = self._visit(first.iter, scope)
        inner = self._open(node, COMPREHENSION, scope)
        for generator in node.generators:
            if generator is not first:
                impure |= self._visit(generator.iter, inner)
            impure |= self._visit(generator.target, inner) | self._all(generator.ifs, inner)
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        impure |= self._all(parts, inner)
        self._close(inner)
        return impure

    def _walrus(self, node: ast.NamedExpr, scope: Usage) -> bool:
        home = scope
        while home.kind == COMPREHENSION and home.parent is not None:
            home.load(node.target.id, _MANY)
            home = home.parent
        home.store(node.target.id)
        home.inner.add(node.target.id)
        self._visit(node.value, scope)
        return True

    def _assign(self, node: ast.Assign, scope: Usage) -> bool:
        first = node.targets[0]
        if len(node.targets) > 1 and isinstance(first, ast.Name) and not isinstance(node.value, ast.Constant):
            scope.load(first.id, len(node.targets) - 1)  # `a = b = v` is read as `a = v; b = a`
        return self._visit(node.value, scope) | self._all(node.targets, scope)

    def _annotated(self, node: ast.AnnAssign, scope: Usage) -> bool:
        if node.value is None:
            return False
        return self._visit(node.value, scope) | self._visit(node.target, scope)

    def _augmented(self, node: ast.AugAssign, scope: Usage) -> bool:
        if isinstance(node.target, ast.Name):
            scope.load(node.target.id)
        return self._visit(node.value, scope) | self._visit(node.target, scope)

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Usage) -> bool:
        for name, dotted in imported(node):
            scope.store(name)
            scope.imports[name] = dotted
        return False

    def _declaration(self, node: ast.Global | ast.Nonlocal, scope: Usage) -> bool:
        scope.elsewhere |= set(node.names)
        if isinstance(node, ast.Nonlocal):
            for name in node.names:
                scope.load(name, _MANY)
        return False

    def _capture(self, node: ast.AST, scope: Usage) -> bool:
        name = getattr(node, "name", None) or getattr(node, "rest", None)
        if isinstance(name, str):
            scope.store(name)
        return self._all(children(node), scope)

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

    _VISITORS: ClassVar[dict[type, Callable[..., bool]]] = {
        ast.Call: _call,
        ast.Await: _await,
        ast.Attribute: _attribute,
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
