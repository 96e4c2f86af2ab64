"""Which name means which import, by Python's own scoping rules.

Invariants
1. Function and comprehension scopes are static: a name bound there is that binding everywhere inside. Module and class
   scopes are dynamic: a name that is bound by an import anywhere in them may be that import.
2. `global` and `nonlocal` declarations bind in the scope they name, wherever they stand.
3. A plain assignment `name = a.b.c` makes `name` an alias of what `a.b.c` may be; aliases are followed to the end.
4. Resolution over-approximates: it may report an import that a name does not hold, never miss one that it can hold
   through these forms. Values that travel through calls and containers are refused at the point where they start.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import ClassVar, NamedTuple

from config.limits import INTAKE
from intake.syntax import children, dotted_name, too_complex

_STEPS = 10 * INTAKE.syntax_depth  # aliases followed from one name
_MEANINGS = 64  # imports that one name may stand for
_ATTRIBUTES = INTAKE.path_depth  # attributes remembered along a chain of aliases
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class ImportedName(NamedTuple):
    """One name bound by an import statement. `path` is the absolute dotted path, or "." + path for a relative one."""

    name: str
    path: str
    is_module: bool  # bound by `import`, so certainly a module


def imported_names(node: ast.Import | ast.ImportFrom) -> list[ImportedName]:
    """Return what one import statement binds."""
    found = []
    for alias in node.names:
        if isinstance(node, ast.Import):
            name = alias.asname or alias.name.partition(".")[0]
            found.append(ImportedName(name, alias.name if alias.asname else name, is_module=True))
        else:
            base = "." * node.level + (f"{node.module}." if node.module else "")
            found.append(ImportedName(alias.asname or alias.name, base + alias.name, is_module=False))
    return found


class Scope:
    """The bindings of one module, class, function or comprehension."""

    def __init__(self, node: ast.AST, parent: Scope | None) -> None:
        self.node = node
        self.parent = parent
        self.bound: set[str] = set()
        self.imports: dict[str, set[ImportedName]] = {}
        self.aliases: dict[str, list[ast.AST]] = {}
        self.elsewhere: dict[str, str] = {}  # name -> "global" or "nonlocal"

    def alias_chains(self, name: str) -> list[tuple[str, tuple[str, ...]]]:
        """Return what `name` is an alias of, as (root name, attribute names)."""
        chains = (dotted_name(value) for value in self.aliases.get(name, ()))
        return [(chain[0].id, tuple(chain[1])) for chain in chains if chain is not None]

    @property
    def is_class(self) -> bool:
        """Whether this is the body of a class, which inner functions do not see."""
        return isinstance(self.node, ast.ClassDef)

    @property
    def is_static(self) -> bool:
        """Whether a name bound here shadows outer names everywhere inside."""
        return isinstance(self.node, (*_FUNCTIONS, *_COMPREHENSIONS))


Binding = tuple[Scope, str]


class Scopes:
    """All scopes of one syntax tree."""

    def __init__(self, tree: ast.Module, path: str) -> None:
        self._path = path
        self.module = Scope(tree, None)
        self._by_node: dict[int, Scope] = {id(tree): self.module}
        self._resolved: dict[Binding, tuple[ImportedName, ...]] = {}
        self._reaching_import: set[Binding] | None = None
        self._all_bound: frozenset[str] | None = None
        for child in children(tree):
            self._bind(child, self.module)

    def adopt(self, expression: ast.expr) -> None:
        """Add an expression that is evaluated at module level and binds no name there."""
        self._bind(expression, self.module)

    def of(self, node: ast.AST) -> Scope:
        """Return the scope that `node` (a module, class, function or comprehension) opens."""
        return self._by_node[id(node)]

    def resolve(self, name: str, scope: Scope) -> tuple[ImportedName, ...]:
        """Return every import that `name` may mean in `scope`, in a fixed order; empty for a name that holds none.

        Raises `IntakeError` (PYTHON_TOO_COMPLEX) when aliases are too entangled to be followed.
        """
        key = (scope, name)
        known = self._resolved.get(key)
        if known is None:
            known = self._resolved[key] = self._follow(name, scope)
        return known

    def _follow(self, name: str, scope: Scope) -> tuple[ImportedName, ...]:
        found: set[ImportedName] = set()
        pending: list[tuple[str, Scope, tuple[str, ...]]] = [(name, scope, ())]
        seen: set[tuple[str, Scope, tuple[str, ...]]] = set()
        while pending:
            current_name, current_scope, attributes = pending.pop()
            for home in self._visible(current_name, current_scope):
                step = (current_name, home, attributes)
                if step in seen or (home, current_name) not in self._reaching():
                    continue
                seen.add(step)
                if len(seen) > _STEPS:
                    raise too_complex(self._path)
                for origin in home.imports.get(current_name, ()):
                    path = ".".join([origin.path, *attributes])
                    found.add(ImportedName(origin.name, path, origin.is_module and not attributes))
                if len(found) > _MEANINGS:
                    raise too_complex(self._path)
                for root, more in home.alias_chains(current_name):
                    # What is nearest to the import decides; the rest may be cut off.
                    pending.append((root, home, (*more, *attributes)[:_ATTRIBUTES]))
        return tuple(sorted(found))

    def _reaching(self) -> set[Binding]:
        """Return the bindings from which some import can be reached; the others are nobody's concern."""
        if self._reaching_import is not None:
            return self._reaching_import
        uses: dict[Binding, list[Binding]] = {}
        pending: list[Binding] = []
        for scope in self._by_node.values():
            pending += [(scope, name) for name in scope.imports]
            for name in scope.aliases:
                for root, _ in scope.alias_chains(name):
                    for home in self._visible(root, scope):
                        uses.setdefault((home, root), []).append((scope, name))
        reached: set[Binding] = set()
        while pending:
            binding = pending.pop()
            if binding not in reached:
                reached.add(binding)
                pending += uses.get(binding, ())
        self._reaching_import = reached
        return reached

    def _visible(self, name: str, scope: Scope) -> list[Scope]:
        """Return the scopes whose binding of `name` may be the one that `scope` sees."""
        found: list[Scope] = []
        current: Scope | None = scope
        while current is not None:
            visible = current is scope or not current.is_class
            if visible and (name in current.imports or name in current.aliases):
                found.append(current)
            if current.is_static and name in current.bound and name not in current.elsewhere:
                break
            current = self.module if current.elsewhere.get(name) == "global" else current.parent
        return found

    def binds(self, name: str) -> bool:
        """Say whether anything in the file binds `name`, in whatever scope."""
        if self._all_bound is None:
            self._all_bound = frozenset().union(*(scope.bound for scope in self._by_node.values()))
        return name in self._all_bound

    def is_function_local(self, name: str, scope: Scope) -> bool:
        """Say whether `name` is certainly a local of an enclosing function or comprehension."""
        holder = self._holder(name, scope)
        return holder is not None and holder.is_static

    def _holder(self, name: str, scope: Scope) -> Scope | None:
        current: Scope | None = scope
        while current is not None:
            if current.is_static and name in current.bound and name not in current.elsewhere:
                return current
            if current.elsewhere.get(name) == "global":
                return self.module
            current = current.parent
        return None

    def _bind(self, node: ast.AST, scope: Scope) -> None:
        self._BINDERS.get(node.__class__, Scopes._bind_children)(self, node, scope)

    def _bind_name(self, node: ast.Name, scope: Scope) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._target(scope, node.id)

    def _bind_capture(self, node: ast.ExceptHandler | ast.MatchAs | ast.MatchStar, scope: Scope) -> None:
        if node.name:
            self._target(scope, node.name)
        self._bind_children(node, scope)

    def _bind_rest(self, node: ast.MatchMapping, scope: Scope) -> None:
        if node.rest:
            self._target(scope, node.rest)
        self._bind_children(node, scope)

    def _bind_assign(self, node: ast.Assign | ast.AnnAssign, scope: Scope) -> None:
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Name) and node.value is not None:
                self._home(scope, target.id).aliases.setdefault(target.id, []).append(node.value)
        self._bind_children(node, scope)

    def _bind_declaration(self, node: ast.Global | ast.Nonlocal, scope: Scope) -> None:
        if scope is not self.module:  # it says nothing at module level
            # Declared before use, by the language's own rule, so later bindings see it.
            kind = "global" if isinstance(node, ast.Global) else "nonlocal"
            scope.elsewhere.update(dict.fromkeys(node.names, kind))

    def _bind_class(self, node: ast.ClassDef, scope: Scope) -> None:
        self._target(scope, node.name)
        self._open(node, scope, node.body, outer=[*node.decorator_list, *node.bases, *node.keywords])

    def _bind_children(self, node: ast.AST, scope: Scope) -> None:
        binders, walk_on = self._BINDERS, Scopes._bind_children
        for child in children(node):
            if child.__class__ is not ast.Constant:  # the most frequent nodes that bind nothing
                binders.get(child.__class__, walk_on)(self, child, scope)

    def _bind_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scope: Scope) -> None:
        arguments = node.args
        outer: list[ast.AST] = [*arguments.defaults, *(item for item in arguments.kw_defaults if item is not None)]
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        parameters += [item for item in (arguments.vararg, arguments.kwarg) if item is not None]
        outer += [item.annotation for item in parameters if item.annotation is not None]
        body: list[ast.AST]
        if isinstance(node, ast.Lambda):
            body = [node.body]
        else:
            self._target(scope, node.name)
            outer += node.decorator_list
            outer += [node.returns] if node.returns is not None else []
            body = list(node.body)
        inner = self._open(node, scope, [], outer=outer)
        inner.bound.update(item.arg for item in parameters)
        for child in body:
            self._bind(child, inner)

    def _bind_comprehension(self, node: ast.AST, scope: Scope) -> None:
        inner = self._open(node, scope, [], outer=[])
        generators: list[ast.comprehension] = getattr(node, "generators", [])
        for index, generator in enumerate(generators):
            # Only the first iterable is evaluated outside.
            self._bind(generator.iter, inner if index else scope)
            self._bind(generator.target, inner)
            for condition in generator.ifs:
                self._bind(condition, inner)
        for field in ("elt", "key", "value"):
            value = getattr(node, field, None)
            if isinstance(value, ast.AST):
                self._bind(value, inner)

    def _bind_import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        for imported in imported_names(node):
            home = self._home(scope, imported.name)
            home.bound.add(imported.name)
            home.imports.setdefault(imported.name, set()).add(imported)

    def _bind_walrus(self, node: ast.NamedExpr, scope: Scope) -> None:
        home = scope
        while isinstance(home.node, _COMPREHENSIONS) and home.parent is not None:
            home = home.parent
        name = node.target.id
        self._target(home, name)
        self._home(home, name).aliases.setdefault(name, []).append(node.value)
        self._bind(node.value, scope)

    def _open(
        self, node: ast.AST, scope: Scope, body: list[ast.stmt], *, outer: list[ast.AST] | list[ast.expr]
    ) -> Scope:
        inner = Scope(node, scope)
        self._by_node[id(node)] = inner
        for child in outer:
            self._bind(child, scope)
        for statement in body:
            self._bind(statement, inner)
        return inner

    def _target(self, scope: Scope, name: str) -> None:
        self._home(scope, name).bound.add(name)

    def _home(self, scope: Scope, name: str) -> Scope:
        """Return the scope in which a binding of `name` made in `scope` takes effect."""
        kind = scope.elsewhere.get(name)
        if kind == "global":
            return self.module
        if kind == "nonlocal":
            outer = scope.parent
            while outer is not None:
                if outer.is_static and name in outer.bound:
                    return outer
                outer = outer.parent
        return scope

    # How each kind of node binds names; kinds that are not listed bind none themselves.
    _BINDERS: ClassVar[dict[type, Callable[..., None]]] = {
        ast.Name: _bind_name,
        ast.ExceptHandler: _bind_capture,
        ast.MatchAs: _bind_capture,
        ast.MatchStar: _bind_capture,
        ast.MatchMapping: _bind_rest,
        ast.Assign: _bind_assign,
        ast.AnnAssign: _bind_assign,
        ast.NamedExpr: _bind_walrus,
        ast.Import: _bind_import,
        ast.ImportFrom: _bind_import,
        ast.Global: _bind_declaration,
        ast.Nonlocal: _bind_declaration,
        ast.ClassDef: _bind_class,
        **dict.fromkeys(_FUNCTIONS, _bind_function),
        **dict.fromkeys(_COMPREHENSIONS, _bind_comprehension),
    }
