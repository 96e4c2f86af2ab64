"""The expression language: what parses, what each operator means, and what is refused before any launch."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import IntakeError
from intake.direct.bindings import Binding, ValueBinding
from intake.direct.evaluate import TensorFacts, evaluate
from intake.direct.expression import Expression, parse_expression
from intake.direct.scalars import Scalar
from intake.direct.where import Where
from tests.intake.direct.rows import DAG, const, dag, node

WHERE = Where(("e",))
BINDINGS: tuple[Binding, ...] = (
    ValueBinding("tensor", "input.x", "descriptor"),
    ValueBinding("scalar", "input.n", "value", cast="i64"),
    ValueBinding("scalar", "input.eps", "value", cast="f32"),
    ValueBinding("scalar", "input.causal", "value", cast="bool"),
    ValueBinding("stream", "stream.current", "identity"),
)
TENSOR = TensorFacts(shape=(3, 5), strides=(5, 1), storage_offset=7, element_size=2)
HIGH, LOW = (1 << 63) - 1, -(1 << 63)
X = node("tensor_dim", binding=0, axis=0)


def parse(value: object, family: Any = "int") -> Expression:
    """Parse one expression over the test bindings."""
    return parse_expression(value, WHERE, BINDINGS, family)


def family_of(value: object) -> Any:
    """Return the family of a plain value."""
    return {"bool": "bool", "int": "int", "float": "float"}[type(value).__name__]


def value_of(op: str, *operands: Any) -> Scalar:
    """Return what `op` makes of live operands (bindings 1, 2, 3 by family would fold; constants fold as well)."""
    nodes = [const(operand)["nodes"][0] for operand in operands]
    body = dag(*nodes, node(op, *range(len(operands))))
    last: IntakeError | None = None
    for family in ("int", "bool", "float"):
        try:
            return evaluate(parse(body, family), {}, WHERE)
        except IntakeError as error:
            if "the result is" not in error.message or "fit" in error.message or "finite" in error.message:
                raise
            last = error
    assert last is not None
    raise last


@pytest.mark.parametrize(
    ("op", "operands", "result"),
    [
        ("neg", (5,), -5),
        ("neg", (-0.5,), 0.5),
        ("not", (True,), False),
        ("add", (2, 3), 5),
        ("add", (0.5, 0.25), 0.75),
        ("sub", (2, 3), -1),
        ("mul", (HIGH, 1), HIGH),
        ("floor_div", (-7, 2), -4),
        ("ceil_div", (7, 2), 4),
        ("ceil_div", (-7, 2), -3),
        ("ceil_div", (LOW, 1), LOW),
        ("mod", (-7, 4), 1),
        ("eq", (1, 1), True),
        ("ne", (1.0, 1.0), False),
        ("lt", (False, True), True),
        ("le", (1, 1), True),
        ("gt", (2.5, 1.5), True),
        ("ge", (1, 2), False),
        ("and", (True, False), False),
        ("or", (True, False), True),
        ("min", (3, 1, 2), 1),
        ("max", (1,), 1),
        ("max", (1.0, 2.5), 2.5),
        ("select", (True, 1, 2), 1),
        ("select", (False, 1.5, 2.5), 2.5),
        ("select", (False, True, False), False),
    ],
)
def test_operators(op: str, operands: tuple[Any, ...], result: Any) -> None:
    """Each operator has one exact meaning, and a result of one exact type."""
    value = value_of(op, *operands)
    assert value == result
    assert type(value) is type(result)


@pytest.mark.parametrize(
    ("op", "operands"),
    [
        ("add", (1, 1.0)),
        ("add", (True, True)),
        ("eq", (1, True)),
        ("neg", (True,)),
        ("not", (1,)),
        ("and", (1, 1)),
        ("mod", (1.0, 2.0)),
        ("min", (True, False)),
        ("max", (1, 2.0)),
        ("select", (1, 2, 3)),
        ("select", (True, 1, 2.0)),
        ("add", (HIGH, 1)),
        ("neg", (LOW,)),
        ("mul", (LOW, -1)),
        ("floor_div", (1, 0)),
        ("ceil_div", (1, -2)),
        ("mod", (5, 0)),
        ("mul", (1e308, 10.0)),
        ("sub", (-1e308, 1.7e308)),
    ],
)
def test_what_can_never_be_evaluated_is_refused(op: str, operands: tuple[Any, ...]) -> None:
    """Mixed types and constant failures do not wait for a launch."""
    with pytest.raises(IntakeError) as caught:
        value_of(op, *operands)
    assert caught.value.code == "DIRECT_EXPRESSION"
    assert f"e.nodes[{len(operands)}]" in caught.value.message


@pytest.mark.parametrize(
    ("op", "count"), [("neg", 2), ("add", 1), ("add", 3), ("select", 2), ("min", 0), ("max", 9), ("not", 0)]
)
def test_arity(op: str, count: int) -> None:
    """An operator takes as many operands as it has."""
    with pytest.raises(IntakeError):
        parse(dag(*(node("const", value=1) for _ in range(count)), node(op, *range(count))))


@pytest.mark.parametrize(
    ("source", "value"),
    [
        (X, 3),
        (node("tensor_dim", binding=0, axis=1), 5),
        (node("tensor_stride", binding=0, axis=0), 5),
        (node("tensor_numel", binding=0), 15),
        (node("tensor_storage_offset", binding=0), 7),
        (node("tensor_element_size", binding=0), 2),
        (node("binding_scalar", binding=1), 11),
        (node("binding_scalar", binding=2), 0.5),
        (node("binding_scalar", binding=3), True),
    ],
)
def test_sources_read_the_live_call(source: dict[str, Any], value: Any) -> None:
    """Facts of tensors and scalars enter as they are."""
    expression = parse(dag(source), family_of(value))
    assert expression.constant is None
    assert evaluate(expression, {0: TENSOR, 1: 11, 2: 0.5, 3: True}, WHERE) == value


@pytest.mark.parametrize(
    ("body", "facts"),
    [
        (dag(node("tensor_dim", binding=0, axis=2)), {0: TENSOR}),
        (dag(X), {}),
        (dag(X), {0: 3}),
        (dag(node("binding_scalar", binding=1)), {1: TENSOR}),
        (dag(node("binding_scalar", binding=1)), {1: 1.0}),
        (dag(node("binding_scalar", binding=1)), {1: True}),
        (dag(node("binding_scalar", binding=1)), {1: 1 << 63}),
        (dag(X, node("binding_scalar", binding=1), node("floor_div", 0, 1)), {0: TENSOR, 1: 0}),
        (dag(node("tensor_numel", binding=0)), {0: TensorFacts((1 << 40, 1 << 40), (1, 1))}),
    ],
)
def test_a_fact_outside_the_language_fails(body: dict[str, Any], facts: Any) -> None:
    """Missing facts, other types and overflows are errors that name the node."""
    with pytest.raises(IntakeError) as caught:
        evaluate(parse(body), facts, WHERE)
    assert caught.value.code == "DIRECT_EVALUATION"
    assert caught.value.message.startswith("e.nodes[")


def test_the_arm_not_taken_still_fails() -> None:
    """Evaluation is eager: a division by zero in the unselected arm is an error."""
    body = dag(
        node("binding_scalar", binding=3),
        X,
        node("binding_scalar", binding=1),
        node("mod", 1, 2),
        node("select", 0, 1, 3),
    )
    assert evaluate(parse(body), {0: TENSOR, 1: 2, 3: True}, WHERE) == 3
    with pytest.raises(IntakeError):
        evaluate(parse(body), {0: TENSOR, 1: 0, 3: True}, WHERE)


@pytest.mark.parametrize("text", ["0x1.8000000000000p+1", "-0x0.0p+0", "0x0.0000000000001p-1022"])
def test_exact_floats(text: str) -> None:
    """The canonical spelling of a finite float is a constant."""
    expression = parse(dag(node("const", value={"f64_hex": text})), "float")
    assert isinstance(expression.constant, float)
    assert expression.constant.hex() == text


@pytest.mark.parametrize(
    "value",
    [
        0.5,
        {"f64_hex": "0x1.8p+1"},
        {"f64_hex": "1.5"},
        {"f64_hex": "inf"},
        {"f64_hex": "nan"},
        {"f64_hex": "0x1p+99999"},
        {"f64_hex": "0x1." + "0" * 100 + "p+0"},
        {"f64_hex": ""},
        {"f64_hex": 1},
        {"f64_hex": "0x0.0p+0", "more": 1},
        1 << 63,
        LOW - 1,
        [1],
        "1",
        [],
        None,
    ],
)
def test_inexact_constants_are_refused(value: object) -> None:
    """Bare floats, other spellings, integers beyond 64 bits and other types are no constants."""
    with pytest.raises(IntakeError):
        parse(dag(node("const", value=value)))


def test_a_number_too_large_to_print_is_refused() -> None:
    """Python refuses to print such an integer; the refusal does not print it either."""
    with pytest.raises(IntakeError, match="a huge integer"):
        parse(dag(node("const", value=16**5000)))


@pytest.mark.parametrize(
    "body",
    [
        {"schema": "other", "nodes": [node("const", value=1)], "result": 0},
        {"schema": DAG, "nodes": [], "result": 0},
        {"schema": DAG, "nodes": [node("const", value=1)] * 129, "result": 0},
        {"schema": DAG, "nodes": [node("const", value=1)], "result": 1},
        {"schema": DAG, "nodes": [node("const", value=1)], "result": True},
        {"schema": DAG, "nodes": [node("const", value=1)]},
        {"schema": DAG, "nodes": [node("const", value=1)], "result": 0, "more": 1},
        dag(node("pow", 0)),
        dag(node("neg", 0)),
        dag(node("const", value=1), node("neg", 2)),
        dag(node("const", value=1), node("neg", -1)),
        dag(node("const", value=1), node("neg", True)),
        dag(node("const", value=1, binding=0)),
        dag(node("const", value=1), node("neg", 0, value=1)),
        dag(node("const")),
        dag(node("tensor_dim", binding=0)),
        dag(node("tensor_dim", binding=0, axis=16)),
        dag(node("tensor_numel", binding=0, axis=0)),
        dag(node("tensor_numel", binding=1)),
        dag(node("tensor_numel", binding=5)),
        dag(node("tensor_numel", binding=64)),
        dag(node("binding_scalar", binding=0)),
        dag(node("binding_scalar", binding=4)),
        dag(node("binding_scalar", binding=1, value=1)),
        dag(node("binding_scalar", binding=2)),
        "1 + 1",
        1,
    ],
)
def test_malformed_expressions_are_refused(body: object) -> None:
    """The grammar is closed, operands are earlier nodes, bindings exist and have the right kind and family."""
    with pytest.raises(IntakeError):
        parse(body)


def test_the_document_writes_every_key_and_parses_to_itself() -> None:
    """The identity form is a normal form; null stands for absent when it is read back."""
    expression = parse(dag(X, node("const", value=128), node("ceil_div", 0, 1)))
    document = expression.document()
    assert document["nodes"] == [
        {"op": "tensor_dim", "operands": [], "value": None, "binding": 0, "axis": 0},
        {"op": "const", "operands": [], "value": 128, "binding": None, "axis": None},
        {"op": "ceil_div", "operands": [0, 1], "value": None, "binding": None, "axis": None},
    ]
    assert parse(document) == expression


INTEGERS = st.integers(LOW, HIGH)


@given(st.sampled_from(["add", "sub", "mul", "floor_div", "ceil_div", "mod"]), INTEGERS, INTEGERS)
def test_integer_arithmetic_is_exact_or_an_error(op: str, left: int, right: int) -> None:
    """For all 64-bit operands a result equals the mathematical one, or there is none."""
    body = dag(node("binding_scalar", binding=1), node("const", value=right), node(op, 0, 1))
    exact = {"add": left + right, "sub": left - right, "mul": left * right}
    if right > 0:
        exact |= {"floor_div": left // right, "ceil_div": -((-left) // right), "mod": left % right}
    expected = exact.get(op)
    try:
        value = evaluate(parse(body), {1: left}, WHERE)
    except IntakeError:
        assert expected is None or not LOW <= expected <= HIGH
    else:
        assert value == expected


OPS = [
    "neg",
    "add",
    "sub",
    "mul",
    "floor_div",
    "ceil_div",
    "mod",
    "eq",
    "lt",
    "and",
    "or",
    "not",
    "min",
    "max",
    "select",
]
LEAVES = st.one_of(
    st.integers(-9, 9).map(lambda value: node("const", value=value)),
    st.booleans().map(lambda value: node("const", value=value)),
    st.sampled_from([X, *(node("binding_scalar", binding=index) for index in (1, 2, 3))]),
)


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a graph, most often ill-typed somewhere."""
    nodes = [draw(LEAVES)]
    for position in range(1, draw(st.integers(1, 8))):
        operands = draw(st.lists(st.integers(0, position - 1), min_size=1, max_size=3))
        nodes.append(draw(st.one_of(LEAVES, st.sampled_from(OPS).map(lambda op, o=operands: node(op, *o)))))
    return dag(*nodes)


@given(graphs(), st.sampled_from(["int", "bool", "float"]))
def test_a_parsed_graph_never_meets_a_type_error(body: dict[str, Any], family: Any) -> None:
    """What parses evaluates to its family, or fails for the values of the call alone."""
    try:
        expression = parse(body, family)
    except IntakeError:
        return
    try:
        value = evaluate(expression, {0: TENSOR, 1: -2, 2: 0.5, 3: False}, WHERE)
    except IntakeError:
        return
    assert family_of(value) == family
    assert expression.constant is None or expression.constant == value
