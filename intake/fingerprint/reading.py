"""What names and expressions of one top-level statement mean and are: constants, things outside, pure computation.

Invariants
1. Scopes are those of the language; a name that stands for an expression is read as that expression, in its own scope.
2. A top-level name is a constant only if its one assignment is shallow and nothing binds the name again; constants are
   followed through a bounded number of definitions, so recursion is bounded.
3. A reading holds its own statement: nodes of other trees of the same file are other nodes.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, ClassVar

from intake.fingerprint.folding import MISSING, binary, compare, is_number, unary
from intake.fingerprint.frame import Frame
from intake.fingerprint.names import Definition, Module, Names
from intake.fingerprint.outline import ASK
from intake.fingerprint.purity import Purity
from intake.fingerprint.usage import CLASS, Analysis, imported
from intake.syntax import dotted_name

_CONSTANT_DEPTH = 4  # constants followed through definitions


class Constants:
    """The top-level names of the bundle that stand for a constant."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._known: dict[Definition, object] = {}
        self._parameters: dict[Definition, dict[str, int]] = {}

    def parameters(self, definition: Definition) -> dict[str, int]:
        """Return the places of a function's parameters by name, or of a plain class's; {} for anything else."""
        known = self._parameters.get(definition)
        if known is None:
            names = self._names.file(definition.path).parameters.get(definition.name, ())
            known = self._parameters[definition] = {name: place for place, name in enumerate(names)}
        return known

    def of(self, definition: Definition, depth: int = _CONSTANT_DEPTH) -> object:
        """Return the constant behind a definition, or MISSING."""
        known = self._known.get(definition, self)
        if known is not self:
            return known
        self._known[definition] = MISSING  # for definitions that go in a circle
        file = self._names.file(definition.path)
        value = file.values.get(definition.name, MISSING)
        if value is MISSING or depth == 0 or self._names.is_rebound(definition):
            return MISSING
        if value is ASK:
            place = file.defined[definition.name][0]
            statement = self._names.statements(definition.path)[place]
            value = Reading(self._names, self, definition.path, place, statement, depth - 1).value()
        self._known[definition] = value
        return value


