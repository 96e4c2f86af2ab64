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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple

from config.errors import IntakeError
from config.limits import IntakeLimits
from intake.closure import Dotted, Import, LocalModules, imports_of
from intake.definitions import definitions, makes_classes
from intake.holdings import SETTERS, changes
from intake.import_meanings import Chain, Meanings, with_aliases
from intake.nodes import NAMING, Kinds, sort_nodes
from intake.scan_policy import (
    ATTRIBUTE_BUILTINS,
    CODE_BUILTINS,
    CONTAINERS,
    DECORATORS_ONLY,
    DENIED_ATTRIBUTES,
    DENIED_BUILTINS,
    DENIED_DEFINITIONS,
    DENIED_NAMES,
    DENIED_STRINGS,
    IMPORTS,
    LEAKED_MODULES,
    PLAIN_CALLS_ONLY,
    TAINTED_ATTRIBUTES,
    TAINTED_IMPORTS,
    UNPICKLERS,
    is_denied_attribute,
    path_problem,
)
from intake.scopes import ImportedName, imported_names
from intake.static_scan import LocalUse, ScannedModule, is_computed, roots_of
from intake.syntax import Parsed, attribute_link, dotted_name, line_of, literal_text, parse_expression, walk

_LOUD_NAMES = DENIED_NAMES | CODE_BUILTINS | (ATTRIBUTE_BUILTINS - {"getattr"})
_LOCAL_NAMES = DENIED_BUILTINS - CODE_BUILTINS  # harmless as names of parameters
_LOUD_ATTRIBUTES = DENIED_ATTRIBUTES | TAINTED_ATTRIBUTES | DENIED_STRINGS
_LIMITED = DECORATORS_ONLY | PLAIN_CALLS_ONLY
_COMPARISONS = 1_000_000  # of two lists, which bounds what hostile files can cost here
_MEANINGS = 8  # of one name
_LOADS = frozenset({"load", "loads"})
_ANNOTATIONS: tuple[tuple[type[ast.AST], str], ...] = (
    (ast.arg, "annotation"),
    (ast.AnnAssign, "annotation"),
    (ast.FunctionDef, "returns"),
    (ast.AsyncFunctionDef, "returns"),
)


