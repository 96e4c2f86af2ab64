"""Which statements of a function say the same as others, or nothing.

Invariants
1. Every rule keeps what a function computes, in the order in which it computes it. Only expressions that just read and
   compute are dropped or moved past others.
2. A name is replaced by its value only where it is bound once, in its own function, and no nested scope sees it (a
   constant may be seen anywhere).
3. What is substituted is shallow, so that nesting stays bounded.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, Protocol

from intake.fingerprint.folding import MISSING, literal, nesting
from intake.fingerprint.frame import Frame, Value
from intake.fingerprint.outline import is_noise
from intake.fingerprint.usage import taken_apart
from intake.syntax import children, dotted_name

_ENDS = frozenset({ast.Return, ast.Raise, ast.Break, ast.Continue})
_VALUED = frozenset({ast.Assign, ast.Return, ast.Expr, ast.AnnAssign})
_DEPTH = 24  # levels of an expression that may stand in for a name
_IN_ORDER = frozenset(
    {
        ast.Attribute,
        ast.BinOp,
        ast.UnaryOp,
        ast.Compare,
        ast.Tuple,
        ast.List,
        ast.Subscript,
        ast.Slice,
        ast.Starred,
    }
)


class Reader(Protocol):
    """What the rules ask about expressions."""

    @property
    def guarded(self) -> int:
        """How many `try` statements stand around what is read."""

    def fold(self, node: ast.AST) -> object:
        """Return the constant that an expression is, or MISSING."""

    def is_pure(self, node: ast.AST) -> bool:
        """Say whether a node only reads and computes."""

    def is_external(self, node: ast.AST) -> bool:
        """Say whether a node is the dotted name of something outside the bundle."""

    def truth(self, node: ast.expr) -> bool | None:
        """Return what a test always is, or None."""

    def chooses(self, node: ast.Import | ast.ImportFrom) -> bool:
        """Say whether an import binds a name that something else binds, too."""

    def adopt(self, node: ast.AST, *, like: ast.AST) -> None:
        """Treat a node that was made just now as another one."""

    def taint(self, node: ast.AST, name: str) -> bool:
        """Treat everything around a use of `name` as impure."""


def live_statements(body: Sequence[ast.stmt], reader: Reader, *, in_kernel: bool) -> list[ast.stmt]:
    """Return the statements of a block that do something, chained and parallel assignments taken apart."""
    live: list[ast.stmt] = []
    for statement in body:
        kind: Any = statement.__class__
        if kind is ast.Assign:
            live += taken_apart(statement)
        elif isinstance(statement, ast.If) and (known := reader.truth(statement.test)) is not None:
            branch = statement.body if known else statement.orelse
            taken = live_statements(branch, reader, in_kernel=in_kernel)
            live += taken
            if taken and taken[-1].__class__ in _ENDS:
                break
        elif isinstance(statement, ast.AugAssign) and in_kernel:
            live.append(_plain_assignment(statement, reader))
        elif not (is_noise(statement) or _does_nothing(statement, reader)):
            live.append(statement)
            if kind in _ENDS:
                break
    return live


def _does_nothing(statement: ast.stmt, reader: Reader) -> bool:
    if isinstance(statement, ast.Delete):
        return all(isinstance(target, ast.Name) for target in statement.targets)
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return not reader.chooses(statement)
    if isinstance(statement, (ast.Global, ast.Nonlocal)):
        return True
    if isinstance(statement, ast.While):
        return not statement.orelse and reader.truth(statement.test) is False
    # Inside `try`, an expression may be there for what it raises.
    return isinstance(statement, ast.Expr) and reader.is_pure(statement.value) and not reader.guarded


def _plain_assignment(statement: ast.AugAssign, reader: Reader) -> ast.stmt:
    """Return `a = a + v` for `a += v`; values of a kernel's language are never changed in place."""
    if not isinstance(statement.target, ast.Name):
        return statement
    name = statement.target.id
    value = ast.BinOp(ast.Name(name, ast.Load()), statement.op, statement.value)
    reader.adopt(value, like=statement.value)
    return ast.Assign([ast.Name(name, ast.Store())], value)