class Reading(Purity):
    """Reads the top-level `statement` at `place` of `path`."""

    def __init__(
        self,
        names: Names,
        constants: Constants,
        path: str,
        place: int,
        statement: ast.stmt,
        depth: int = _CONSTANT_DEPTH,
    ) -> None:
        super().__init__()
        self._names = names
        self._constants = constants
        self._path = path
        self._depth = depth
        self._statement = statement
        self._analysis = Analysis(statement)
        self._own = names.file(path).bound.get(place, {}).keys()
        self._folded: dict[int, object] = {}
        self._frames = [Frame(self._analysis.module)]

    def value(self) -> object:
        """Return the constant that the statement assigns, or MISSING."""
        value = getattr(self._statement, "value", None)
        return self.fold(value) if isinstance(value, ast.AST) else MISSING

    def meaning_of(self, node: ast.AST) -> Definition | Module | str | None:
        """Return what a dotted name outside all local scopes means; None for anything else."""
        root: Any = node
        while root.__class__ is ast.Attribute:
            root = root.value
        # Most names are local, and most of the rest are no names: they are told without writing the name down.
        kind = root.__class__
        if kind is ast.Name:
            if self._frame_of(root.id) is not None:
                return None
        elif kind is not ast.Call:
            return None
        chain = dotted_name(node)
        if chain is None or chain[0].id in self._own or self._frame_of(chain[0].id) is not None:
            return None
        attributes = list(chain[1])
        meaning = self._names.resolve(self._path, chain[0].id, attributes)
        if isinstance(meaning, str):
            return ".".join([meaning, *attributes])
        return None if attributes else meaning

    def chooses(self, node: ast.Import | ast.ImportFrom) -> bool:
        """Say whether an import binds a name that something else binds, too."""
        return any(self.is_choice(name) for name, _ in imported(node))

    def is_choice(self, name: str) -> bool:
        """Say whether a name, which an import binds here, has several bindings."""
        frame = self._frame_of(name)
        return name in self._own if frame is None else frame.usage.stores[name] > 1

    def is_external(self, node: ast.AST) -> bool:
        """Say whether a node is the dotted name of something outside the bundle."""
        meaning = self.meaning_of(node)
        return isinstance(meaning, str) and meaning.startswith("x:")

    def _frame_of(self, name: str) -> Frame | None:
        """Return the scope that binds a name; None for the top level of the file."""
        homes = self._frames[-1].homes
        if name in homes:
            return homes[name]
        home = homes[name] = self._home_of(name)
        return home

    def _home_of(self, name: str) -> Frame | None:
        frames = self._frames
        last = len(frames) - 1
        for index in range(last, 0, -1):  # the first one is the module's
            frame = frames[index]
            if frame.usage.binds(name) and (index == last or frame.usage.kind != CLASS):
                return frame
        return None

    def _close(self) -> None:
        """Close the innermost scope."""
        # A scope is among its own homes, and nobody collects cycles while a bundle is screened.
        self._frames.pop().homes.clear()

    def truth(self, node: ast.expr) -> bool | None:
        """Return what a test always is, or None."""
        if self.meaning_of(node) == "x:typing.TYPE_CHECKING":
            return False
        value = self.fold(node)
        return None if value is MISSING else bool(value)

    def fold(self, node: ast.AST) -> object:
        """Return the constant that an expression is, or MISSING."""
        folder = self._FOLDERS.get(node.__class__)
        return MISSING if folder is None else folder(self, node)

    def is_number(self, node: ast.AST) -> bool:
        """Say whether an expression is a constant number."""
        folder = self._FOLDERS.get(node.__class__)
        return folder is not None and is_number(folder(self, node))

    def _fold_constant(self, node: ast.Constant) -> object:
        return node.value

    def _fold_computed(self, node: ast.BinOp | ast.UnaryOp | ast.Compare | ast.JoinedStr) -> object:
        # Nodes are those of the statement, or adopted: while the reading lives, their ids stay their own.
        key = id(node)
        if key in self._folded:
            return self._folded[key]
        value = self._folded[key] = self._computed_value(node)
        return value

    def _computed_value(self, node: ast.BinOp | ast.UnaryOp | ast.Compare | ast.JoinedStr) -> object:
        if isinstance(node, ast.BinOp):
            folder = self._FOLDERS.get(node.left.__class__)
            left = MISSING if folder is None else folder(self, node.left)
            right = MISSING if left is MISSING else self.fold(node.right)
            return MISSING if right is MISSING else binary(type(node.op), left, right)
        if isinstance(node, ast.UnaryOp):
            value = self.fold(node.operand)
            return MISSING if value is MISSING else unary(type(node.op), value)
        if isinstance(node, ast.JoinedStr):
            texts = [self.fold(part) for part in node.values]
            plain = all(isinstance(text, str) for text in texts)
            return "".join(map(str, texts)) if plain else MISSING
        is_main = len(node.ops) == 1 and self.meaning_of(node.left) == "n:__name__"
        left = "imported" if is_main else self.fold(node.left)
        right = self.fold(node.comparators[0]) if len(node.ops) == 1 else MISSING
        return MISSING if MISSING in (left, right) else compare(type(node.ops[0]), left, right)

    def _fold_name(self, node: ast.Name | ast.Attribute) -> object:
        if isinstance(node, ast.Name) and (frame := self._frame_of(node.id)) is not None:
            name = node.id
            if name not in frame.values:
                return MISSING
            value = frame.stand_in(name)
            folded = self.fold(value.node)
            frame.values[name] = value
            return folded
        meaning = self.meaning_of(node)
        return self._constants.of(meaning, self._depth) if isinstance(meaning, Definition) else MISSING

    _FOLDERS: ClassVar[dict[type, Callable[[Any, Any], object]]] = {
        ast.Constant: _fold_constant,
        **dict.fromkeys((ast.BinOp, ast.UnaryOp, ast.Compare, ast.JoinedStr), _fold_computed),
        **dict.fromkeys((ast.Name, ast.Attribute), _fold_name),
    }
