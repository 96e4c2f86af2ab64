"""What the top-level names of a bundle's files mean, across files.

Invariants
1. A file is read only when a name leads into it. What is remembered of it holds no tree: statements are known by
   their place in the file, and whoever has the trees decides which of them stay in memory.
2. A name means a definition of the bundle, a module of the bundle, or the full path of something outside it; through
   how many imports and aliases it is reached does not matter.
3. A top-level name that is bound once, to a constant, and that nothing rebinds, stands for that constant.
4. A name that is imported from one place only means what is there. One that has several origins is a definition of its
   own, of which each import is a part.
5. Whatever runs when a file is imported belongs to that file, and all files that it imports run with it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from intake.closure import LocalModules
from intake.fingerprint.effects import Importing
from intake.fingerprint.usage import imported
from intake.syntax import children

Trees = Callable[[str], ast.Module]
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_IMPORTS = (ast.Import, ast.ImportFrom)


class Definition(NamedTuple):
    """A name defined at the top level of a file of the bundle."""

    path: str
    name: str


class Module(NamedTuple):
    """A module, package or namespace of the bundle."""

    dotted: tuple[str, ...]


Meaning = Definition | Module | str


class File:
    """The top level of one file: what each name is bound by, what runs at import, and what is imported.

    Statements are given by their place in the file.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.defined: dict[str, list[int]] = {}
        self.bound: dict[int, dict[str, int]] = {}  # statement -> the names it binds, with their places
        self.effects: list[int] = []  # statements that do something when the file is imported, in order
        self.imports: dict[str, str] = {}
        self.imported: dict[str, None] = {}  # the dotted paths of all imports, also inside functions, in order
        self.rebound: set[str] = set()  # names that a function or another module may bind anew
        self._origins: dict[str, dict[str, None]] = {}  # name -> the dotted paths it is imported from
        self._importing: dict[str, list[int]] = {}  # name -> the statements that import it
        for place, statement in enumerate(tree.body):
            self._take(place, statement)
        self._settle_imports()
        importing = Importing(self.imports, self.defined)
        for place, statement in enumerate(tree.body):
            names = self.bound.get(place)
            if names is not None and not isinstance(statement, _IMPORTS) and (not names or importing.acts(statement)):
                self.effects.append(place)

    def _take(self, place: int, statement: ast.stmt) -> None:
        self._note_statements(place, statement)
        if isinstance(statement, _IMPORTS) or is_noise(statement):
            return
        names = _bound_by(statement)
        self.bound[place] = names
        for name in names:
            self.defined.setdefault(name, []).append(place)

    def _settle_imports(self) -> None:
        """Make a definition of every name that an import binds and something else binds, too."""
        for name, dotted in self._origins.items():
            if len(dotted) == 1 and name not in self.defined:
                self.imports[name] = next(iter(dotted))
                continue
            places = self.defined.setdefault(name, [])
            for place in self._importing[name]:
                names = self.bound.setdefault(place, {})
                names.setdefault(name, len(names))
                if place not in places:
                    places.append(place)
            places.sort()

    def _note_statements(self, place: int, statement: ast.stmt) -> None:
        pending: list[tuple[ast.AST, bool]] = [(statement, True)]
        while pending:
            node, is_top = pending.pop()
            if isinstance(node, _IMPORTS):
                self.imported.update(dict.fromkeys(_dotted(node)))
                if is_top:
                    for name, dotted in imported(node):
                        self._origins.setdefault(name, {})[dotted] = None
                        self._importing.setdefault(name, []).append(place)
            elif isinstance(node, ast.Global):
                self.rebound |= set(node.names)
            elif isinstance(node, ast.Assign):
                self.rebound |= {target.attr for target in node.targets if isinstance(target, ast.Attribute)}
            is_top = is_top and not isinstance(node, (*_FUNCTIONS, ast.ClassDef))
            pending += reversed([(item, is_top) for item in _statements_in(node)])


