"""Random small programs that compute on values which can be changed in place, and random edits of them."""

from __future__ import annotations

import ast
import copy
import random
from typing import Any, Self

NAMES = ("a", "b", "s", "t", "u", "w")


class Value:
    """A tensor in miniature: arithmetic makes new values, `+=` and methods with `_` change this one."""

    def __init__(self, items: list[int]) -> None:
        self.items = items

    def _with(self, other: Any, sign: int = 1) -> list[int]:
        others = other.items if isinstance(other, Value) else [other] * len(self.items)
        return [one + sign * two for one, two in zip(self.items, others, strict=True)]

    def __add__(self, other: Any) -> Value:
        return Value(self._with(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Value:
        return Value(self._with(other, -1))

    def __rsub__(self, other: Any) -> Value:
        return Value([other - item for item in self.items])

    def __mul__(self, other: Any) -> Value:
        others = other.items if isinstance(other, Value) else [other] * len(self.items)
        return Value([one * two % 1009 for one, two in zip(self.items, others, strict=True)])

    __rmul__ = __mul__

    def __iadd__(self, other: Any) -> Self:
        self.items[:] = self._with(other)
        return self

    def add_(self, other: Any) -> Value:
        """Add in place and return this value."""
        self += other
        return self

    def double_(self) -> Value:
        """Double in place and return this value."""
        self.items[:] = [item * 2 % 1009 for item in self.items]
        return self

    def plus(self, other: Any) -> Value:
        """Return a new value."""
        return self + other

    def __gt__(self, other: Any) -> bool:
        return sum(self.items) > (sum(other.items) if isinstance(other, Value) else other)

    def __lt__(self, other: Any) -> bool:
        return sum(self.items) < (sum(other.items) if isinstance(other, Value) else other)


class Writer:
    """Writes programs: a function `f(a, b)` and a helper `h(x, y)`."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._known = ["a", "b"]
        self._functions = False  # whether `g` is bound

    def program(self) -> str:
        """Return the source of one program."""
        work = self._dice.choice(("x + y * K", "x - y", "x.add_(y)"))
        helper = f"K = {self._dice.randrange(1, 4)}\n\n\ndef h(x, y):\n    return {work}\n"
        lines = self.block(self._dice.randrange(3, 9), 1)
        return f"{helper}\n\ndef f(a, b):\n" + "\n".join(lines) + f"\n    return {self.expression(1)}\n"

    def block(self, count: int, depth: int) -> list[str]:
        """Return the lines of a block."""
        return [line for _ in range(count) for line in self.statement(depth)]

    def statement(self, depth: int) -> list[str]:
        """Return the lines of one statement."""
        pad, kind = "    " * depth, self._dice.randrange(12)
        if kind < 6:
            value = self.expression(2)
            name = self._dice.choice(NAMES)
            if name not in self._known:
                if depth > 1:
                    name = self._dice.choice(self._known)
                else:
                    self._known.append(name)
            return [f"{pad}{name} = {value}"]
        if kind == 6:
            return [f"{pad}{self._dice.choice(self._known)} += {self.expression(1)}"]
        if kind == 7:
            return [f"{pad}{self._dice.choice(self._known)}.{self._dice.choice(('double_()', 'add_(1)'))}"]
        if kind == 8 and depth < 3:
            return [f"{pad}for i in range({self._dice.randrange(1, 3)}):", *self.block(2, depth + 1)]
        if kind == 9 and depth < 3:
            test = f"{self.expression(1)} {self._dice.choice('<>')} {self.expression(1)}"
            return [f"{pad}if {test}:", *self.block(2, depth + 1), f"{pad}else:", *self.block(1, depth + 1)]
        if kind == 10 and depth == 1 and self._dice.random() < 0.5:
            self._functions = True
            return [f"{pad}g = lambda z: z + {self._dice.choice(self._known)}"]
        if kind == 10:
            return [f"{pad}{self._dice.choice(self._known)} = {self._dice.choice(self._known)}"]
        if depth == 1:
            one, two = self.expression(1), self.expression(1)
            self._known += [name for name in ("s", "t") if name not in self._known]
            return [f"{pad}s, t = {one}, {two}"] if kind == 11 else [f"{pad}s = t = {one}"]
        return [f"{pad}pass"]

    def expression(self, depth: int) -> str:
        """Return one expression."""
        kind = self._dice.randrange(11 + self._functions)
        if depth == 0 or kind < 3:
            return self._dice.choice(self._known)
        one, two = self.expression(depth - 1), self.expression(depth - 1)
        return (
            f"({one} + {two})",
            f"({one} * {two})",
            f"({one} - {self._dice.randrange(3)})",
            f"({self._dice.randrange(1, 3)} * {one})",
            f"{self._dice.choice(self._known)}.{self._dice.choice(('add_', 'plus'))}({one})",
            f"h({one}, {two})",
            f"h(y={one}, x={two})",
            f"[{self._dice.choice(self._known)} * i for i in range(1, 3)][1]",
            f"g({one})",
        )[kind - 3]


def edited(tree: ast.Module, dice: random.Random) -> ast.Module:
    """Return a copy after one or two small random edits, which may or may not change what it computes."""
    tree = copy.deepcopy(tree)
    for _ in range(dice.randrange(1, 3)):
        dice.choice((_swap_statements, _drop_statement, _rename_one, _swap_operands, _name_part, _other_constant))(
            tree, dice
        )
    return ast.fix_missing_locations(tree)


def _blocks(tree: ast.Module) -> list[list[ast.stmt]]:
    found = [node.body for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.For | ast.If)]
    return [body for body in found if len(body) > 1] or [tree.body]


def _swap_statements(tree: ast.Module, dice: random.Random) -> None:
    body = dice.choice(_blocks(tree))
    at = dice.randrange(len(body) - 1)
    body[at], body[at + 1] = body[at + 1], body[at]


def _drop_statement(tree: ast.Module, dice: random.Random) -> None:
    body = dice.choice(_blocks(tree))
    del body[dice.randrange(len(body))]


def _rename_one(tree: ast.Module, dice: random.Random) -> None:
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in NAMES]
    if names:
        dice.choice(names).id = dice.choice(NAMES)


def _swap_operands(tree: ast.Module, dice: random.Random) -> None:
    found = [node for node in ast.walk(tree) if isinstance(node, ast.BinOp)]
    if found:
        node = dice.choice(found)
        node.left, node.right = node.right, node.left


def _name_part(tree: ast.Module, dice: random.Random) -> None:
    """Compute part of a statement one statement earlier, under a name."""
    body = dice.choice(_blocks(tree))
    at = dice.randrange(len(body))
    statement = body[at]
    parts = [node for node in ast.walk(statement) if isinstance(node, ast.Call | ast.BinOp)]
    if isinstance(statement, ast.Assign | ast.Expr | ast.Return) and parts:
        part = dice.choice(parts)
        value = copy.copy(part)
        name = f"part{dice.randrange(1000)}"

        class Replace(ast.NodeTransformer):
            def visit(self, node: ast.AST) -> ast.AST:
                return ast.Name(name, ast.Load()) if node is part else self.generic_visit(node)

        body[at] = Replace().visit(statement)
        body.insert(at, ast.Assign([ast.Name(name, ast.Store())], value))


def _other_constant(tree: ast.Module, dice: random.Random) -> None:
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, int)]
    if found:
        dice.choice(found).value = dice.randrange(4)


def outcome(tree: ast.Module) -> object:
    """Return what a program returns and how it leaves its arguments, over some inputs; or that it fails."""
    space: dict[str, Any] = {}
    exec(compile(tree, "program", "exec"), space)
    results = []
    for one, two in ((3, 5), (0, 1), (7, 2), (4, 4)):
        left, right = Value([one, two + 1]), Value([two, one * 2])
        try:
            result = space["f"](left, right)
        except (NameError, TypeError, AttributeError, RecursionError):
            return "fails"  # such a kernel cannot be submitted twice with profit
        results.append((getattr(result, "items", result), left.items, right.items))
    return results
