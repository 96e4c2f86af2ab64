"""Says of most files, at a fraction of the cost of reading them node by node, that the policy finds nothing in them.

Invariants
1. A quiet file is one in which `intake.static_scan` finds nothing; that scan stays the judge of every other file.
2. Every rule is over-approximated: scopes are ignored, so a name that is bound by an import anywhere in the file may
   mean that import everywhere; whatever could be a breach in some context counts as one.
3. What is reported about a quiet file is a superset of what the full scan would report, so that a question which gets
   a "no" here gets one there.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from config.errors import IntakeError
from config.limits import IntakeLimits
from intake.closure import Dotted, Import, LocalModules, imports_of
from intake.nodes import Kinds, sort_nodes
from intake.scan_policy import (
    ATTRIBUTE_BUILTINS,
    CODE_BUILTINS,
    CONTAINERS,
    DENIED_ATTRIBUTES,
    DENIED_BUILTINS,
    DENIED_NAMES,
    DENIED_STRINGS,
    IMPORTS,
    LEAKED_MODULES,
    TAINTED_ATTRIBUTES,
    TAINTED_IMPORTS,
    UNPICKLERS,
    is_denied_attribute,
    path_problem,
)
from intake.scopes import ImportedName, imported_names
from intake.static_scan import LocalUse, ScannedModule
from intake.syntax import Parsed, dotted_name, line_of, literal_text, parse_expression, walk

_LOUD_NAMES = DENIED_NAMES | CODE_BUILTINS | DENIED_BUILTINS | ATTRIBUTE_BUILTINS
_LOUD_ATTRIBUTES = DENIED_ATTRIBUTES | TAINTED_ATTRIBUTES | DENIED_STRINGS
_LOADS = frozenset({"load", "loads"})
_STEPS = 9  # aliases followed from one name
_CHAIN_KINDS = frozenset({ast.Name, ast.Attribute})
_ANNOTATIONS: tuple[tuple[type[ast.AST], str], ...] = (
    (ast.arg, "annotation"),
    (ast.AnnAssign, "annotation"),
    (ast.FunctionDef, "returns"),
    (ast.AsyncFunctionDef, "returns"),
)

_Chain = tuple[str, tuple[str, ...]]  # a root name and the attributes taken of it


class QuietModule(NamedTuple):
    """What other checks need to know about a quiet file."""

    imports: list[Import]
    scanned: ScannedModule  # a superset of what the full scan would say, without lines and defined names


def quiet_module(path: str, parsed: Parsed, modules: LocalModules, limits: IntakeLimits) -> QuietModule | None:
    """Return what is known about a file in which the policy certainly finds nothing, else None."""
    try:
        return _Quiet(path, parsed.kinds, modules, limits).run()
    except (_Loud, IntakeError):
        return None


class _Loud(Exception):  # noqa: N818 - not an error: the full scan decides
    """Something that may be a breach."""


def _require(quiet: object) -> None:
    if not quiet:
        raise _Loud


class _Quiet:
    """Questions to all nodes of one file; each either passes or raises `_Loud`."""

    def __init__(self, path: str, kinds: Kinds, modules: LocalModules, limits: IntakeLimits) -> None:
        self._path = path
        self._kinds = dict(kinds)
        self._modules = modules
        self._limits = limits
        self._origins: dict[str, set[ImportedName]] = {}
        self._local_uses: set[Dotted] = set()

    def run(self) -> QuietModule:
        _require(ast.MatchClass not in self._kinds)
        statements = [node for kind in (ast.Import, ast.ImportFrom) for node in self._kinds.get(kind, ())]
        self._imports(statements)
        self._text_annotations()
        self._names_and_texts()
        self._aliases()
        self._chains()
        self._targets()
        foreign = {name for name, origins in self._origins.items() if any(map(self._is_foreign, origins))}
        uses = tuple(LocalUse(dotted, self._path, 0) for dotted in self._local_uses)
        return QuietModule(imports_of(statements), ScannedModule(frozenset(), frozenset(foreign), uses))

    # Imports

    def _imports(self, statements: Iterable[ast.Import | ast.ImportFrom]) -> None:
        bodies = [(node.lineno, node.end_lineno) for node in self._kinds.get(ast.ClassDef, ())]
        for statement in statements:
            _require(not any(first <= statement.lineno <= last for first, last in bodies))
            if isinstance(statement, ast.Import):
                for alias in statement.names:
                    self._import(alias)
            else:
                self._import_from(statement)
            for imported in imported_names(statement):
                self._origins.setdefault(imported.name, set()).add(imported)

    def _import(self, alias: ast.alias) -> None:
        root = alias.name.partition(".")[0]
        _require(alias.asname in (None, root) or IMPORTS.get(root) is None)
        self._outside(alias.name)

    def _import_from(self, statement: ast.ImportFrom) -> None:
        base = statement.module or ""
        local = statement.level > 0 or self._modules.is_local(base.partition(".")[0])
        for alias in statement.names:
            _require(alias.name != "*" and (base, alias.name) not in TAINTED_IMPORTS)
            _require(alias.name not in _LOUD_ATTRIBUTES and not is_denied_attribute(alias.name))
            if local:
                self._local_use("." * statement.level + base, [alias.name])
            else:
                self._outside(f"{base}.{alias.name}")

    def _outside(self, dotted: str) -> None:
        root = dotted.partition(".")[0]
        if not self._modules.is_local(root):
            _require(root in IMPORTS and not path_problem(dotted))

    # Names, attributes, texts

    def _names_and_texts(self) -> None:
        names = {node.id for node in self._kinds.get(ast.Name, ())}
        _require(names.isdisjoint(_LOUD_NAMES))
        _require(not any(name.startswith("__") and is_denied_attribute(name) for name in names))
        attributes = {node.attr for node in self._kinds.get(ast.Attribute, ())}
        _require(attributes.isdisjoint(_LOUD_ATTRIBUTES))
        _require(not any(map(is_denied_attribute, attributes)))
        texts = (node.value for node in self._kinds.get(ast.Constant, ()) if node.value.__class__ is str)
        _require(DENIED_STRINGS.isdisjoint(texts))

    def _text_annotations(self) -> None:
        """Add the nodes of every text inside an annotation that is an expression: the policy reads them as code."""
        pending = [*self._annotations()]
        seen: set[str] = set()
        while pending:
            annotation = pending.pop()
            if annotation.__class__ is ast.Name:
                continue
            for part in walk(annotation):
                text = literal_text(part)
                if text is None or text in seen:
                    continue
                seen.add(text)
                expression = parse_expression(text, line_of(part))
                if expression is not None:
                    pending.append(expression)
                    self._add(expression)

    def _annotations(self) -> Iterator[ast.expr]:
        for kind, field in _ANNOTATIONS:
            for node in self._kinds.get(kind, ()):
                annotation = getattr(node, field)
                if annotation is not None:
                    yield annotation

    def _add(self, expression: ast.expr) -> None:
        more = sort_nodes(expression, self._limits.syntax_depth, self._limits.syntax_nodes)
        _require(more is not None and ast.NamedExpr not in more)
        for kind, nodes in (more or {}).items():
            self._kinds[kind] = [*self._kinds.get(kind, ()), *nodes]

    # What names mean

    def _aliases(self) -> None:
        """Follow `name = a.b.c` from every name that may end up at an import."""
        chains: dict[str, set[_Chain]] = {}
        for name, value in self._bindings():
            if value.__class__ in _CHAIN_KINDS and (found := dotted_name(value)) is not None:
                chains.setdefault(name, set()).add((found[0].id, tuple(found[1])))
        reaching = set(self._origins)
        grown = True
        while grown:
            more = {name for name, targets in chains.items() if any(root in reaching for root, _ in targets)} - reaching
            reaching |= more
            grown = bool(more)
        imported = {name: frozenset(origins) for name, origins in self._origins.items()}
        for name in chains.keys() & reaching:
            self._follow(name, chains, imported, reaching)

    def _bindings(self) -> Iterator[tuple[str, ast.expr]]:
        for node in self._kinds.get(ast.Assign, ()):
            for target in node.targets:
                if target.__class__ is ast.Name:
                    yield target.id, node.value
        for kind in (ast.AnnAssign, ast.NamedExpr):
            for node in self._kinds.get(kind, ()):
                if node.target.__class__ is ast.Name and node.value is not None:
                    yield node.target.id, node.value

    def _follow(
        self,
        name: str,
        chains: Mapping[str, set[_Chain]],
        imported: Mapping[str, frozenset[ImportedName]],
        reaching: Collection[str],
    ) -> None:
        """Add what an alias may mean. Few steps only: the full scan bounds its own, which are these in each scope."""
        pending: list[_Chain] = [(name, ())]
        seen: set[_Chain] = set()
        while pending:
            step = pending.pop()
            root, attributes = step
            if step in seen or root not in reaching:
                continue
            seen.add(step)
            _require(len(seen) <= _STEPS and len(attributes) <= _STEPS)
            for origin in imported.get(root, ()):
                path = ".".join([origin.path, *attributes])
                meaning = ImportedName(origin.name, path, origin.is_module and not attributes)
                self._origins.setdefault(name, set()).add(meaning)
            pending += [(further, (*more, *attributes)) for further, more in chains.get(root, ())]

    def _is_local(self, origin: ImportedName) -> bool:
        return origin.path.startswith(".") or self._modules.is_local(origin.path.partition(".")[0])

    def _is_foreign(self, origin: ImportedName) -> bool:
        return not self._is_local(origin) and (
            _holds_module(origin) or IMPORTS.get(origin.path.partition(".")[0]) is not None
        )

    # How names are used

    def _chains(self) -> None:
        """Check every `a.b.c` that starts at an import, and that no module is used as a value."""
        attributes = self._kinds.get(ast.Attribute, ())
        outer = {id(node.value): node for node in attributes if node.value.__class__ is ast.Attribute}
        origins = self._origins
        starts = [node for node in attributes if node.value.__class__ is ast.Name and node.value.id in origins]
        used = Counter(_chain_from(start, outer) for start in starts)
        for root, names in used:
            for origin in origins[root]:
                self._chain(origin, names)
        modules = {name for name, found in origins.items() if any(map(self._is_outside_module, found))}
        loads = sum(node.id in modules and node.ctx.__class__ is ast.Load for node in self._kinds.get(ast.Name, ()))
        _require(loads == sum(count for (root, _), count in used.items() if root in modules))
        _require(not any(node.attr in _LOADS and _is_unpickler(node.value) for node in attributes))

    def _is_outside_module(self, origin: ImportedName) -> bool:
        return _holds_module(origin) and not self._is_local(origin)

    def _chain(self, origin: ImportedName, names: tuple[str, ...]) -> None:
        if self._is_local(origin):
            _require(LEAKED_MODULES.isdisjoint(names))
            self._local_use(origin.path, names)
        else:
            path = ".".join([origin.path, *names])
            _require(path not in CONTAINERS and not path_problem(path))

    def _local_use(self, path: str, names: Iterable[str]) -> None:
        level = len(path) - len(path.lstrip("."))
        dotted = tuple(part for part in path.split(".") if part)
        if level:
            try:
                dotted = self._modules.absolute(self._path, level, dotted)
            except IntakeError:
                return  # the closure reports it
        self._local_uses.add((*dotted, *names))

    def _targets(self) -> None:
        """Check that nothing is assigned into what came from an import."""
        for kind in (ast.Attribute, ast.Subscript):
            for node in self._kinds.get(kind, ()):
                if node.ctx.__class__ is not ast.Load:
                    root: ast.AST = node
                    while isinstance(root, ast.Attribute | ast.Subscript):
                        root = root.value
                    if isinstance(root, ast.Name):
                        _require(all(map(self._is_local, self._origins.get(root.id, ()))))


def _holds_module(origin: ImportedName) -> bool:
    return origin.is_module or origin.path in CONTAINERS


def _is_unpickler(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in UNPICKLERS


def _chain_from(start: ast.Attribute, outer: Mapping[int, ast.Attribute]) -> _Chain:
    """Return the whole chain whose first attribute is `start`; `outer` maps a node to the attribute taken of it."""
    names = [start.attr]
    node = outer.get(id(start))
    while node is not None:
        names.append(node.attr)
        node = outer.get(id(node))
    root: Any = start.value
    return root.id, tuple(names)
