"""The value of an expression for one live call: a pure function of the facts of its bindings.

Invariants
1. Every node is evaluated, in order, whether or not the result needs it: both arms of a select can fail.
2. A fact that is missing, of another type, or outside the language fails; nothing is converted or wrapped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from intake.direct.expression import Expression, Node
from intake.direct.operators import OPERATORS, InexactError, apply, exact
from intake.direct.scalars import Scalar, family_of_value
from intake.direct.where import Where


class TensorFacts(msgspec.Struct, frozen=True):
    """The view a tensor binding exposes: `shape` and `strides` in elements, sizes in bytes where named so."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    storage_offset: int = 0
    element_size: int = 1  # bytes


Facts = Mapping[int, TensorFacts | Scalar]  # by index of the binding


def evaluate(expression: Expression, facts: Facts, where: Where) -> Scalar:
    """Return the exact value of `expression`. Raises `IntakeError` (DIRECT_EVALUATION) naming the node."""
    values: list[Scalar] = []
    for index, node in enumerate(expression.nodes):
        try:
            value = _value(node, values, facts)
            if family_of_value(value) != expression.families[index]:
                raise InexactError(f"binding {node.binding} is not exactly {expression.families[index]}")
            values.append(value)
        except InexactError as error:
            raise where.at("nodes", index).refusal("DIRECT_EVALUATION", f"{error} for this call.") from error
    return values[expression.result]


def _value(node: Node, values: list[Scalar], facts: Facts) -> Scalar:
    if node.value is not None:
        return node.value
    operator = OPERATORS.get(node.op)
    if operator is None:
        return exact(_fact(node, facts))
    operands = tuple(values[index] for index in node.operands)
    return apply(operator, operands)


def _fact(node: Node, facts: Facts) -> Scalar:
    fact = facts.get(-1 if node.binding is None else node.binding)
    if node.op == "binding_scalar":
        if not isinstance(fact, bool | int | float):
            raise InexactError(f"binding {node.binding} has no scalar")
        return fact
    if not isinstance(fact, TensorFacts):
        raise InexactError(f"binding {node.binding} has no tensor")
    if node.axis is not None:
        sizes = fact.shape if node.op == "tensor_dim" else fact.strides
        if node.axis >= len(sizes):
            raise InexactError(f"binding {node.binding} has no axis {node.axis}")
        return sizes[node.axis]
    plain = {
        "tensor_numel": math.prod(fact.shape),
        "tensor_storage_offset": fact.storage_offset,
        "tensor_element_size": fact.element_size,
    }
    return plain[node.op]
