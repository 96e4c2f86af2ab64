"""Device plans: kernels, launches, parameters and attributes, and their sizes for a live call."""

from __future__ import annotations

from typing import Any

import pytest

from config.errors import IntakeError
from intake.direct.bindings import Binding, ValueBinding
from intake.direct.device_plan import DevicePlan, parse_device_plan
from intake.direct.evaluate import TensorFacts
from intake.direct.launch import Geometry, geometry
from intake.direct.packing import pack_parameter
from intake.direct.tensor_map import resolve_tensor_map
from intake.direct.where import Where
from tests.intake.direct.rows import const, dag, launch, node, parameter, plan, xyz

WHERE = Where(("p",))
BINDINGS: tuple[Binding, ...] = (
    ValueBinding("tensor", "input.x", "descriptor"),
    ValueBinding("pointer", "output.out", "device_ptr"),
    ValueBinding("scalar", "input.x", "numel", cast="i64"),
    ValueBinding("scalar", "input.eps", "value", cast="f32"),
    ValueBinding("group", "group.current", "identity"),
    ValueBinding("stream", "stream.current", "identity"),
    ValueBinding("opaque", "prepared.state", "identity"),
)
STREAM = 5
FACTS: dict[int, Any] = {0: TensorFacts((64, 256), (256, 1), 0, 2), 2: 16384, 3: 0.5}
N = dag(node("binding_scalar", binding=2))
EPS = dag(node("binding_scalar", binding=3))
DIM = dag(node("tensor_dim", binding=0, axis=0))
TMA: dict[str, Any] = {
    "binding": 0,
    "element_type": "bf16",
    "global_dims": [dag(node("tensor_dim", binding=0, axis=1)), DIM],
    "global_strides": [const(512)],
    "box_dims": [const(64), const(8)],
    "element_strides": [const(1), const(1)],
    "interleave": "none",
    "swizzle": "swizzle_128b",
    "l2_promotion": "l2_128b",
    "oob_fill": "zero",
}
PARAMETERS = [
    parameter("pointer", 8, binding=0),
    parameter("pointer", 8, binding=1),
    parameter("pointer", 8, binding=6),
    parameter("scalar", 8, scalar_type="i64", expression=N),
    parameter("scalar", 4, scalar_type="f32", expression=EPS),
    parameter("scalar", 1, scalar_type="bool", expression=const(True)),
    parameter(
        "packed_struct",
        24,
        fields=[
            {"offset": 16, "data_hex": "00ff"},
            {"offset": 0, "tensor_binding": 0},
            {"offset": 8, "scalar_type": "u16", "expression": const(513)},
        ],
    ),
    parameter("tma_descriptor", 128, tma=TMA),
    parameter("cutlass_fast_divmod_i32_v1", 12, expression=DIM),
    parameter("cute_fast_divmod_i32_v1", 12, expression=const(7)),
    parameter("group_handle", 8, binding=4, group_projection="native_handle"),
]


def parse(value: object) -> DevicePlan:
    """Parse a plan over the test bindings."""
    return parse_device_plan(value, WHERE, BINDINGS)


def refused(value: object) -> IntakeError:
    """Return the error of a plan."""
    with pytest.raises(IntakeError) as caught:
        parse(value)
    return caught.value


def test_every_kind_of_parameter_parses_and_round_trips() -> None:
    """A plan with all kinds reads back from its own document, with one digest."""
    parsed = parse(plan(launch(PARAMETERS, STREAM, cluster=xyz(1, 1, 1))))
    assert parse(parsed.document()) == parsed
    assert parse(parsed.document()).digest == parsed.digest
    rows = parsed.document()["launches"]
    assert isinstance(rows, list)
    assert rows[0]["parameters"][:2] == PARAMETERS[:2]
    assert [sorted(row) for row in rows[0]["parameters"]] == [sorted(row) for row in PARAMETERS]


