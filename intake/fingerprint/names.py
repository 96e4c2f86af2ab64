"""What the top-level names of a bundle's files mean, across files.

Invariants
1. A file is read only when a name leads into it. What is remembered of it holds no tree, but for the file that was
   read last; whoever has the trees decides which others stay in memory.
2. A name means a definition of the bundle, a module of the bundle, or the full path of something outside it; through
   how many imports and aliases it is reached does not matter.
3. A top-level name that is bound once, to a constant, and that nothing rebinds, stands for that constant.
4. Whatever runs when a file is imported belongs to that file, and all files that it imports run with it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from intake.closure import LocalModules
from intake.fingerprint.outline import File

Trees = Callable[[str], ast.Module]


class Definition(NamedTuple):
    """A name defined at the top level of a file of the bundle."""

    path: str
    name: str


class Module(NamedTuple):
    """A module, package or namespace of the bundle."""

    dotted: tuple[str, ...]


Meaning = Definition | Module | str


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
        self._tokens: dict[str, dict[str, str]] = {}
        self._last: tuple[str, list[ast.stmt]] = ("", [])  # the file that was read last

    def file(self, path: str) -> File:
        """Return one file of the bundle."""
        found = self._files.get(path)
        if found is None:
            found = self._files[path] = self._outlines.get(path) or File(self._tree(path))
            self._rebound |= found.rebound
        return found

    def tokens(self, path: str) -> dict[str, str]:
        """Return what is remembered of dotted names in a file that mean something outside the bundle."""
        return self._tokens.setdefault(path, {})

    def statements(self, path: str) -> list[ast.stmt]:
        """Return the top-level statements of a file."""
        last, body = self._last
        return body if path == last else self._tree(path).body

    def _tree(self, path: str) -> ast.Module:
        tree = self._trees(path)
        self._last = path, tree.body
        return tree

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
                if where.name not in self.file(where.path).defined:
                    where = f"u:{where.name}"  # a file that imports from itself what it does not have
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