_Place = tuple[int, int]  # line and column


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
        self._origins: Meanings = {}
        self._local_uses: set[Dotted] = set()
        self._names: list[str] = []  # of all nodes that are names, in their order
        self._stored: list[ast.Attribute] = []  # attributes that are set or deleted
        self._gets: list[ast.Call] = []  # getattr with a literal name

    def run(self) -> QuietModule:
        _require(ast.MatchClass not in self._kinds)
        _require(not any(name in DENIED_DEFINITIONS for _, name in definitions(self._kinds)))
        _require(not any(node.bases and makes_classes(node) for node in self._kinds.get(ast.ClassDef, ())))
        statements = [node for kind in (ast.Import, ast.ImportFrom) for node in self._kinds.get(kind, ())]
        self._imports(statements)
        # `_origins` are what imports alone bind as yet.
        self._note(self._kinds)
        if self._stored or not SETTERS.isdisjoint(self._names):
            foreign = {name for name, origins in self._origins.items() if not all(map(self._is_local, origins))}
            _require(not changes(self._kinds, foreign))
        self._text_annotations()
        self._names_and_texts()
        meanings = with_aliases(self._origins, self._kinds)
        _require(meanings is not None)
        self._origins = meanings or {}
        named = (origin.path for origins in self._origins.values() for origin in origins)
        _require(_LIMITED.isdisjoint(named))  # how they are used is a question to the full scan
        _require(all(len(origins) <= _MEANINGS for origins in self._origins.values()))
        self._chains()
        self._targets()
        foreign = {name for name, origins in self._origins.items() if any(map(self._is_foreign, origins))}
        uses = tuple(LocalUse(dotted, self._path, 0) for dotted in self._local_uses)
        return QuietModule(imports_of(statements), ScannedModule(frozenset(), frozenset(foreign), uses))

    def _note(self, kinds: Kinds) -> None:
        self._names += [node.id for node in kinds.get(ast.Name, ())]
        self._stored += [node for node in kinds.get(ast.Attribute, ()) if node.ctx.__class__ is not ast.Load]

    # Imports

    def _imports(self, statements: Sequence[ast.Import | ast.ImportFrom]) -> None:
        bodies = [(node.lineno, node.end_lineno) for node in self._kinds.get(ast.ClassDef, ())]
        _require(len(bodies) * len(statements) <= _COMPARISONS)
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
        names = set(self._names)
        _require(names.isdisjoint(_LOUD_NAMES))
        _require(not any(name.startswith("__") and is_denied_attribute(name) for name in names))
        self._parameters(names & _LOCAL_NAMES)
        self._getattr_calls("getattr" in names)
        attributes = {node.attr for node in self._kinds.get(ast.Attribute, ())}
        attributes |= {name for _, name in map(attribute_link, self._gets)}  # type: ignore[misc]
        _require(attributes.isdisjoint(_LOUD_ATTRIBUTES))
        _require(not any(map(is_denied_attribute, attributes)))
        texts = (node.value for node in self._kinds.get(ast.Constant, ()) if node.value.__class__ is str)
        _require(DENIED_STRINGS.isdisjoint(texts))

    def _getattr_calls(self, is_named: bool) -> None:
        """Find all `getattr(object, "name", ...)`; no other use of that builtin is quiet."""
        if not is_named:
            return
        self._gets = [node for node in self._kinds.get(ast.Call, ()) if attribute_link(node) is not None]
        uses = self._names.count("getattr")
        # What is taken of the result belongs to the chain, which starts at an attribute everywhere else.
        taken = {id(node.value) for node in self._kinds.get(ast.Attribute, ())}
        _require(uses == len(self._gets) and not any(id(node) in taken for node in self._gets))

    def _parameters(self, names: Collection[str]) -> None:
        """Check that the names of these builtins are used only inside functions that have such a parameter."""
        if not names:
            return
        calls = self._kinds.get(ast.Call, ())
        _require(not any(node.func.__class__ is ast.Name and node.func.id in names for node in calls))
        for kind in (ast.Global, ast.Nonlocal):
            _require(all(set(node.names).isdisjoint(names) for node in self._kinds.get(kind, ())))
        bodies = [
            (name, *_body_of(node)) for node in self._kinds.get(ast.FunctionDef, ()) for name in _parameters(node)
        ]
        uses = [node for node in self._kinds[ast.Name] if node.id in names and node.ctx.__class__ is ast.Load]
        _require(len(uses) * len(bodies) <= _COMPARISONS)
        for node in uses:
            place = (node.lineno, node.col_offset)
            _require(any(name == node.id and start <= place < end for name, start, end in bodies))

    def _text_annotations(self) -> None:
        """Add the nodes of every text inside an annotation that is an expression: the policy reads them as code."""
        pending = [*self._annotations()]
        seen: set[str] = set()
        while pending:
            annotation = pending.pop()
            if annotation.__class__ is ast.Name:
                continue
            for part in walk(annotation):
                _require(not is_computed(part))
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
        # They are read as if they stood at module level, where no parameter hides a builtin.
        _require(not any(node.id in _LOCAL_NAMES for node in (more or {}).get(ast.Name, ())))
        self._note(more or {})
        for kind, nodes in (more or {}).items():
            self._kinds[kind] = [*self._kinds.get(kind, ()), *nodes]

    # What names mean

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
        origins = self._origins
        outer: dict[int, ast.Attribute] = {}
        starts: list[ast.Attribute] = []
        for node in attributes:
            base = node.value
            if base.__class__ is ast.Attribute:
                outer[id(base)] = node
            elif base.__class__ is ast.Name:
                if base.id in origins:
                    starts.append(node)
                if base.id in UNPICKLERS:
                    _require(node.attr not in _LOADS)
        used = Counter(_chain_from(start, outer) for start in starts)
        for root, names in used:
            for origin in origins[root]:
                self._chain(origin, names)
        based = [root for node in self._gets if (root := self._get_chain(node))]
        modules = {name for name, found in origins.items() if any(map(self._is_outside_module, found))}
        held = compress(self._kinds.get(ast.Name, ()), map(modules.__contains__, self._names))
        loads = sum(node.ctx.__class__ is ast.Load for node in held)
        plain = sum(count for (root, _), count in used.items() if root in modules) + sum(
            map(modules.__contains__, based)
        )
        _require(loads == plain or loads == plain + self._probes(modules))

    def _get_chain(self, node: ast.Call) -> str:
        """Check what `getattr` takes of an import; return the name of its object if that is a bare name."""
        chain = dotted_name(node)
        if chain is not None:
            root, names = chain[0].id, tuple(chain[1])
            _require(not (root in UNPICKLERS and names[0] in _LOADS))
            for origin in self._origins.get(root, ()):
                self._chain(origin, names)
        base = node.args[0]
        return base.id if isinstance(base, ast.Name) else ""

    def _probes(self, modules: Collection[str]) -> int:
        """Count the open modules that `hasattr(module, ...)` and `module is None` ask about, as the policy permits."""
        places: list[ast.expr] = []
        _require("hasattr" not in self._bound())
        for call in self._kinds.get(ast.Call, ()):
            if call.func.__class__ is ast.Name and call.func.id == "hasattr":
                places += call.args
        for node in self._kinds.get(ast.Compare, ()):
            if all(isinstance(operator, ast.Is | ast.IsNot) for operator in node.ops):
                places += (node.left, *node.comparators)
        return sum(place.id in modules and self._is_open(place.id) for place in places if isinstance(place, ast.Name))

    def _bound(self) -> set[str]:
        """Return the names that anything in the file binds."""
        names = {node.id for node in self._kinds.get(ast.Name, ()) if node.ctx.__class__ is not ast.Load}
        names |= {node.arg for node in self._kinds.get(ast.arg, ())}
        for kind in NAMING:
            names |= {getattr(node, "name", None) or getattr(node, "rest", None) for node in self._kinds.get(kind, ())}
        return names | self._origins.keys()

    def _is_open(self, name: str) -> bool:
        roots = {origin.path.partition(".")[0] for origin in self._origins[name] if not self._is_local(origin)}
        return all(IMPORTS.get(root, frozenset()) is None for root in roots)

    def _is_outside_module(self, origin: ImportedName) -> bool:
        return _holds_module(origin) and not self._is_local(origin)

    def _chain(self, origin: ImportedName, names: tuple[str, ...]) -> None:
        if self._is_local(origin):
            _require(LEAKED_MODULES.isdisjoint(names))
            self._local_use(origin.path, names)
        else:
            path = ".".join([origin.path, *names])
            _require(path not in CONTAINERS and not path_problem(path))
            _require(not any(path == limited or path.startswith(f"{limited}.") for limited in _LIMITED))

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
        elements = self._kinds.get(ast.Subscript, ())
        for node in (*self._stored, *(node for node in elements if node.ctx.__class__ is not ast.Load)):
            for root in roots_of(node):
                _require(all(map(self._is_local, self._origins.get(root, ()))))


def _holds_module(origin: ImportedName) -> bool:
    return origin.is_module or origin.path in CONTAINERS


def _parameters(node: ast.FunctionDef) -> list[str]:
    arguments = node.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return [argument.arg for argument in named if argument is not None]


def _body_of(node: ast.FunctionDef) -> tuple[_Place, _Place]:
    """Return where the body of a function starts and ends; its decorators, defaults and annotations stand before."""
    first = node.body[0]
    return (first.lineno, first.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)


def _chain_from(start: ast.Attribute, outer: Mapping[int, ast.Attribute]) -> Chain:
    """Return the whole chain whose first attribute is `start`; `outer` maps a node to the attribute taken of it."""
    names = [start.attr]
    node = outer.get(id(start))
    while node is not None:
        names.append(node.attr)
        node = outer.get(id(node))
    root: Any = start.value
    return root.id, tuple(names)