def test_several_kernels_and_launches() -> None:
    """Kernels are an inventory: some may be launched twice, others never."""
    value = plan(launch([], STREAM), launch([], STREAM, 1, "a"), launch([], STREAM, 2))
    value["kernels"].append({"name": "z", "parameter_sizes": [32764] * 256})
    assert [kernel.name for kernel in parse(value).kernels] == ["a", "k0", "z"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda p: p.update(schema="v2"), "DIRECT_VALUE"),
        (lambda p: p.update(kernels=[]), "DIRECT_LIMIT"),
        (lambda p: p.update(launches=[]), "DIRECT_LIMIT"),
        (lambda p: p.update(extra=1), "DIRECT_UNKNOWN_KEY"),
        (lambda p: p["kernels"].append({"name": "k0", "parameter_sizes": []}), "DIRECT_PLAN"),
        (lambda p: p["kernels"].append({"name": "a", "parameter_sizes": []}), "DIRECT_PLAN"),
        (lambda p: p["kernels"].append({"name": "1k", "parameter_sizes": []}), "DIRECT_VALUE"),
        (lambda p: p["kernels"].append({"name": "z" * 4097, "parameter_sizes": []}), "DIRECT_VALUE"),
        (lambda p: p["kernels"].append({"name": "z", "parameter_sizes": [0]}), "DIRECT_VALUE"),
        (lambda p: p["kernels"].append({"name": "z", "parameter_sizes": [32765]}), "DIRECT_VALUE"),
        (lambda p: p["kernels"].append({"name": "z", "parameter_sizes": [1] * 257}), "DIRECT_LIMIT"),
        (lambda p: p["launches"][0].update(ordinal=1), "DIRECT_PLAN"),
        (lambda p: p["launches"][0].update(kernel="k1"), "DIRECT_PLAN"),
        (lambda p: p["launches"][0].update(stream_binding=0), "DIRECT_PLAN"),
        (lambda p: p["launches"][0].update(stream_binding=7), "DIRECT_PLAN"),
        (lambda p: p["launches"][0].update(stream_binding=None), "DIRECT_MISSING_KEY"),
        (lambda p: p["launches"][0].pop("attributes"), "DIRECT_MISSING_KEY"),
        (lambda p: p["launches"][0].update(parameters=[PARAMETERS[0]]), "DIRECT_PLAN"),
        (lambda p: p["launches"][0].update(grid=xyz(0)), "DIRECT_PLAN"),
        (lambda p: p["launches"][0].update(grid=xyz(1 << 32)), "DIRECT_PLAN"),
        (lambda p: p["launches"][0].update(grid={"x": const(1), "y": const(1)}), "DIRECT_MISSING_KEY"),
        (lambda p: p["launches"][0].update(grid=xyz(const(True))), "DIRECT_EXPRESSION"),
        (lambda p: p["launches"][0].update(block=xyz(1024, 2)), "DIRECT_PLAN"),
        (lambda p: p["launches"][0].update(block=xyz(1024, DIM, 2)), "DIRECT_PLAN"),
        (lambda p: p["launches"][0].update(cluster=xyz(2)), "DIRECT_PLAN"),
        (lambda p: p["launches"][0].update(cluster=xyz(33), grid=xyz(33)), "DIRECT_PLAN"),
        (lambda p: p["launches"][0].update(shared_mem_bytes=const(-1)), "DIRECT_PLAN"),
        (lambda p: p["launches"][0].update(shared_mem_bytes=const((1 << 20) + 1)), "DIRECT_PLAN"),
        (lambda p: p["launches"][0].update(attributes={"priority": 1 << 31}), "DIRECT_VALUE"),
        (lambda p: p["launches"][0].update(attributes={"cooperative": 1}), "DIRECT_TYPE"),
        (lambda p: p["launches"][0].update(attributes={"unknown": 1}), "DIRECT_UNKNOWN_KEY"),
        (lambda p: p["launches"][0].update(attributes={"cluster_scheduling": "spread"}), "DIRECT_PLAN"),
        (lambda p: p["launches"][0].update(attributes={"portable_cluster_mode": "require_portable"}), "DIRECT_PLAN"),
        (lambda p: p["launches"][0].update(attributes={"shared_memory_mode": "big"}), "DIRECT_VALUE"),
        (lambda p: p["launches"][0].update(attributes=[]), "DIRECT_TYPE"),
    ],
)
def test_wrong_plans_are_refused(change: Any, code: str) -> None:
    """Inventory, numbering, widths, dimensions and attributes follow their rules."""
    value = plan(launch([], STREAM))
    change(value)
    assert refused(value).code == code


