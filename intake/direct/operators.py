"""What every operator of the expression language takes, yields and computes, on exact values.

Invariants
1. Types never mix: both sides of an operation have the same family, and only comparisons change it.
2. Division is floor division with a positive divisor; `ceil_div(a, b)` is `-((-a) // b)`.
3. Nothing wraps: a result outside signed 64 bits, or a float that is not finite, is an error of the caller's making.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from intake.direct.scalars import INT64_HIGH, INT64_LOW, Family, Scalar, family_of_value

_ANY: frozenset[Family] = frozenset(("bool", "int", "float"))
_NUMBER: frozenset[Family] = frozenset(("int", "float"))
_INT: frozenset[Family] = frozenset(("int",))
_BOOL: frozenset[Family] = frozenset(("bool",))


class Operator(msgspec.Struct, frozen=True):
    """One operator. All operands have one family of `takes`, except the leading bool of `select`."""

    compute: Callable[..., Any]
    takes: frozenset[Family]
    low: int
    high: int
    compares: bool = False

    def result(self, families: tuple[Family, ...]) -> Family | None:
        """Return the family of the result, or None when operands of these families are refused."""
        values = families
        if self.compute is _select:
            if families[0] != "bool":
                return None
            values = families[1:]
        if len(set(values)) != 1 or values[0] not in self.takes:
            return None
        return "bool" if self.compares else values[0]


class InexactError(ArithmeticError):
    """A result that has no exact value in the language; the text says why."""


def apply(operator: Operator, values: tuple[Scalar, ...]) -> Scalar:
    """Compute one node from operands whose families were accepted. Raises `InexactError`."""
    try:
        result: Scalar = operator.compute(*values)
    except (OverflowError, ZeroDivisionError) as error:
        raise InexactError("the result is too large") from error
    return exact(result)


def exact(value: Scalar) -> Scalar:
    """Return `value` when the language can hold it. Raises `InexactError`."""
    family = family_of_value(value)
    if family == "int" and not INT64_LOW <= value <= INT64_HIGH:
        raise InexactError("the result does not fit signed 64 bits")
    if family == "float" and not math.isfinite(value):
        raise InexactError("the result is not a finite number")
    return value


def _positive(divisor: int) -> int:
    if divisor <= 0:
        raise InexactError("the divisor is not positive")
    return divisor


def _select(condition: bool, one: Scalar, other: Scalar) -> Scalar:
    return one if condition else other


OPERATORS: Mapping[str, Operator] = MappingProxyType(
    {
        "neg": Operator(lambda a: -a, _NUMBER, 1, 1),
        "not": Operator(lambda a: not a, _BOOL, 1, 1),
        "add": Operator(lambda a, b: a + b, _NUMBER, 2, 2),
        "sub": Operator(lambda a, b: a - b, _NUMBER, 2, 2),
        "mul": Operator(lambda a, b: a * b, _NUMBER, 2, 2),
        "floor_div": Operator(lambda a, b: a // _positive(b), _INT, 2, 2),
        "ceil_div": Operator(lambda a, b: -(-a // _positive(b)), _INT, 2, 2),
        "mod": Operator(lambda a, b: a % _positive(b), _INT, 2, 2),
        "eq": Operator(lambda a, b: a == b, _ANY, 2, 2, compares=True),
        "ne": Operator(lambda a, b: a != b, _ANY, 2, 2, compares=True),
        "lt": Operator(lambda a, b: a < b, _ANY, 2, 2, compares=True),
        "le": Operator(lambda a, b: a <= b, _ANY, 2, 2, compares=True),
        "gt": Operator(lambda a, b: a > b, _ANY, 2, 2, compares=True),
        "ge": Operator(lambda a, b: a >= b, _ANY, 2, 2, compares=True),
        "and": Operator(lambda a, b: a and b, _BOOL, 2, 2),
        "or": Operator(lambda a, b: a or b, _BOOL, 2, 2),
        "min": Operator(lambda *values: min(values), _NUMBER, 1, 8),
        "max": Operator(lambda *values: max(values), _NUMBER, 1, 8),
        "select": Operator(_select, _ANY, 3, 3),
    }
)
