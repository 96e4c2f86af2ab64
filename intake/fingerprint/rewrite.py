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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import NamedTuple, Protocol

from intake.fingerprint.folding import MISSING, literal
from intake.fingerprint.names import is_noise
from intake.fingerprint.usage import FUNCTION, Usage, taken_apart
from intake.syntax import children, dotted_name

_ENDS = (ast.Return, ast.Raise, ast.Break, ast.Continue)
_VALUED = (ast.Assign, ast.Return, ast.Expr, ast.AnnAssign)
_DEPTH = 24  # levels of an expression that may stand in for a name
_IN_ORDER = (
    ast.Attribute,
    ast.BinOp,
    ast.UnaryOp,
    ast.Compare,
    ast.Tuple,
    ast.List,
    ast.Subscript,
    ast.Slice,
    ast.Starred,
)


class Value(NamedTuple):
    """An expression that stands for a name, and what stood for the same name before, to which the expression refers."""

    node: ast.expr
    before: Value | None


class Frame:
    """One open scope: its usage, the numbers of its locals, and the expressions that stand for some of them."""

    def __init__(self, usage: Usage, *, is_kernel: bool = False) -> None:
        self.usage = usage
        self.is_kernel = is_kernel
        self.numbers: dict[str, int] = {}
        self.values: dict[str, Value] = {}
        self.depths: dict[str, int] = {}
        self.started: dict[str, int] = {}  # versions of each name that were written so far

    @property
    def is_function(self) -> bool:
        """Whether this is the scope of a function."""
        return self.usage.kind == FUNCTION

    @contextmanager
    def standing_in(self, name: str) -> Iterator[ast.expr]:
        """Give the expression that stands for a name; inside, the name means what it meant to that expression."""
        value = self.values.pop(name)
        if value.before is not None:
            self.values[name] = value.before
        yield value.node
        self.values[name] = value

    def next_version(self, name: str, *, is_straight: bool) -> tuple[int, int]:
        """Return how often what is assigned now is bound, and how often it is read."""
        usage, started = self.usage, self.started.get(name, 0)
        if is_straight and self.is_own(name) and usage.has_versions(name) and started < len(usage.versions[name]):
            return 1, usage.versions[name][started]
        return usage.stores.get(name, 0), usage.loads.get(name, 0)

    def start_version(self, statement: ast.stmt) -> None:
        """Note that a statement on the straight path was written."""
        name = _single_assignment(statement)[0]
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
        if name:
            self.started[name] = self.started.get(name, 0) + 1

    def is_own(self, name: str) -> bool:
        """Say whether `name` is a local of this function that no nested scope sees."""
        return self.is_function and self.usage.binds(name) and name not in self.usage.inner


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


def live_statements(body: Sequence[ast.stmt], reader: Reader, *, in_kernel: bool) -> Iterator[ast.stmt]:
    """Yield the statements of a block that do something, chained and parallel assignments taken apart."""
    for statement in body:
        if isinstance(statement, ast.If) and (known := reader.truth(statement.test)) is not None:
            taken = statement.body if known else statement.orelse
            live = list(live_statements(taken, reader, in_kernel=in_kernel))
            yield from live
            if live and isinstance(live[-1], _ENDS):
                return
            continue
        if isinstance(statement, ast.While) and not statement.orelse and reader.truth(statement.test) is False:
            continue
        if is_noise(statement) or _does_nothing(statement, reader):
            continue
        if in_kernel and isinstance(statement, ast.AugAssign):
            yield _plain_assignment(statement, reader)
        else:
            yield from taken_apart(statement)
        if isinstance(statement, _ENDS):
            return


