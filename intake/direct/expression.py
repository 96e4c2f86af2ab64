"""`cacheon.cuda-expression-dag.v1`: checked arithmetic over the bindings of one export.

Invariants
1. Nodes refer to earlier nodes only, so an expression is finite and has one order of evaluation.
2. Every node's family is known when the expression is parsed; a mix of families, or a constant part that can never
   be evaluated, is refused there. The reference finds both at launch, when the same plan always fails.
3. A float constant is written as its exact hexadecimal text; a bare float is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from config.limits import DIRECT
from intake.direct.aggregate import AggregateBinding
from intake.direct.bindings import Binding, ValueBinding
from intake.direct.operators import OPERATORS, InexactError, apply
from intake.direct.reading import Table, as_integer, shown
from intake.direct.scalars import INT64_HIGH, INT64_LOW, Family, Scalar, family_of, family_of_value
from intake.direct.where import Where

SCHEMA = "cacheon.cuda-expression-dag.v1"
# Facts of a tensor binding -> whether the fact needs an axis.
TENSOR_FACTS: Mapping[str, bool] = MappingProxyType(
    {
        "tensor_dim": True,
        "tensor_stride": True,
        "tensor_numel": False,
        "tensor_storage_offset": False,
        "tensor_element_size": False,
    }
)
OPS = frozenset(("const", "binding_scalar", *TENSOR_FACTS, *OPERATORS))


class Node(msgspec.Struct, frozen=True):
    """One node. `value` is set for constants, `binding` (and `axis`) for facts of a call, `operands` otherwise."""

    op: str
    operands: tuple[int, ...] = ()
    value: Scalar | None = None
    binding: int | None = None
    axis: int | None = None

    def document(self) -> dict[str, object]:
        """Return the identity form; every key is written."""
        value: object = {"f64_hex": self.value.hex()} if isinstance(self.value, float) else self.value
        operands = list(self.operands)
        return {"op": self.op, "operands": operands, "value": value, "binding": self.binding, "axis": self.axis}


class Expression(msgspec.Struct, frozen=True):
    """A parsed expression: its nodes, the index of its result, each node's family, and its value if constant."""

    nodes: tuple[Node, ...]
    result: int
    families: tuple[Family, ...]
    constant: Scalar | None = None

    @property
    def family(self) -> Family:
        """The family of the result."""
        return self.families[self.result]

    def document(self) -> dict[str, object]:
        """Return the identity form."""
        return {"schema": SCHEMA, "nodes": [node.document() for node in self.nodes], "result": self.result}


def parse_expression(value: object, where: Where, bindings: Sequence[Binding], family: Family) -> Expression:
    """Parse an expression whose result has `family`, over the `bindings` of its export.

    Raises DIRECT_TYPE, DIRECT_VALUE, DIRECT_LIMIT, DIRECT_*_KEY, DIRECT_EXPRESSION.
    """
    table = Table(value, where, "schema nodes result")
    table.choice("schema", (SCHEMA,))
    items = table.items("nodes", 1, DIRECT.expression_nodes)
    nodes: list[Node] = []
    typing = _Typing()
    for item, place in items:
        node = _node(item, place, len(nodes))
        typing.add(node, place, bindings)
        nodes.append(node)
    result = table.integer("result", 0, len(nodes) - 1)
    if typing.families[result] != family:
        message = f"the result is {typing.families[result]}, not {family}."
        raise table.at("result").refusal("DIRECT_EXPRESSION", message)
    return Expression(tuple(nodes), result, tuple(typing.families), typing.constants[result])


def _node(value: object, where: Where, position: int) -> Node:
    table = Table(value, where, "op", "operands value binding axis")
    op = table.choice("op", OPS)
    if op == "const":
        _only(table, "op value")
        return Node(op, value=_constant(table.get("value"), table.at("value")))
    if op in OPERATORS:
        _only(table, "op operands")
        operator = OPERATORS[op]
        items = table.items("operands", operator.low, min(operator.high, DIRECT.expression_operands))
        return Node(op, tuple(_earlier(item, at, position) for item, at in items))
    needs_axis = TENSOR_FACTS.get(op, False)
    _only(table, "op binding axis" if needs_axis else "op binding")
    return Node(
        op,
        binding=table.integer("binding", 0, DIRECT.bindings - 1),
        axis=table.integer("axis", 0, DIRECT.axis) if needs_axis else None,
    )