def test_attributes_with_a_cluster() -> None:
    """All attributes at once, written out in the document."""
    attributes = {
        "cooperative": True,
        "programmatic_stream_serialization": True,
        "priority": -(1 << 31),
        "cluster_scheduling": "load_balancing",
        "portable_cluster_mode": "allow_non_portable",
        "shared_memory_mode": "require_portable",
    }
    parsed = parse(plan(launch([], STREAM, attributes=attributes, cluster=xyz(2), grid=xyz(4))))
    assert parsed.launches[0].attributes.document() == attributes


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ({"kind": "array", "size": 8}, "DIRECT_VALUE"),
        ({"size": 8}, "DIRECT_MISSING_KEY"),
        (parameter("pointer", 4, binding=0), "DIRECT_PARAMETER"),
        (parameter("pointer", 8, binding=2), "DIRECT_PARAMETER"),
        (parameter("pointer", 8, binding=7), "DIRECT_PARAMETER"),
        (parameter("pointer", 8, binding=0, expression=N), "DIRECT_UNKNOWN_KEY"),
        (parameter("scalar", 4, scalar_type="i64", expression=N), "DIRECT_PARAMETER"),
        (parameter("scalar", 2, scalar_type="bf16", expression=EPS), "DIRECT_VALUE"),
        (parameter("scalar", 4, scalar_type="f32", expression=N), "DIRECT_EXPRESSION"),
        (parameter("scalar", 4, scalar_type="i32", expression=EPS), "DIRECT_EXPRESSION"),
        (parameter("scalar", 1, scalar_type="u8", expression=const(256)), "DIRECT_PARAMETER"),
        (parameter("scalar", 4, scalar_type="f32", expression=const(1e300)), "DIRECT_PARAMETER"),
        (parameter("scalar", 4, scalar_type="f32"), "DIRECT_MISSING_KEY"),
        (parameter("packed_struct", 4097, fields=[{"offset": 0, "data_hex": "00"}]), "DIRECT_VALUE"),
        (parameter("packed_struct", 4, fields=[]), "DIRECT_LIMIT"),
        (parameter("packed_struct", 128, fields=[{"offset": i, "data_hex": "00"} for i in range(65)]), "DIRECT_LIMIT"),
        (parameter("packed_struct", 4, fields=[{"offset": 3, "data_hex": "0000"}]), "DIRECT_PARAMETER"),
        (parameter("packed_struct", 4, fields=[{"offset": 4, "data_hex": "00"}]), "DIRECT_VALUE"),
        (parameter("packed_struct", 4, fields=[{"offset": 0, "data_hex": "0"}]), "DIRECT_VALUE"),
        (parameter("packed_struct", 4, fields=[{"offset": 0, "data_hex": "0A"}]), "DIRECT_VALUE"),
        (parameter("packed_struct", 4, fields=[{"offset": 0, "data_hex": ""}]), "DIRECT_VALUE"),
        (parameter("packed_struct", 4, fields=[{"offset": 0}]), "DIRECT_PARAMETER"),
        (
            parameter("packed_struct", 4, fields=[{"offset": 0, "data_hex": "00", "tensor_binding": 0}]),
            "DIRECT_PARAMETER",
        ),
        (parameter("packed_struct", 8, fields=[{"offset": 0, "tensor_binding": 1}]), "DIRECT_PARAMETER"),
        (
            parameter("packed_struct", 8, fields=[{"offset": 1, "data_hex": "00"}, {"offset": 0, "data_hex": "0000"}]),
            "DIRECT_PARAMETER",
        ),
        (parameter("cute_fast_divmod_i32_v1", 12, expression=const(0)), "DIRECT_PARAMETER"),
        (parameter("cute_fast_divmod_i32_v1", 16, expression=const(1)), "DIRECT_PARAMETER"),
        (parameter("group_handle", 8, binding=0, group_projection="native_handle"), "DIRECT_PARAMETER"),
        (parameter("group_handle", 8, binding=4, group_projection="rank"), "DIRECT_VALUE"),
        (parameter("tma_descriptor", 64, tma=TMA), "DIRECT_PARAMETER"),
        (parameter("tma_descriptor", 128, tma={**TMA, "binding": 1}), "DIRECT_PARAMETER"),
        (parameter("tma_descriptor", 128, tma={**TMA, "element_type": "f4"}), "DIRECT_VALUE"),
        (parameter("tma_descriptor", 128, tma={**TMA, "global_strides": []}), "DIRECT_PARAMETER"),
        (parameter("tma_descriptor", 128, tma={**TMA, "box_dims": [const(1)] * 3}), "DIRECT_PARAMETER"),
        (parameter("tma_descriptor", 128, tma={**TMA, "box_dims": [const(1), const(257)]}), "DIRECT_PARAMETER"),
        (parameter("tma_descriptor", 128, tma={**TMA, "global_dims": [const(1)] * 6}), "DIRECT_LIMIT"),
        (parameter("tma_descriptor", 128, tma={**TMA, "global_dims": []}), "DIRECT_LIMIT"),
        (parameter("tma_descriptor", 128, tma={**TMA, "interleave": "interleave_16b"}), "DIRECT_PARAMETER"),
        (
            parameter("tma_descriptor", 128, tma={**TMA, "element_type": "u8", "oob_fill": "nan_request_zero_fma"}),
            "DIRECT_PARAMETER",
        ),
        (
            parameter("tma_descriptor", 128, tma={key: TMA[key] for key in TMA if key != "swizzle"}),
            "DIRECT_MISSING_KEY",
        ),
    ],
)
def test_wrong_parameters_are_refused(value: Any, code: str) -> None:
    """Each kind has its keys, its size, and bindings of the right kind."""
    if "size" in value:
        assert refused(plan(launch([value], STREAM))).code == code


