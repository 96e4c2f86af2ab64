"""A digest of what an implementation computes, blind to how it is written down.

Invariants
1. The digest is taken over the definitions that an entry reaches, in the order in which it reaches them. Formatting,
   comments, docstrings, annotations, `pass`, unused imports, unreached definitions, the order of definitions, file
   names and the split into files do not change it.
2. Names of parameters, locals and bundle-level definitions are replaced by the order of their first use, so renaming
   them (the entry included) changes nothing. Imported names are replaced by their full paths, so aliases do not count.
3. Constants, operators, attributes, control flow and calls do count: different work gives a different digest.
4. CUDA sources and dependency patches count as `intake.payload` says. Where they do the work, that is where no kernel
   is written in Python, the Python around them is a shim and does not count: another shim makes no other
   implementation, and the same shim around other work makes no copy.
5. Routing metadata, variants, dtypes and architectures are not part of it: the same kernel under another domain is
   still the same kernel.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from config.canonical import domain_digest
from intake.closure import LocalModules
from intake.manifest import Op
from intake.payload import Payload, direct_parts
from intake.scopes import Scopes
from intake.syntax import children, dotted_name, walk

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_KERNEL_LANGUAGES = ("x:triton", "x:cutlass")
_IMPORTS = (ast.Import, ast.ImportFrom)
_DROPPED_FIELDS = frozenset(
    {"annotation", "returns", "type_comment", "ctx", "kind", "type_params", "type_ignores", "simple"}
)


class Definition(NamedTuple):
    """A name defined at the top level of a file of the bundle."""

    path: str
    name: str


class Module(NamedTuple):
    """A module, package or namespace of the bundle."""

    dotted: tuple[str, ...]


class Fingerprint(NamedTuple):
    """`digest` of the whole bundle and one sorted `pieces` digest per implementation row."""

    digest: str
    pieces: tuple[str, ...]


def fingerprint(
    ops: Iterable[Op], trees: Mapping[str, ast.Module], modules: LocalModules, payload: Payload
) -> Fingerprint:
    """Fingerprint a bundle from its rows, the syntax trees of its reachable files and its native sources."""
    files = {path: _File(path, tree) for path, tree in trees.items()}
    rows = sorted({(op.slot, _piece(op, files, modules, payload)) for op in ops})
    digest = domain_digest("cacheon.fingerprint", [list(row) for row in rows])
    return Fingerprint(digest, tuple(sorted(piece for _, piece in rows)))


def _piece(op: Op, files: Mapping[str, _File], modules: LocalModules, payload: Payload) -> str:
    writer = _Writer(files, modules)
    declaration = [f"{op.base_kernel}/{op.override_point}"] if op.base_kernel is not None else []
    if op.direct is None:
        names = [op.entry] + ([] if op.prepare is None else [op.prepare])
    else:
        direct, exports = direct_parts(op.direct)
        declaration.append(direct)
        names = [export.factory for export in exports]
    for name in names:
        writer.add_root(op.source, name)
    tokens, native = writer.finish(), payload.of(op)
    if native and not any(token.startswith(_KERNEL_LANGUAGES) for token in tokens):
        tokens = []
    text = "\x1f".join(["cacheon.implementation.v1", op.slot, *declaration, *native, *tokens])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class _File:
    """The top-level definitions of one file: name -> the statements that bind it."""

    def __init__(self, path: str, tree: ast.Module) -> None:
        self.scopes = Scopes(tree, path)
        self.defined: dict[str, list[ast.stmt]] = {}
        self.effects: list[ast.stmt] = []  # statements that run at import and bind nothing
        for statement in tree.body:
            if isinstance(statement, _IMPORTS) or _is_noise(statement):
                continue
            names = _bound_by(statement)
            if not names:
                self.effects.append(statement)
            for name in names:
                self.defined.setdefault(name, []).append(statement)


class _Writer:
    """Writes the tokens of everything reachable from the roots."""

    def __init__(self, files: Mapping[str, _File], modules: LocalModules) -> None:
        self._files = files
        self._modules = modules
        self._tokens: list[str] = []
        self._order: dict[Definition, int] = {}
        self._known: dict[Definition, Definition | Module | str] = {}
        self._pending: list[Definition] = []
        self._written: set[int] = set()

    def add_root(self, path: str, name: str) -> None:
        self._tokens.append(f"root:{self._global(path, name)}")

    def finish(self) -> list[str]:
        """Return all tokens, after following every reference."""
        paths: dict[str, None] = {}
        position = 0
        while position < len(self._pending):
            definition = self._pending[position]
            position += 1
            paths[definition.path] = None
            self._tokens.append(f"define:{self._order[definition]}")
            for statement in self._files[definition.path].defined[definition.name]:
                self._write_once(definition.path, statement)
            if position == len(self._pending):
                for path in paths:
                    for statement in self._files[path].effects:
                        self._write_once(path, statement)
        return self._tokens

    def _write_once(self, path: str, statement: ast.stmt) -> None:
        if id(statement) not in self._written:
            self._written.add(id(statement))
            _Body(self, path, statement).write()

    def emit(self, token: str) -> None:
        self._tokens.append(token)

    def reference(self, path: str, name: str, attributes: list[str]) -> str:
        """Return the token of `name.attributes` at the top level of `path`, scheduling what it defines."""
        return ".".join([self._global(path, name, attributes), *attributes])

    def _global(self, path: str, name: str, attributes: list[str] | None = None) -> str:
        """Resolve a top-level name; consumes leading `attributes` that only walk through modules of the bundle."""
        attributes = attributes if attributes is not None else []
        found = self._resolve(path, name)
        while isinstance(found, Module) and attributes:
            found = self._member(found.dotted, attributes.pop(0))
        if isinstance(found, Definition):
            if found not in self._order:
                self._order[found] = len(self._order)
                self._pending.append(found)
            return f"g{self._order[found]}"
        return found if isinstance(found, str) else "module"

    def _resolve(self, path: str, name: str) -> Definition | Module | str:
        """Return a definition, a module of the bundle, or the text of anything else."""
        start = Definition(path, name)
        seen: set[Definition] = set()
        where: Definition | Module | str = start
        while isinstance(where, Definition) and where not in self._known:
            if where in seen:
                where = f"n:{name}"  # files that import a name from each other in a circle
                break
            seen.add(where)
            step = self._step(where)
            if step == where:
                break
            where = step
        final = self._known.get(where, where) if isinstance(where, Definition) else where
        self._known.update(dict.fromkeys(seen, final))
        return final

    def _step(self, place: Definition) -> Definition | Module | str:
        """Follow one import; a name that is defined where it is asked for is its own answer."""
        file = self._files.get(place.path)
        if file is None:
            return f"n:{place.name}"
        if place.name in file.defined:
            return place
        imported = sorted(file.scopes.module.imports.get(place.name, ()))
        if not imported:
            return f"n:{place.name}"
        dotted = imported[0].path
        level = len(dotted) - len(dotted.lstrip("."))
        parts = tuple(part for part in dotted.split(".") if part)
        if level:
            package = tuple(place.path.split("/")[:-1])
            parts = package[: len(package) - (level - 1)] + parts
        elif not self._modules.is_local(parts[0]):
            return f"x:{dotted}"
        if self._modules.find(parts) is not None or self._modules.is_namespace(parts):
            return Module(parts)
        target = self._modules.find(parts[:-1])
        return f"n:{place.name}" if target is None else Definition(target, parts[-1])

    def _member(self, module: tuple[str, ...], name: str) -> Definition | Module | str:
        target = self._modules.find(module)
        if target is not None and target in self._files and name in self._files[target].defined:
            return Definition(target, name)
        if self._modules.find((*module, name)) is not None or self._modules.is_namespace((*module, name)):
            return Module((*module, name))
        return f"n:{name}" if target is None else self._resolve(target, name)


class _Body:
    """Writes one top-level statement with its local names numbered."""

    def __init__(self, writer: _Writer, path: str, statement: ast.stmt) -> None:
        self._writer = writer
        self._path = path
        self._statement = statement
        is_definition = isinstance(statement, (*_FUNCTIONS, ast.ClassDef))
        self._locals = _local_names(statement) if is_definition else set()
        self._imports = _local_imports(statement) if is_definition else {}
        self._numbers: dict[str, int] = {}

    def write(self) -> None:
        self._node(self._statement)

    def _node(self, node: ast.AST) -> None:
        chain = dotted_name(node) if isinstance(node, ast.Attribute | ast.Name) else None
        if chain is not None:
            self._writer.emit(self._chain(chain[0].id, chain[1]))
            return
        if isinstance(node, (*_IMPORTS, ast.Global, ast.Nonlocal)) or _is_noise(node):
            return
        if isinstance(node, ast.Constant):
            self._writer.emit(f"c:{type(node.value).__name__}:{node.value!r}")
            return
        if isinstance(node, ast.AnnAssign):
            self._assignment(node)
            return
        self._writer.emit(f"({type(node).__name__}")
        self._fields(node)
        self._writer.emit(")")

    def _fields(self, node: ast.AST) -> None:
        skip_keywords = isinstance(node, ast.Call) and self._calls_bundle(node)
        for field in node._fields:
            if field in _DROPPED_FIELDS or (field == "name" and node is self._statement):
                continue
            value = getattr(node, field, None)
            items = value if isinstance(value, list) else [value]
            self._writer.emit(f"{field}:{len(items) if isinstance(value, list) and field != 'body' else ''}")
            for item in items:
                if isinstance(item, ast.keyword) and skip_keywords:
                    self._node(item.value)
                elif isinstance(item, ast.AST):
                    self._node(item)
                else:
                    self._writer.emit(self._plain(node, field, item))

    def _assignment(self, node: ast.AnnAssign) -> None:
        """Write `x: T = v` as `x = v`."""
        self._writer.emit("(Assign")
        self._writer.emit("targets:1")
        self._node(node.target)
        self._writer.emit("value:")
        if node.value is not None:
            self._node(node.value)
        self._writer.emit(")")

    def _plain(self, node: ast.AST, field: str, item: object) -> str:
        """Return the token of a field that is not a node: a bound name, an attribute, or a flag."""
        if isinstance(item, str) and (field in ("name", "rest") or (field == "arg" and isinstance(node, ast.arg))):
            return self._chain(item, [])
        return f"{item!r}"

    def _chain(self, root: str, attributes: list[str]) -> str:
        if root in self._imports:
            return ".".join([f"x:{self._imports[root]}", *attributes])
        if root in self._locals:
            number = self._numbers.setdefault(root, len(self._numbers))
            return ".".join([f"v{number}", *attributes])
        return self._writer.reference(self._path, root, list(attributes))

    def _calls_bundle(self, node: ast.Call) -> bool:
        """Say whether the callee is defined in the bundle, so that its parameter names are free to change."""
        callee: ast.AST = node.func
        while isinstance(callee, ast.Subscript):
            callee = callee.value
        chain = dotted_name(callee)
        return chain is not None and self._chain(chain[0].id, chain[1]).startswith(("g", "v"))


def _is_noise(node: ast.AST) -> bool:
    """Say whether a statement does nothing: `pass`, a docstring or other constant, a bare annotation."""
    if isinstance(node, ast.AnnAssign):
        return node.value is None
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _bound_by(statement: ast.stmt) -> set[str]:
    """Return the top-level names that one top-level statement binds."""
    names: set[str] = set()
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        names |= _names_bound_at(node)
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            continue
        pending.extend(children(node))
    return names


def _names_bound_at(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Name):
        return set() if isinstance(node.ctx, ast.Load) else {node.id}
    if isinstance(node, ast.arg):
        return {node.arg}
    name = getattr(node, "name", None) or getattr(node, "rest", None)
    return {name} if isinstance(name, str) else set()


def _local_names(statement: ast.stmt) -> set[str]:
    names: set[str] = set()
    declared: set[str] = set()
    for node in walk(statement):
        if node is not statement:
            names |= _names_bound_at(node)
        if isinstance(node, ast.Global):
            declared |= set(node.names)
    return names - declared


def _local_imports(statement: ast.stmt) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in walk(statement):
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                found[name] = alias.name if alias.asname else name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    return found
