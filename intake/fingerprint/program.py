"""Everything that the entries of a bundle reach in Python, as a graph of normal forms.

Invariants
1. A node is one top-level statement, or a name that several statements bind or that is one of several its statement
   binds. Each is written once, whatever reaches it.
2. What runs when a file is imported belongs to everything that reaches the file, by a name or by an import.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from intake.closure import LocalModules
from intake.digest_graph import SEPARATOR, deep_digests, digest_of, reached
from intake.fingerprint.body import Body, weight_of
from intake.fingerprint.names import Definition, Names, Trees
from intake.fingerprint.outline import File
from intake.fingerprint.reading import Constants

_KERNEL_LANGUAGES = re.compile(f"(?:^|{SEPARATOR})x:(?:triton|cutlass)")
# The value in the token of a constant, which comes after its kind.
_KINDS = ("bool", "bytes", "complex", "ellipsis", "float", "int", "NoneType", "str")
_VALUES = re.compile(f":(?:{'|'.join(f'(?<={SEPARATOR}c:{kind}:)' for kind in _KINDS)})[^{SEPARATOR}]*")


class Node(NamedTuple):
    """One written statement or name. `shape` is its digest with all constants alike; `weight` counts its tokens."""

    path: str
    line: int
    name: str
    digest: str
    shape: str
    weight: int
    holds_kernel: bool


class _Place(NamedTuple):
    """A statement of a file by its place, and the name for which it is written."""

    path: str
    name: str
    place: int


class Program:
    """The graph below the roots that were asked for."""

    def __init__(
        self, trees: Trees, modules: LocalModules, outlines: Mapping[str, File] = MappingProxyType({})
    ) -> None:
        self._names = Names(trees, modules, outlines)
        self._constants = Constants(self._names)
        self._index: dict[Definition | _Place, int] = {}
        self._pending: dict[str, list[tuple[int, int | Definition]]] = {}  # what is to be written, file by file
        self._effects: dict[str, list[int]] = {}
        self._deep: list[str] = []
        self.nodes: list[Node] = []
        self.references: list[list[int]] = []

    def root(self, path: str, name: str) -> int | str:
        """Return the node of a top-level name, or what else the name means."""
        attributes: list[str] = []
        meaning = self._names.resolve(path, name, attributes)
        if not isinstance(meaning, Definition):
            return meaning if isinstance(meaning, str) else "module"
        node = self._definition(meaning)
        self._write_pending()
        return node

    def below(self, roots: Iterable[int | str]) -> list[int]:
        """Return all nodes that some roots reach, with the import effects of the files they lie in."""
        starts = [root for root in roots if isinstance(root, int)]
        while True:
            nodes = reached(starts, self.references)
            more = [effect for path in self._files_of(nodes) for effect in self._effects_of(path)]
            if set(more) <= set(nodes):
                return nodes
            starts += more

    def effects(self, roots: Iterable[int | str], nodes: Iterable[int]) -> list[int]:
        """Return the import effects among the files of `nodes`, file by file, less the definitions `roots` reach."""
        named = set(reached([root for root in roots if isinstance(root, int)], self.references))
        found = [effect for path in self._files_of(nodes) for effect in self._effects_of(path)]
        return [effect for effect in found if effect not in named]

    def imported(self, nodes: Iterable[int]) -> set[str]:
        """Return the first names of all modules that the files of some nodes import."""
        paths = self._files_of(nodes)
        return {dotted.partition(".")[0] for path in paths for dotted in self._names.file(path).imported}

    def _files_of(self, nodes: Iterable[int]) -> list[str]:
        """Return the files of some nodes and all that these import, in the order in which they are met."""
        pending = list(dict.fromkeys(self.nodes[node].path for node in nodes))
        found = dict.fromkeys(pending)
        while pending:
            fresh = [path for path in self._names.files_imported(pending.pop(0)) if path not in found]
            found.update(dict.fromkeys(fresh))
            pending += fresh
        return list(found)

    def deep(self, node: int) -> str:
        """Return the digest of a node and all it refers to."""
        if len(self._deep) != len(self.nodes):
            self._deep = deep_digests([node.digest for node in self.nodes], self.references)
        return self._deep[node]

    def _effects_of(self, path: str) -> list[int]:
        known = self._effects.get(path)
        if known is None:
            file = self._names.file(path)
            known = [self._statement(path, next(iter(file.bound[place]), "import"), place) for place in file.effects]
            self._write_pending()
            known = self._effects[path] = [node for node in known if self.nodes[node].weight]
        return known

    def _definition(self, definition: Definition) -> int:
        file = self._names.file(definition.path)
        places = file.defined[definition.name]
        if len(places) == 1 and len(file.bound[places[0]]) == 1:
            return self._statement(definition.path, definition.name, places[0])
        return self._add(definition, definition.path, definition)

    def _statement(self, path: str, name: str, place: int) -> int:
        return self._add(_Place(path, name, place), path, place)

    def _add(self, key: Definition | _Place, path: str, what: int | Definition) -> int:
        known = self._index.get(key)
        if known is None:
            known = self._index[key] = len(self.nodes)
            self.nodes.append(Node(path, 0, key.name, "", "", 0, False))
            self.references.append([])
            self._pending.setdefault(path, []).append((known, what))
        return known

    def _write_pending(self) -> None:
        while self._pending:
            path, queue = next(iter(self._pending.items()))
            statements = self._names.statements(path)
            while queue:
                index, what = queue.pop()
                if isinstance(what, Definition):
                    self._write_name(index, what, statements)
                    continue
                body = Body(self._names, self._constants, path, what, statements[what])
                body.write()
                self.references[index] = [self._definition(definition) for definition in body.references]
                self._store(index, body.tokens, statements[what].lineno)
            del self._pending[path]

    def _write_name(self, index: int, definition: Definition, statements: list[ast.stmt]) -> None:
        """Write a name whose statements are nodes of their own."""
        file = self._names.file(definition.path)
        tokens = []
        for place in file.defined[definition.name]:
            # Several names may share one statement, which must be one node for all of them.
            names = file.bound[place]
            self.references[index].append(self._statement(definition.path, next(iter(names)), place))
            tokens.append(f"name:{names[definition.name]}")
        self._store(index, tokens, statements[file.defined[definition.name][0]].lineno)

    def _store(self, index: int, tokens: list[str], line: int) -> None:
        text = SEPARATOR.join(tokens)
        path, _, name, *_ = self.nodes[index]
        self.nodes[index] = Node(
            path,
            line,
            name,
            digest=digest_of(text),
            shape=digest_of(_VALUES.sub("", SEPARATOR + text)[1:]),
            weight=0 if tokens == ["{", "}"] else weight_of(tokens),
            holds_kernel=_KERNEL_LANGUAGES.search(text) is not None,
        )
