"""Binding rows: what each kind of resource may be bound as, and with which options."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from config.errors import IntakeError
from intake.direct.bindings import KINDS, ValueBinding
from tests.intake.direct import rows

# Source kind -> an example (slot, resource).
EXAMPLES = {
    "tensor": (rows.REDUCE, "input.x"),
    "stream": (rows.REDUCE, "stream.current"),
    "group": (rows.REDUCE, "group.current"),
    "int": (rows.REDUCE, "group.rank"),
    "float": (rows.NORM, "input.eps"),
    "bool": ("attention.sdpa", "input.causal"),
}
PERMITTED = {
    *(("tensor", kind, projection) for kind, projection in (("tensor", "descriptor"), ("pointer", "device_ptr"))),
    *(("tensor", "scalar", projection) for projection in ("shape", "stride", "numel", "rank", "storage_offset")),
    *((family, "scalar", "value") for family in ("int", "float", "bool")),
    ("stream", "stream", "identity"),
    ("group", "group", "identity"),
    *(("group", "scalar", projection) for projection in ("rank", "size")),
    *(("group", "pointer", projection) for projection in ("native_handle", "peer_ptr_table")),
}
PROJECTIONS = sorted({projection for _, _, projection in PERMITTED} | {"address"})
PEER = rows.resource("state.peer", scope="group_ipc")
CASTS = {"int": "u8", "float": "bf16", "bool": "bool"}


def parse_binding(slot: str, *binding: dict[str, Any], resources: list[dict[str, Any]] | None = None) -> Any:
    """Return the first parsed binding of a run step."""
    return rows.parse(rows.op(rows.covering(slot, *binding), resources=resources), slot).exports[0].bindings[0]


def refused(slot: str, *binding: dict[str, Any], resources: list[dict[str, Any]] | None = None) -> IntakeError:
    """Return the error of a row with these bindings."""
    with pytest.raises(IntakeError) as caught:
        parse_binding(slot, *binding, resources=resources)
    return caught.value


@pytest.mark.parametrize(
    ("source", "kind", "projection"), sorted(product(EXAMPLES, KINDS - {"aggregate"}, PROJECTIONS))
)
def test_the_table_of_projections_is_exact(source: str, kind: str, projection: str) -> None:
    """Exactly the permitted (source kind, kind, projection) triples parse, given the options they need."""
    slot, name = EXAMPLES[source]
    options: dict[str, Any] = {"cast": CASTS.get(source, "i64")} if kind == "scalar" else {}
    resources = None
    if projection in ("shape", "stride") and kind == "scalar":
        options["axis"] = 1
    if projection == "peer_ptr_table" and kind == "pointer":
        options["peer_resource"], resources = "state.peer", [PEER]
    binding = rows.bind(name, kind, projection=projection, **options)
    if (source, kind, projection) in PERMITTED:
        parsed = parse_binding(slot, binding, resources=resources)
        assert parsed.document() == binding
    else:
        assert refused(slot, binding, resources=resources).code in ("DIRECT_BINDING", "DIRECT_UNKNOWN_KEY")


@pytest.mark.parametrize(
    ("source", "kind", "projection"),
    [("tensor", "tensor", "descriptor"), ("float", "scalar", "value"), ("stream", "stream", "identity")],
)
def test_a_default_projection_is_written_out(source: str, kind: str, projection: str) -> None:
    """A row without a projection equals the row with the default."""
    slot, name = EXAMPLES[source]
    options = {"cast": "f32"} if kind == "scalar" else {}
    parsed = parse_binding(slot, rows.bind(name, kind, **options))
    assert parsed == parse_binding(slot, rows.bind(name, kind, projection=projection, **options))
    assert parsed.document()["projection"] == projection


def test_tensor_options_are_kept() -> None:
    """Unit dimensions, alignment and the leading dimension are part of the row and of its identity."""
    binding = rows.bind(
        "input.x", "tensor", projection="descriptor", unsqueeze=[0, -16], assumed_align=1 << 20, leading_dim=0
    )
    assert parse_binding(rows.SILU, binding).document() == binding


@pytest.mark.parametrize(
    ("binding", "code", "place"),
    [
        (rows.bind("input.x", "tensor", unsqueeze=[0] * 9), "DIRECT_LIMIT", "unsqueeze"),
        (rows.bind("input.x", "tensor", unsqueeze=[17]), "DIRECT_VALUE", "unsqueeze[0]"),
        (rows.bind("input.x", "tensor", unsqueeze=[True]), "DIRECT_TYPE", "unsqueeze[0]"),
        (rows.bind("input.x", "tensor", assumed_align=24), "DIRECT_VALUE", "assumed_align"),
        (rows.bind("input.x", "tensor", assumed_align=1 << 21), "DIRECT_VALUE", "assumed_align"),
        (rows.bind("input.x", "tensor", leading_dim=17), "DIRECT_VALUE", "leading_dim"),
        (rows.bind("input.x", "tensor", cast="i32"), "DIRECT_UNKNOWN_KEY", ""),
        (rows.bind("input.x", "scalar", projection="numel", cast="f32"), "DIRECT_BINDING", "cast"),
        (rows.bind("input.x", "scalar", projection="numel", cast="bool"), "DIRECT_BINDING", "cast"),
        (rows.bind("input.x", "scalar", projection="numel"), "DIRECT_BINDING", ""),
        (rows.bind("input.x", "scalar", projection="numel", cast="i128"), "DIRECT_VALUE", "cast"),
        (rows.bind("input.x", "scalar", projection="numel", cast="i32", axis=0), "DIRECT_BINDING", ""),
        (rows.bind("input.x", "scalar", projection="shape", cast="i32"), "DIRECT_BINDING", ""),
        (rows.bind("input.x", "scalar", projection="shape", cast="i32", axis=16), "DIRECT_VALUE", "axis"),
        (rows.bind("input.x", "scalar", cast="i32"), "DIRECT_BINDING", "projection"),
        (rows.bind("input.x", "array"), "DIRECT_VALUE", "kind"),
        (rows.bind("input.zz", "tensor"), "DIRECT_SOURCE", "source"),
        ({"source": "input.x"}, "DIRECT_MISSING_KEY", ""),
        ({"kind": "tensor"}, "DIRECT_MISSING_KEY", ""),
        ({"kind": ["tensor"], "source": "input.x"}, "DIRECT_TYPE", "kind"),
    ],
)
def test_wrong_options_are_refused_at_their_place(binding: dict[str, Any], code: str, place: str) -> None:
    """Each option has its type, range and place."""
    error = refused(rows.SILU, binding)
    assert error.code == code
    path = "ops[0].aot_exports[0].bindings[0]" + (f".{place}" if place else "")
    assert error.message.startswith(f"{path}:")


@pytest.mark.parametrize(("source", "cast"), [("input.eps", "i32"), ("input.eps", "bool")])
def test_casts_stay_in_their_family(source: str, cast: str) -> None:
    """A float is never an integer or bool."""
    assert refused(rows.NORM, rows.bind(source, "scalar", cast=cast)).code == "DIRECT_BINDING"


def test_an_entry_that_is_no_table_is_refused() -> None:
    """Text in the place of a binding is a type error at its index."""
    row = rows.covering(rows.SILU)
    row["bindings"][0] = "input.x"
    with pytest.raises(IntakeError, match=r"bindings\[0\]: 'input.x' is not a table"):
        rows.parse(rows.op(row))


def test_a_peer_table_needs_storage_of_the_group() -> None:
    """peer_resource names a declared resource with group scope, and stands for peer tables alone."""
    table = rows.bind("group.current", "pointer", projection="peer_ptr_table")
    local = rows.resource("state.peer")
    assert refused(rows.REDUCE, table).code == "DIRECT_BINDING"
    assert refused(rows.REDUCE, {**table, "peer_resource": "state.peer"}).code == "DIRECT_BINDING"
    assert refused(rows.REDUCE, {**table, "peer_resource": "state.peer"}, resources=[local]).code == "DIRECT_BINDING"
    handle = rows.bind("group.current", "pointer", projection="native_handle", peer_resource="state.peer")
    assert refused(rows.REDUCE, handle, resources=[PEER]).code == "DIRECT_BINDING"
    parsed = parse_binding(rows.REDUCE, {**table, "peer_resource": "state.peer"}, resources=[PEER])
    assert isinstance(parsed, ValueBinding)
    assert parsed.sources == ("group.current", "state.peer")


def test_the_prepared_token_is_not_bound_while_running() -> None:
    """A run step of a MoE slot binds prepared tensors, not the opaque token itself."""
    error = refused(rows.MOE, rows.bind("prepared.state", "opaque"))
    assert error.code == "DIRECT_SOURCE"
    assert "prepared.*" in error.hint


LEAF = {"source": "input.x", "projection": "shape", "cast": "i32", "axis": 0}


def aggregate(components: Any, **keys: Any) -> dict[str, Any]:
    """Return an aggregate row."""
    return {"kind": "aggregate", "cast": "Shape", "component_cast": "i32", "components": components, **keys}


def test_an_aggregate_keeps_its_nesting() -> None:
    """Nested lists, static and dynamic leaves come out as they went in."""
    components = [{"static": -(1 << 63)}, [LEAF, [{"static": 1}]]]
    parsed = parse_binding(rows.SILU, aggregate(components))
    assert parsed.document() == {**aggregate(components), "projection": "tuple"}
    assert parsed.sources == ("input.x",)


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([], "DIRECT_LIMIT"),
        ([[]], "DIRECT_LIMIT"),
        ([[[[[{"static": 1}]]]]], "DIRECT_LIMIT"),
        ([{"static": 1}] * 17, "DIRECT_LIMIT"),
        ([[{"static": 1}] * 11] * 3, "DIRECT_LIMIT"),
        ([[LEAF] * 9] * 2, "DIRECT_LIMIT"),
        ([{"static": 1 << 63}], "DIRECT_VALUE"),
        ([{"static": 1, "cast": "i32"}], "DIRECT_UNKNOWN_KEY"),
        ([{**LEAF, "cast": "i64"}], "DIRECT_BINDING"),
        ([{**LEAF, "projection": "numel"}], "DIRECT_BINDING"),
        ([{key: value for key, value in LEAF.items() if key != "axis"}], "DIRECT_BINDING"),
        ([{**LEAF, "source": "stream.current"}], "DIRECT_BINDING"),
        ([3], "DIRECT_TYPE"),
        ("x", "DIRECT_TYPE"),
    ],
)
def test_a_wrong_aggregate_is_refused(components: Any, code: str) -> None:
    """Depth, children and leaves are bounded; leaves are integers of the component type."""
    assert refused(rows.SILU, aggregate(components)).code == code


def test_an_aggregate_has_no_source() -> None:
    """The table of an aggregate is closed like every other."""
    assert refused(rows.SILU, aggregate([{"static": 1}], source="input.x")).code == "DIRECT_UNKNOWN_KEY"
    assert refused(rows.SILU, aggregate([{"static": 1}], projection="list")).code == "DIRECT_VALUE"