class Names:
    """Resolves names of the bundle's files."""

    def __init__(
        self, trees: Trees, modules: LocalModules, outlines: Mapping[str, File] = MappingProxyType({})
    ) -> None:
        self._trees = trees
        self._modules = modules
        self._outlines = outlines
        self._files: dict[str, File] = {}
        self._known: dict[Definition, Meaning] = {}
        self._rebound: set[str] = set()
        self._imported_files: dict[str, list[str]] = {}

    def file(self, path: str) -> File:
        """Return one file of the bundle."""
        found = self._files.get(path)
        if found is None:
            found = self._files[path] = self._outlines.get(path) or File(self._trees(path))
            self._rebound |= found.rebound
        return found

    def statement(self, path: str, place: int) -> ast.stmt:
        """Return a top-level statement of a file by its place."""
        return self._trees(path).body[place]

    def statements(self, definition: Definition) -> list[ast.stmt]:
        """Return the statements that bind a top-level name."""
        body = self._trees(definition.path).body
        return [body[place] for place in self.file(definition.path).defined[definition.name]]

    def files_imported(self, path: str) -> list[str]:
        """Return the files of the bundle that importing a file imports directly, and their packages."""
        known = self._imported_files.get(path)
        if known is not None:
            return known
        found: dict[str, None] = {}
        for dotted in self.file(path).imported:
            parts = self._absolute(path, dotted)
            for length in range(1, len(parts) + 1):
                target = self._modules.find(parts[:length]) if self._modules.is_local(parts[0]) else None
                if target is not None and target != path:
                    found[target] = None
        known = self._imported_files[path] = list(found)
        return known

    def resolve(self, path: str, name: str, attributes: list[str]) -> Meaning:
        """Return what `name.attributes` means at the top level of `path`.

        Consumes the leading attributes that only walk through modules of the bundle.
        """
        return self._walk(self._resolve(path, name), attributes)

    def resolve_import(self, path: str, dotted: str, attributes: list[str]) -> Meaning:
        """Return what `dotted.attributes` means where `dotted` was imported in `path`; consumes as `resolve`."""
        found = self._imported(path, dotted)
        return self._walk(self._resolve(*found) if isinstance(found, Definition) else found, attributes)

    def is_rebound(self, definition: Definition) -> bool:
        """Say whether something may bind the name anew after its module was loaded."""
        return definition.name in self._rebound

    def _walk(self, found: Meaning, attributes: list[str]) -> Meaning:
        while isinstance(found, Module) and attributes:
            found = self._member(found.dotted, attributes.pop(0))
        return found

    def _resolve(self, path: str, name: str) -> Meaning:
        start = Definition(path, name)
        known = self._known.get(start)
        if known is not None:
            return known
        where: Meaning = start
        seen: set[Definition] = set()
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

    def _step(self, place: Definition) -> Meaning:
        """Follow one import; a name that is defined where it is asked for is its own answer."""
        file = self.file(place.path)
        if place.name in file.defined:
            return place
        dotted = file.imports.get(place.name)
        return f"n:{place.name}" if dotted is None else self._imported(place.path, dotted)

    def _imported(self, path: str, dotted: str) -> Meaning:
        parts = self._absolute(path, dotted)
        if not dotted.startswith(".") and not self._modules.is_local(parts[0]):
            return f"x:{dotted}"
        if self._modules.find(parts) is not None or self._modules.is_namespace(parts):
            return Module(parts)
        target = self._modules.find(parts[:-1])
        return f"u:{parts[-1]}" if target is None else Definition(target, parts[-1])

    @staticmethod
    def _absolute(path: str, dotted: str) -> tuple[str, ...]:
        level = len(dotted) - len(dotted.lstrip("."))
        parts = tuple(part for part in dotted.split(".") if part)
        if level:
            package = tuple(path.split("/")[:-1])
            parts = package[: len(package) - (level - 1)] + parts
        return parts

    def _member(self, module: tuple[str, ...], name: str) -> Meaning:
        target = self._modules.find(module)
        if target is not None and name in self.file(target).defined:
            return Definition(target, name)
        if self._modules.find((*module, name)) is not None or self._modules.is_namespace((*module, name)):
            return Module((*module, name))
        return f"n:{name}" if target is None else self._resolve(target, name)


def is_noise(node: ast.AST) -> bool:
    """Say whether a statement does nothing: `pass`, a docstring or other constant, a bare annotation."""
    if isinstance(node, ast.AnnAssign):
        return node.value is None
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _dotted(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the whole dotted paths of an import; `import a.b` binds `a` but imports both."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [dotted for _, dotted in imported(node)]


def _statements_in(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements, handlers and match cases directly below a statement."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        value = node.__dict__.get(field)
        if isinstance(value, list):
            yield from value


def _bound_by(statement: ast.stmt) -> dict[str, int]:
    """Return the top-level names that one top-level statement binds, numbered in order of appearance."""
    if isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
        return {statement.name: 0}
    names: dict[str, int] = {}
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                names.setdefault(node.id, len(names))
            continue
        name = getattr(node, "name", None) or getattr(node, "rest", None)
        if isinstance(name, str):
            names.setdefault(name, len(names))
        if not isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.Lambda)):
            pending.extend(reversed(children(node)))
    return names
