"""Everything that the entries of a bundle reach in Python, as a graph of normal forms.

Invariants
1. A node is one top-level statement, or a name that several statements bind or that is one of several its statement
   binds. Each is written once, whatever reaches it.
2. What runs when a reached file is imported and binds nothing belongs to everything that reaches the file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import NamedTuple

from intake.closure import LocalModules
from intake.digest_graph import deep_digests, digest_of, reached
from intake.fingerprint.body import Body, Constants, weight_of
from intake.fingerprint.names import Definition, Names, Trees

_KERNEL_LANGUAGES = ("x:triton", "x:cutlass")


class Node(NamedTuple):
    """One written statement or name. `shape` is its digest with all constants alike; `weight` counts its tokens."""

    path: str
    line: int
    name: str
    digest: str
    shape: str
    weight: int
    holds_kernel: bool


class Program:
    """The graph below the roots that were asked for."""

    def __init__(self, trees: Trees, modules: LocalModules) -> None:
        self._names = Names(trees, modules)
        self._constants = Constants(self._names)
        self._index: dict[Definition | tuple[str, int], int] = {}
        self._pending: list[tuple[int, str, ast.stmt | Definition]] = []
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
            paths = dict.fromkeys(self.nodes[node].path for node in nodes)
            more = [effect for path in paths for effect in self._effects_of(path)]
            if set(more) <= set(nodes):
                return nodes
            starts += more

    def effects(self, nodes: Iterable[int]) -> list[int]:
        """Return the import effects among the files of some nodes, file by file."""
        paths = dict.fromkeys(self.nodes[node].path for node in nodes)
        return [effect for path in paths for effect in self._effects_of(path)]

    def imported(self, nodes: Iterable[int]) -> set[str]:
        """Return the first names of all modules that the files of some nodes import."""
        paths = {self.nodes[node].path for node in nodes}
        return {name for path in paths for name in self._names.file(path).imported}

    def deep(self, node: int) -> str:
        """Return the digest of a node and all it refers to."""
        if len(self._deep) != len(self.nodes):
            self._deep = deep_digests([node.digest for node in self.nodes], self.references)
        return self._deep[node]

    def _effects_of(self, path: str) -> list[int]:
        known = self._effects.get(path)
        if known is None:
            file = self._names.file(path)
            known = [self._statement(path, "import", statement) for statement in file.effects]
            self._write_pending()
            known = self._effects[path] = [node for node in known if self.nodes[node].weight]
        return known

    def _definition(self, definition: Definition) -> int:
        file = self._names.file(definition.path)
        statements = file.defined[definition.name]
        if len(statements) == 1 and len(file.bound[id(statements[0])]) == 1:
            return self._statement(definition.path, definition.name, statements[0])
        return self._add(definition, definition.path, definition)

    def _statement(self, path: str, name: str, statement: ast.stmt) -> int:
        return self._add((name, id(statement)), path, statement)

    def _add(self, key: Definition | tuple[str, int], path: str, what: ast.stmt | Definition) -> int:
        known = self._index.get(key)
        if known is None:
            known = self._index[key] = len(self.nodes)
            self.nodes.append(Node(path, 0, key.name if isinstance(key, Definition) else key[0], "", "", 0, False))
            self.references.append([])
            self._pending.append((known, path, what))
        return known

    def _write_pending(self) -> None:
        while self._pending:
            index, path, what = self._pending.pop()
            if isinstance(what, Definition):
                self._write_name(index, what)
                continue
            body = Body(self._names, self._constants, path, what)
            body.write()
            self.references[index] = [self._definition(definition) for definition in body.references]
            self._store(index, body.tokens, getattr(what, "lineno", 0))

    def _write_name(self, index: int, definition: Definition) -> None:
        """Write a name whose statements are nodes of their own."""
        file = self._names.file(definition.path)
        tokens = []
        for statement in file.defined[definition.name]:
            # Several names may share one statement, which must be one node for all of them.
            names = file.bound[id(statement)]
            self.references[index].append(self._statement(definition.path, next(iter(names)), statement))
            tokens.append(f"name:{names[definition.name]}")
        self._store(index, tokens, file.defined[definition.name][0].lineno)

    def _store(self, index: int, tokens: list[str], line: int) -> None:
        shape = [token[: token.index(":", 2)] if token.startswith("c:") else token for token in tokens]
        self.nodes[index] = self.nodes[index]._replace(
            line=line,
            digest=digest_of(*tokens),
            shape=digest_of(*shape),
            weight=0 if tokens == ["{", "}"] else weight_of(tokens),
            holds_kernel=any(token.startswith(_KERNEL_LANGUAGES) for token in tokens),
        )