def absorbs(
    frame: Frame,
    name: str,
    value: ast.expr,
    following: ast.stmt | None,
    reader: Reader,
    *,
    is_straight: bool,
) -> bool:
    """Say whether `name = value` disappears: nobody reads the name, or its value stands in for it from now on."""
    own = name in frame.own
    if not own and not (frame.is_function and frame.usage.binds(name)):
        return False
    stores, reads = frame.next_version(name, is_straight=is_straight)
    if own and reads == 0:
        return reader.is_pure(value)
    if stores > 1:
        return isinstance(value, ast.Name) and value.id == name
    if reader.fold(value) is not MISSING and (own or isinstance(value, ast.Constant)):
        return _put(frame, name, value)
    if own and is_straight and frame.usage.stores[name] == 1 and _is_alias(frame, value, reader):
        return _put(frame, name, value)
    if not own or reads != 1 or following is None:
        return False
    is_pure = reader.is_pure(value)
    if _reads_first(following, name, may_pass=is_pure) and _put(frame, name, value):
        if not is_pure:
            reader.taint(following, name)  # so that what happens inside is neither dropped nor moved
        return True
    return False


def is_dead(frame: Frame, name: str, value: ast.expr, reader: Reader) -> bool:
    """Say whether `name = value` only names a constant, or a computed value that nobody ever reads."""
    if name not in frame.own:
        return False
    if frame.usage.stores[name] == 1 and literal(value) is not MISSING:
        return True
    return frame.usage.loads.get(name, 0) == 0 and reader.is_pure(value)


def single_assignment(statement: ast.stmt) -> tuple[str, ast.expr | None]:
    """Return the name and the value of `name = value`; "" and None for anything else."""
    kind: Any = statement.__class__
    if kind is ast.Assign:
        targets = statement.targets  # type: ignore[attr-defined]
        target = targets[0] if len(targets) == 1 else None
    elif kind is ast.AnnAssign:
        target = statement.target  # type: ignore[attr-defined]
    else:
        return "", None
    return (target.id, statement.value) if target.__class__ is ast.Name else ("", None)  # type: ignore[attr-defined]


def _put(frame: Frame, name: str, value: ast.expr) -> bool:
    depth = nesting(value, _DEPTH, frame.depths)
    if depth > _DEPTH:
        return False
    frame.values[name], frame.depths[name] = Value(value, frame.values.get(name)), depth
    return True


def _is_alias(frame: Frame, value: ast.expr, reader: Reader) -> bool:
    """Say whether an expression is another name of something that stays what it is."""
    if not isinstance(value, (ast.Name, ast.Attribute)):
        return False
    if isinstance(value, ast.Name) and frame.usage.binds(value.id):
        standing = frame.values.get(value.id)
        is_name = standing is None or dotted_name(standing.node) is not None
        return is_name and frame.usage.stores[value.id] == 1 and value.id in frame.own
    chain = dotted_name(value)
    if chain is not None and chain[0].id in frame.usage.imports:
        return frame.usage.stores[chain[0].id] == 1
    return reader.is_external(value)


def _reads_first(statement: ast.stmt, name: str, *, may_pass: bool) -> bool:
    """Say whether a statement reads `name` before it does anything; with `may_pass`, before anything impure."""
    pending: list[Any]  # nodes, and the ends of operations as truth values
    if statement.__class__ in _VALUED and statement.value is not None:  # type: ignore[attr-defined]
        pending = [statement.value]  # type: ignore[attr-defined]
    elif isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name) and may_pass:
        pending = [statement.value]
    else:
        return False
    while pending:
        node = pending.pop()
        kind = node.__class__
        if kind is ast.Name:
            if node.id == name:
                return True
        elif kind is bool:  # the end of an operation: may the value be computed after it?
            if not (node and may_pass):
                return False
        elif kind is ast.Call:
            # Looking up a method is no operation; the call itself is, and nothing passes it.
            callee = node.func
            while callee.__class__ is ast.Attribute:
                callee = callee.value
            pending.append(False)
            pending += [keyword.value for keyword in reversed(node.keywords)]
            pending += reversed(node.args)
            pending.append(callee)
        elif kind in _IN_ORDER:
            pending.append(True)
            pending += reversed(children(node))
        elif kind is not ast.Constant:
            return False
    return False