def _does_nothing(statement: ast.stmt, reader: Reader) -> bool:
    if isinstance(statement, ast.Delete):
        return all(isinstance(target, ast.Name) for target in statement.targets)
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return not reader.chooses(statement)
    if isinstance(statement, (ast.Global, ast.Nonlocal)):
        return True
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
    frame: Frame, statement: ast.stmt, following: ast.stmt | None, reader: Reader, *, is_straight: bool
) -> bool:
    """Say whether an assignment disappears: nobody reads the name, or its value stands in for it from now on."""
    name, value = _single_assignment(statement)
    if value is None or not frame.is_function or not frame.usage.binds(name):
        return False
    own = frame.is_own(name)
    stores, reads = frame.next_version(name, is_straight=is_straight)
    if own and reads == 0:
        return reader.is_pure(value)
    if stores > 1:
        return isinstance(value, ast.Name) and value.id == name
    if reader.fold(value) is not MISSING and (own or isinstance(value, ast.Constant)):
        return _put(frame, name, value)
    if own and is_straight and frame.usage.stores[name] == 1 and _is_alias(frame, value, reader):
        return _put(frame, name, value)
    once = own and reads == 1 and following is not None
    is_pure = reader.is_pure(value)
    if once and following is not None and _reads_first(following, name, may_pass=is_pure) and _put(frame, name, value):
        if not is_pure:
            reader.taint(following, name)  # so that what happens inside is neither dropped nor moved
        return True
    return False


def is_dead(frame: Frame, statement: ast.stmt, reader: Reader) -> bool:
    """Say whether a statement only names a constant, or a computed value that nobody ever reads."""
    name, value = _single_assignment(statement)
    if value is None or not frame.is_own(name):
        return False
    if frame.usage.stores[name] == 1 and literal(value) is not MISSING:
        return True
    return frame.usage.loads.get(name, 0) == 0 and reader.is_pure(value)


def _single_assignment(statement: ast.stmt) -> tuple[str, ast.expr | None]:
    kind = type(statement)
    if kind is not ast.Assign and kind is not ast.AnnAssign:
        return "", None
    if isinstance(statement, ast.Assign):
        target = statement.targets[0] if len(statement.targets) == 1 else None
    else:
        target = getattr(statement, "target", None)
    return (target.id, getattr(statement, "value", None)) if isinstance(target, ast.Name) else ("", None)


def _put(frame: Frame, name: str, value: ast.expr) -> bool:
    depth = nesting(value, _DEPTH, frame.depths)
    if depth > _DEPTH:
        return False
    frame.values[name], frame.depths[name] = Value(value, frame.values.get(name)), depth
    return True


def nesting(value: ast.expr, bound: int, inside: Mapping[str, int] = MappingProxyType({})) -> int:
    """Return the depth of an expression, `inside` counting for some names; more than `bound` is all that matters."""
    deepest = 0
    pending: list[tuple[ast.AST, int]] = [(value, 1)]
    while pending and deepest <= bound:
        node, depth = pending.pop()
        if isinstance(node, ast.Name):
            depth += inside.get(node.id, 0)
        deepest = max(deepest, depth)
        pending += [(child, depth + 1) for child in children(node)]
    return deepest


def _is_alias(frame: Frame, value: ast.expr, reader: Reader) -> bool:
    """Say whether an expression is another name of something that stays what it is."""
    if not isinstance(value, (ast.Name, ast.Attribute)):
        return False
    if isinstance(value, ast.Name) and frame.usage.binds(value.id):
        standing = frame.values.get(value.id)
        is_name = standing is None or dotted_name(standing.node) is not None
        return is_name and frame.usage.stores[value.id] == 1 and frame.is_own(value.id)
    chain = dotted_name(value)
    if chain is not None and chain[0].id in frame.usage.imports:
        return frame.usage.stores[chain[0].id] == 1
    return reader.is_external(value)


def _reads_first(statement: ast.stmt, name: str, *, may_pass: bool) -> bool:
    """Say whether a statement reads `name` before it does anything; with `may_pass`, before anything impure."""
    if isinstance(statement, _VALUED) and statement.value is not None:
        pending: list[ast.AST | bool] = [statement.value]
    elif isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name) and may_pass:
        pending = [statement.value]
    else:
        return False
    while pending:
        node = pending.pop()
        if isinstance(node, bool):  # the end of an operation: may the value be computed after it?
            if not (node and may_pass):
                return False
        elif isinstance(node, ast.Name):
            if node.id == name:
                return True
        elif isinstance(node, ast.Call):
            # Looking up a method is no operation; the call itself is, and nothing passes it.
            callee = node.func
            while isinstance(callee, ast.Attribute):
                callee = callee.value
            pending += [False, *reversed([*node.args, *(keyword.value for keyword in node.keywords)]), callee]
        elif isinstance(node, _IN_ORDER):
            pending += [True, *reversed(children(node))]
        elif not isinstance(node, ast.Constant):
            return False
    return False
