"""Arithmetic on constants, as the interpreter would do it, within bounds.

Invariants
1. A folded value is exactly what evaluating the expression gives; whatever raises, or grows, stays unfolded.
2. Every operation is bounded: no integer above 256 bits and no text above 4096 characters is made.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from intake.syntax import children

MISSING: Final = object()  # "not a constant"
_LITERAL = frozenset({ast.Constant, ast.UnaryOp, ast.BinOp, ast.Compare})
_BITS = 256
_CHARACTERS = 4096
_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.BitXor: operator.xor,
    ast.Pow: operator.pow,
}
_COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def is_number(value: object) -> bool:
    """Say whether a value is an integer or a float, and no truth value."""
    return type(value) in (int, float)


def binary(kind: type, left: object, right: object) -> object:
    """Return `left kind right` for two constants, or MISSING."""
    if type(left) is str and type(right) is str:
        short = kind is ast.Add and len(left) + len(right) <= _CHARACTERS
        return left + right if short else MISSING
    if not (is_number(left) and is_number(right)) or kind not in _BINARY or _is_huge(left) or _is_huge(right):
        return MISSING
    if kind is ast.LShift and not (isinstance(right, int) and 0 <= right <= _BITS):
        return MISSING
    if kind is ast.Pow and not (isinstance(right, int) and 0 <= right <= _BITS):
        return MISSING
    if kind is ast.Pow and isinstance(left, int) and isinstance(right, int) and left.bit_length() * right > _BITS:
        return MISSING
    return _bounded(lambda: _BINARY[kind](left, right))


def unary(kind: type, value: object) -> object:
    """Return `kind value` for a constant, or MISSING."""
    if kind is ast.Not:
        return not value
    if not is_number(value):
        return MISSING
    if kind is ast.USub:
        return -value  # type: ignore[operator]
    if kind is ast.UAdd:
        return value
    return ~value if isinstance(value, int) else MISSING


def compare(kind: type, left: object, right: object) -> object:
    """Return `left kind right` for two constants of one kind, or MISSING."""
    alike = (is_number(left) and is_number(right)) or (type(left) is str and type(right) is str)
    return _COMPARE[kind](left, right) if alike and kind in _COMPARE else MISSING


def literal(node: ast.AST) -> object:
    """Return the constant that an expression without names is, or MISSING."""
    if node.__class__ not in _LITERAL:
        return MISSING
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp):
        value = literal(node.operand)
        return MISSING if value is MISSING else unary(type(node.op), value)
    if isinstance(node, ast.BinOp):
        sides = literal(node.left), literal(node.right)
        return MISSING if MISSING in sides else binary(type(node.op), *sides)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        sides = literal(node.left), literal(node.comparators[0])
        return MISSING if MISSING in sides else compare(type(node.ops[0]), *sides)
    return MISSING


def nesting(value: ast.expr, bound: int, inside: Mapping[str, int] = MappingProxyType({})) -> int:
    """Return the depth of an expression, `inside` counting for some names; more than `bound` is all that matters."""
    deepest = depth = 0
    level: list[Any] = [value]
    while level and deepest <= bound:
        depth += 1
        deepest = max(deepest, depth)
        below: list[Any] = []
        for node in level:
            kind = node.__class__
            if kind is ast.Name:
                if node.id in inside:
                    deepest = max(deepest, depth + inside[node.id])
            elif kind is not ast.Constant:
                below += children(node)
        level = below
    return deepest


def _is_huge(value: object) -> bool:
    return isinstance(value, int) and value.bit_length() > _BITS


def _bounded(compute: Callable[[], object]) -> object:
    try:
        result = compute()
    except (ArithmeticError, TypeError, ValueError):
        return MISSING
    if isinstance(result, int) and result.bit_length() > _BITS:
        return MISSING
    return result if is_number(result) else MISSING


def constant_token(value: object) -> str:
    """Return the token of a constant: its type and its exact value."""
    kind = type(value).__name__
    return f"c:{kind}:{value:#x}" if type(value) is int else f"c:{kind}:{value!r}"
