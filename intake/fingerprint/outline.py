"""The top level of one file, without its tree: what its names are bound by, and what runs when it is imported.

Invariants
1. What is remembered holds no tree: statements are known by their place in the file. Texts are remembered up to a
   bound; whoever needs a longer one reads the statement again.
2. A name that is imported from one place only means what is there. One that has several origins is a definition of its
   own, of which each import is a part.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any, Final

from intake.fingerprint.effects import Importing
from intake.fingerprint.folding import MISSING, literal, nesting
from intake.fingerprint.usage import imported
from intake.nodes import FIELDS, NAMING
from intake.syntax import children

ASK: Final = object()  # "may be a constant, but the statement has to be read for it"
_CONSTANT_NESTING = 12  # levels of an expression that is taken for a constant
_TEXT = 256  # characters or bytes of a constant that is remembered
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_IMPORTS = (ast.Import, ast.ImportFrom)
_FOLDED = frozenset({ast.Constant, ast.Name, ast.Attribute, ast.BinOp, ast.UnaryOp, ast.Compare, ast.JoinedStr})
_NAMED = frozenset(NAMING)
_CLOSED = frozenset({ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda})
# The fields of statements, handlers and cases that hold others.
_HOLDING = ("body", "orelse", "finalbody", "handlers", "cases")
_BLOCKS = {
    kind: tuple(field for field in _HOLDING if field in kind._fields)
    for kind in FIELDS
    if not issubclass(kind, ast.expr | ast.mod) and set(_HOLDING) & set(kind._fields)
}


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
        self.values: dict[str, object] = {}  # name -> the constant that its one assignment gives it, or ASK
        self.parameters: dict[str, tuple[str, ...]] = {}  # function or plain class -> its parameters but the rests
        self._origins: dict[str, dict[str, None]] = {}  # name -> the dotted paths it is imported from
        self._importing: dict[str, list[int]] = {}  # name -> the statements that import it
        for place, statement in enumerate(tree.body):
            self._take(place, statement)
        self._settle_imports()
        importing = Importing(self.imports, self.defined)
        for place, names in sorted(self.bound.items()):
            statement = tree.body[place]
            if not isinstance(statement, _IMPORTS) and (not names or importing.acts(statement)):
                self.effects.append(place)
        for name, places in self.defined.items():
            if len(places) == 1:
                self._describe(name, tree.body[places[0]])

    def _take(self, place: int, statement: ast.stmt) -> None:
        self._note_statements(place, (statement,), is_top=True)
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

    def _note_statements(self, place: int, statements: Iterable[ast.AST], *, is_top: bool) -> None:
        """Note what statements, and those inside them, import and bind elsewhere."""
        for node in statements:
            kind: Any = node.__class__
            blocks = _BLOCKS.get(kind)
            if blocks is not None:
                inside = is_top and kind not in _CLOSED
                for field in blocks:
                    self._note_statements(place, getattr(node, field), is_top=inside)
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Attribute):
                        self.rebound.add(target.attr)
            elif isinstance(node, _IMPORTS):
                self.imported.update(dict.fromkeys(_dotted(node)))
                if is_top:
                    for name, dotted in imported(node):
                        self._origins.setdefault(name, {})[dotted] = None
                        self._importing.setdefault(name, []).append(place)
            elif isinstance(node, ast.Global):
                self.rebound |= set(node.names)

    def _describe(self, name: str, statement: ast.stmt) -> None:
        """Remember what a name is that one statement binds."""
        if isinstance(statement, _FUNCTIONS):
            self.parameters[name] = _parameters(statement, 0)
        elif isinstance(statement, ast.ClassDef):
            constructor = _constructor(statement)
            if constructor is not None:
                self.parameters[name] = _parameters(constructor, 1)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if len(targets) == 1 and isinstance(targets[0], ast.Name) and statement.value is not None:
                value = _constant(statement.value)
                if value is not MISSING:
                    self.values[name] = value


def _constant(node: ast.expr) -> object:
    """Return the constant that an expression is; MISSING when it is none, ASK when it takes more than the file."""
    if node.__class__ not in _FOLDED or nesting(node, _CONSTANT_NESTING) > _CONSTANT_NESTING:
        return MISSING
    value = literal(node)
    return ASK if value is MISSING or (isinstance(value, str | bytes) and len(value) > _TEXT) else value


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef, skipped: int) -> tuple[str, ...]:
    arguments = function.args
    items = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return tuple(item.arg for item in items[skipped:])


def _constructor(node: ast.ClassDef) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the one plain `__init__` of a class that inherits nothing."""
    found = [item for item in node.body if isinstance(item, _FUNCTIONS) and item.name in ("__init__", "__new__")]
    plain = not (node.bases or node.keywords or node.decorator_list) and len(found) == 1
    return found[0] if plain and found[0].name == "__init__" and not found[0].decorator_list else None


def is_noise(node: ast.AST) -> bool:
    """Say whether a statement does nothing: `pass`, a docstring or other constant, a bare annotation."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.AnnAssign):
        return node.value is None
    return isinstance(node, ast.Pass)


def _dotted(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the whole dotted paths of an import; `import a.b` binds `a` but imports both."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [dotted for _, dotted in imported(node)]


def _bound_by(statement: ast.stmt) -> dict[str, int]:
    """Return the top-level names that one top-level statement binds, numbered in order of appearance."""
    if isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
        return {statement.name: 0}
    names: dict[str, int] = {}
    pending: list[Any] = [statement]
    while pending:
        node = pending.pop()
        kind = node.__class__
        if kind is ast.Name:
            if isinstance(node.ctx, ast.Store):
                names.setdefault(node.id, len(names))
        elif kind is not ast.Constant:
            if kind in _NAMED:
                name = getattr(node, "name", None) or getattr(node, "rest", None)
                if name is not None:
                    names.setdefault(name, len(names))
            if kind not in _CLOSED:
                pending += reversed(children(node))
    return names