def test_one_dimensional_maps_have_no_stride() -> None:
    """Rank 1 needs an empty list of global strides."""
    flat = {**TMA, "global_dims": [DIM], "global_strides": [], "box_dims": [const(8)], "element_strides": [const(1)]}
    assert parse(plan(launch([parameter("tma_descriptor", 128, tma=flat)], STREAM)))


def test_geometry_is_evaluated_for_each_call() -> None:
    """Sizes follow the shapes of the call, and are checked against the hardware's limits."""
    blocks = dag(node("binding_scalar", binding=2), node("const", value=1024), node("ceil_div", 0, 1))
    parsed = parse(plan(launch([], STREAM, grid=xyz(blocks), block=xyz(DIM), cluster=xyz(4), shared_mem_bytes=DIM)))
    assert geometry(parsed.launches[0], FACTS, WHERE) == Geometry((16, 1, 1), (64, 1, 1), (4, 1, 1), 64)
    for changed in ({2: 0}, {2: 1024 * 17}, {0: TensorFacts((1025,), (1,))}, {0: TensorFacts((0,), (1,))}):
        with pytest.raises(IntakeError) as caught:
            geometry(parsed.launches[0], {**FACTS, **changed}, WHERE)
        assert caught.value.code == "DIRECT_EVALUATION"


def test_parameters_are_packed_byte_by_byte() -> None:
    """Pointers, scalars, structs and divisions come out as the device reads them."""
    parsed = parse(plan(launch(PARAMETERS, STREAM))).launches[0].parameters
    addresses = {0: 0x1000, 1: (1 << 64) - 1, 6: 0}
    packed = {}
    for index, item in enumerate(parsed):
        if item.kind not in ("tma_descriptor", "group_handle"):
            packed[index] = pack_parameter(item, FACTS, addresses, WHERE).hex()
    assert packed == {
        0: "0010000000000000",
        1: "f" * 16,
        2: "0" * 16,
        3: "0040000000000000",
        4: "0000003f",
        5: "01",
        6: "0010000000000000" + "0102000000000000" + "00ff000000000000",
        8: "400000000000008005000000",
        9: "070000002549922401020000",
    }
    assert all(len(text) == 2 * parsed[index].size for index, text in packed.items())


def test_what_cannot_be_packed_is_an_error() -> None:
    """Values out of range, missing addresses and parameters that need the driver are refused."""
    narrow = parse(plan(launch([parameter("scalar", 1, scalar_type="u8", expression=N)], STREAM)))
    cases = [(narrow.launches[0].parameters[0], {})]
    parsed = parse(plan(launch(PARAMETERS, STREAM))).launches[0].parameters
    cases += [(parsed[0], {}), (parsed[0], {0: -1}), (parsed[0], {0: 1 << 64}), (parsed[7], {}), (parsed[10], {4: 1})]
    for item, addresses in cases:
        with pytest.raises(IntakeError) as caught:
            pack_parameter(item, FACTS, addresses, WHERE)
        assert caught.value.code == "DIRECT_EVALUATION"


def test_tensor_maps_are_checked_as_the_driver_does() -> None:
    """Sizes resolve for a live call; ranges, alignment, nesting and the innermost box are checked."""
    shape = node("tensor_stride", binding=0, axis=0)
    live = {**TMA, "global_strides": [dag(shape, node("const", value=2), node("mul", 0, 1))]}
    tma = parse(plan(launch([parameter("tma_descriptor", 128, tma=live)], STREAM))).launches[0].parameters[0].tma
    assert tma is not None
    sizes = resolve_tensor_map(tma, FACTS, WHERE)
    assert (sizes.global_dims, sizes.global_strides, sizes.box_dims) == ((256, 64), (512,), (64, 8))
    for strides in ((128, 1), (257, 1), (0, 1), (1 << 40, 1)):
        with pytest.raises(IntakeError) as caught:
            resolve_tensor_map(tma, {0: TensorFacts((64, 256), strides, 0, 2)}, WHERE)
        assert caught.value.code == "DIRECT_EVALUATION"
    wide = parse(plan(launch([parameter("tma_descriptor", 128, tma={**live, "swizzle": "swizzle_64b"})], STREAM)))
    wide_map = wide.launches[0].parameters[0].tma
    assert wide_map is not None
    with pytest.raises(IntakeError, match="128 bytes"):
        resolve_tensor_map(wide_map, FACTS, WHERE)