def _only(table: Table, keys: str) -> None:
    """Refuse a node with keys of another kind of node; an empty operand list stands for none."""
    given = {key for key in table if table.get(key) != []}
    if given != set(keys.split()):
        message = f"a node {shown(table.get('op'))} has exactly the keys {keys.replace(' ', ', ')}."
        raise table.where.refusal("DIRECT_EXPRESSION", message)


def _earlier(value: object, where: Where, position: int) -> int:
    if type(value) is int and value >= position:
        raise where.refusal("DIRECT_EXPRESSION", f"node {shown(value)} does not stand before node {position}.")
    return as_integer(value, where, 0, max(position - 1, 0))


def _constant(value: object, where: Where) -> Scalar:
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return as_integer(value, where, INT64_LOW, INT64_HIGH)
    if isinstance(value, float):
        hint = f'Write value = {{f64_hex = "{value.hex()}"}}.'
        raise where.refusal("DIRECT_EXPRESSION", "a float constant is written as its exact hexadecimal text.", hint)
    text = Table(value, where, "f64_hex").text("f64_hex")
    try:
        number = float.fromhex(text) if len(text) <= DIRECT.float_text else None
    except (ValueError, OverflowError):
        number = None
    if number is None or number.hex() != text or number - number != 0:
        hint = "" if number is None else f"Write {number.hex()!r}."
        raise where.at("f64_hex").refusal("DIRECT_EXPRESSION", f"{shown(text)} is no canonical finite float.", hint)
    return number


class _Typing:
    """Families and constant values of the nodes so far."""

    def __init__(self) -> None:
        self.families: list[Family] = []
        self.constants: list[Scalar | None] = []

    def add(self, node: Node, where: Where, bindings: Sequence[Binding]) -> None:
        if node.value is not None:
            self._append(family_of_value(node.value), node.value)
        elif node.op in OPERATORS:
            self._append_operator(node, where)
        else:
            self._append(_source_family(node, where, bindings), None)

    def _append(self, family: Family, constant: Scalar | None) -> None:
        self.families.append(family)
        self.constants.append(constant)

    def _append_operator(self, node: Node, where: Where) -> None:
        families = tuple(self.families[index] for index in node.operands)
        operator = OPERATORS[node.op]
        family = operator.result(families)
        if family is None:
            message = f"{node.op} does not take ({', '.join(families)})."
            raise where.refusal("DIRECT_EXPRESSION", message, "Types never mix, and none is converted.")
        known = [self.constants[index] for index in node.operands]
        values = tuple(value for value in known if value is not None)
        try:
            constant = apply(operator, values) if len(values) == len(known) else None
        except InexactError as error:
            raise where.refusal("DIRECT_EXPRESSION", f"{error}, whatever the call is.") from error
        self._append(family, constant)


def _source_family(node: Node, where: Where, bindings: Sequence[Binding]) -> Family:
    binding = bindings[node.binding] if node.binding is not None and node.binding < len(bindings) else None
    if binding is None:
        message = f"there is no binding {node.binding}; this export has {len(bindings)}."
        raise where.at("binding").refusal("DIRECT_EXPRESSION", message)
    wanted = "scalar" if node.op == "binding_scalar" else "tensor"
    if isinstance(binding, AggregateBinding) or binding.kind != wanted:
        message = f"binding {node.binding} is a {binding.kind}; {node.op} reads a {wanted}."
        raise where.at("binding").refusal("DIRECT_EXPRESSION", message)
    return _cast_family(binding) if wanted == "scalar" else "int"


def _cast_family(binding: ValueBinding) -> Family:
    return family_of(binding.cast or "i64")
