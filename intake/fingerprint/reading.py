"""What names and expressions of one top-level statement mean and are: constants, things outside, pure computation.

Invariants
1. Scopes are those of the language; a name that stands for an expression is read as that expression, in its own scope.
2. A top-level name is a constant only if its one assignment is shallow and nothing binds the name again; constants are
   followed through a bounded number of definitions, so recursion is bounded.
3. A reading holds its own statement: nodes of other trees of the same file are other nodes.
"""

from __future__ import annotations

import ast

from intake.fingerprint.folding import MISSING, binary, compare, unary
from intake.fingerprint.names import Definition, Module, Names
from intake.fingerprint.rewrite import Frame, nesting
from intake.fingerprint.usage import CLASS, Analysis, imported
from intake.syntax import dotted_name

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_NAMES = frozenset({ast.Name, ast.Attribute})
_COMPUTED = frozenset({ast.BinOp, ast.UnaryOp, ast.Compare, ast.JoinedStr})
_CONSTANT_DEPTH = 4  # constants followed through definitions
_CONSTANT_NESTING = 12  # levels of an expression that is taken for a constant


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
            statements = self._names.statements(definition)
            function, skipped = statements[0] if len(statements) == 1 else None, 0
            if isinstance(function, ast.ClassDef):
                function, skipped = _constructor(function), 1
            arguments = function.args if isinstance(function, _FUNCTIONS) else None
            items = [] if arguments is None else [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            known = self._parameters[definition] = {item.arg: index for index, item in enumerate(items[skipped:])}
        return known

    def of(self, definition: Definition, depth: int = _CONSTANT_DEPTH) -> object:
        """Return the constant behind a definition, or MISSING."""
        if definition in self._known:
            return self._known[definition]
        self._known[definition] = MISSING  # for definitions that go in a circle
        statements = self._names.statements(definition)
        (statement, *others) = statements
        value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        plain = not others and len(targets) == 1 and isinstance(targets[0], ast.Name)
        if value is None or not plain or depth == 0 or nesting(value, _CONSTANT_NESTING) > _CONSTANT_NESTING:
            return MISSING
        if self._names.is_rebound(definition):
            return MISSING
        place = self._names.file(definition.path).defined[definition.name][0]
        self._known[definition] = Reading(self._names, self, definition.path, place, depth - 1).value()
        return self._known[definition]


def _constructor(node: ast.ClassDef) -> ast.stmt | None:
    """Return the one plain `__init__` of a class that inherits nothing."""
    found = [item for item in node.body if isinstance(item, _FUNCTIONS) and item.name in ("__init__", "__new__")]
    plain = not (node.bases or node.keywords or node.decorator_list) and len(found) == 1
    return found[0] if plain and found[0].name == "__init__" and not found[0].decorator_list else None


class Reading:
    """Reads the top-level statement at `place` of `path`."""

    def __init__(self, names: Names, constants: Constants, path: str, place: int, depth: int = _CONSTANT_DEPTH) -> None:
        self._names = names
        self._constants = constants
        self._path = path
        self._depth = depth
        self._statement = names.statement(path, place)
        self._analysis = Analysis(self._statement)
        self._own = names.file(path).bound.get(place, {}).keys()
        self._folded: dict[int, tuple[ast.AST, object]] = {}  # with the node, so that its id stays its own
        self._frames = [Frame(self._analysis.module)]

    def value(self) -> object:
        """Return the constant that the statement assigns, or MISSING."""
        value = getattr(self._statement, "value", None)
        return self.fold(value) if isinstance(value, ast.AST) else MISSING

    def is_pure(self, node: ast.AST) -> bool:
        """Say whether a node only reads and computes."""
        return id(node) not in self._analysis.impure

    def adopt(self, node: ast.AST, *, like: ast.AST) -> None:
        """Treat a node that was made just now as another one."""
        self._analysis.adopt(node, like=like)

    def taint(self, node: ast.AST, name: str) -> bool:
        """Treat everything around a use of `name` as impure."""
        return self._analysis.taint(node, name)

    def meaning_of(self, node: ast.AST) -> Definition | Module | str | None:
        """Return what a dotted name outside all local scopes means; None for anything else."""
        chain = dotted_name(node)
        if chain is None or self._frame_of(chain[0].id) is not None or chain[0].id in self._own:
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
        frames = self._frames
        last = len(frames) - 1
        for index in range(last, 0, -1):  # the first one is the module's
            frame = frames[index]
            usage = frame.usage
            if name in usage.stores and name not in usage.elsewhere and (usage.kind != CLASS or index == last):
                return frame
        return None

    def truth(self, node: ast.expr) -> bool | None:
        """Return what a test always is, or None."""
        if self.meaning_of(node) == "x:typing.TYPE_CHECKING":
            return False
        value = self.fold(node)
        return None if value is MISSING else bool(value)

    def fold(self, node: ast.AST) -> object:
        """Return the constant that an expression is, or MISSING."""
        if isinstance(node, ast.Constant):
            return node.value
        kind = node.__class__
        if kind in _NAMES:
            return self._fold_name(node)  # type: ignore[arg-type]
        if kind not in _COMPUTED:
            return MISSING
        known = self._folded.get(id(node))
        if known is None:
            known = self._folded[id(node)] = node, self._fold(node)  # type: ignore[arg-type]
        return known[1]

    def _fold(self, node: ast.BinOp | ast.UnaryOp | ast.Compare | ast.JoinedStr) -> object:
        if isinstance(node, ast.JoinedStr):
            texts = [self.fold(part) for part in node.values]
            plain = all(isinstance(text, str) for text in texts)
            return "".join(map(str, texts)) if plain else MISSING
        if isinstance(node, ast.UnaryOp):
            value = self.fold(node.operand)
            return MISSING if value is MISSING else unary(type(node.op), value)
        if isinstance(node, ast.BinOp):
            left = self.fold(node.left)
            right = MISSING if left is MISSING else self.fold(node.right)
            return MISSING if right is MISSING else binary(type(node.op), left, right)
        is_main = len(node.ops) == 1 and self.meaning_of(node.left) == "n:__name__"
        left = "imported" if is_main else self.fold(node.left)
        right = self.fold(node.comparators[0]) if len(node.ops) == 1 else MISSING
        return MISSING if MISSING in (left, right) else compare(type(node.ops[0]), left, right)

    def _fold_name(self, node: ast.Name | ast.Attribute) -> object:
        if isinstance(node, ast.Name) and (frame := self._frame_of(node.id)) is not None:
            if node.id not in frame.values:
                return MISSING
            with frame.standing_in(node.id) as value:
                return self.fold(value)
        meaning = self.meaning_of(node)
        return self._constants.of(meaning, self._depth) if isinstance(meaning, Definition) else MISSING
