"""The direct-execution identity: everything that executes is inside, nothing else is."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from config.canonical import canonical_json, read_json, sha256_hex
from intake.direct.device_plan import parse_device_plan
from intake.direct.identity import DIRECT_ENTRY, direct_identity
from intake.direct.where import Where
from tests.intake.direct import rows

CAPABILITIES: rows.Table = {"eps": 1e-6}


def full_row() -> rows.Table:
    """Return a row of `norm.rmsnorm` that uses most of the grammar."""
    elements = rows.dag(rows.node("tensor_numel", binding=0), rows.node("const", value=2), rows.node("mul", 0, 1))
    parameters = [
        rows.parameter("pointer", 8, binding=0),
        rows.parameter("scalar", 4, scalar_type="f32", expression=rows.dag(rows.node("binding_scalar", binding=1))),
        rows.parameter(
            "packed_struct", 16, fields=[{"offset": 0, "tensor_binding": 0}, {"offset": 8, "data_hex": "01"}]
        ),
        rows.parameter("cute_fast_divmod_i32_v1", 12, expression=elements),
    ]
    bindings = [
        rows.bind("input.x", "tensor", unsqueeze=[0], assumed_align=16, leading_dim=1),
        rows.bind("input.eps", "scalar", cast="f32"),
        rows.pointer("output.out"),
        rows.pointer("workspace.w"),
    ]
    plan = rows.plan(rows.launch(parameters, 4, grid=rows.xyz(2), block=rows.xyz(32), attributes={"cooperative": True}))
    first = rows.export(
        bindings,
        plan,
        profile_inputs=["max_active_clusters.cluster_size_1"],
        specializes={"input.eps": 1e-6},
        prelaunch=[{"op": "fill", "target": "output.out", "value": 0.5}],
    )
    second = rows.covering(rows.NORM, name="b", step=1, specializes={"input.eps": 1e-6})
    extent = {"factors": [{"source": "input.x", "projection": "shape", "axis": 0, "upper_bound": 64}], "divisor": 2}
    return rows.op(first, second, resources=[rows.resource("workspace.w", shape=[extent])])


def digest(row: rows.Table, capabilities: rows.Table | None = None) -> str:
    """Return the identity digest of a row."""
    return direct_identity(rows.parse(row, rows.NORM, capabilities or CAPABILITIES)).digest


def test_the_document_has_its_schema_and_inner_digest() -> None:
    """The canonical bytes hold the schema, the resource plan with its digest, and the exports."""
    identity = direct_identity(rows.parse(full_row(), rows.NORM, CAPABILITIES))
    document = json.loads(identity.canonical)
    assert sorted(document) == ["artifact_resource_plan", "artifact_resource_plan_sha256", "exports", "schema"]
    assert document["schema"] == "cacheon.direct-artifact-execution.v1"
    inner = {"plan": document["artifact_resource_plan"], "schema": "cacheon.artifact-resource-plan.v1"}
    assert document["artifact_resource_plan_sha256"] == sha256_hex(canonical_json(inner))
    assert document["artifact_resource_plan"]["slot"] == rows.NORM
    assert read_json(identity.canonical, require_canonical=True) == document
    assert DIRECT_ENTRY not in identity.canonical.decode()


def test_floats_are_exact() -> None:
    """Specialized and filled floats travel as tagged hexadecimal text."""
    document: Any = direct_identity(rows.parse(full_row(), rows.NORM, CAPABILITIES)).document
    first = document["exports"][0]
    assert first["specializes"] == {"input.eps": {"hex": (1e-6).hex(), "type": "float"}}
    assert first["prelaunch"][0]["value"] == {"hex": "0x1.0000000000000p-1", "type": "float"}


def test_an_export_has_exactly_the_recorded_keys() -> None:
    """Optional binding keys are left out when not given; projections, clusters and attributes are written out."""
    document: Any = direct_identity(rows.parse(full_row(), rows.NORM, CAPABILITIES)).document
    assert sorted(document["exports"][0]) == [
        "bindings",
        "device_plan",
        "factory",
        "name",
        "plan",
        "prelaunch",
        "profile_inputs",
        "provider",
        "provider_capability_requirements",
        "role",
        "specialization_capability_requirements",
        "specializes",
        "step",
    ]
    bindings = document["exports"][1]["bindings"]
    assert bindings[0] == {"kind": "pointer", "projection": "device_ptr", "source": "output.out"}
    launch = document["exports"][0]["device_plan"]["launches"][0]
    assert launch["cluster"] is None
    assert sorted(launch["attributes"]) == [
        "cluster_scheduling",
        "cooperative",
        "portable_cluster_mode",
        "priority",
        "programmatic_stream_serialization",
        "shared_memory_mode",
    ]


def change(row: rows.Table, path: tuple[Any, ...], value: Any) -> rows.Table:
    """Return a copy of a row with one value replaced."""
    changed = copy.deepcopy(row)
    place: Any = changed
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return changed


FIRST = ("aot_exports", 0)
LAUNCH = (*FIRST, "device_plan", "launches", 0)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((*FIRST, "factory"), "other"),
        ((*FIRST, "name"), "a"),
        ((*FIRST, "step"), 2),
        ((*FIRST, "profile_inputs"), []),
        ((*FIRST, "prelaunch", 0, "value"), 0.25),
        ((*FIRST, "prelaunch", 0, "value"), 1),
        ((*FIRST, "prelaunch"), []),
        ((*FIRST, "bindings", 0, "unsqueeze"), [1]),
        ((*FIRST, "bindings", 0, "assumed_align"), 32),
        ((*FIRST, "bindings", 0, "leading_dim"), 0),
        ((*FIRST, "bindings", 1, "cast"), "f64"),
        ((*FIRST, "bindings", 3, "source"), "input.weight"),
        ((*LAUNCH, "grid"), rows.xyz(3)),
        ((*LAUNCH, "block"), rows.xyz(64)),
        ((*LAUNCH, "cluster"), rows.xyz(1)),
        ((*LAUNCH, "shared_mem_bytes"), rows.const(16)),
        ((*LAUNCH, "attributes"), {}),
        ((*LAUNCH, "parameters", 2, "fields", 1, "data_hex"), "02"),
        ((*LAUNCH, "parameters", 2, "fields", 1, "offset"), 9),
        ((*LAUNCH, "parameters", 3, "expression", "result"), 1),
        ((*LAUNCH, "parameters", 3, "kind"), "cutlass_fast_divmod_i32_v1"),
        ((*FIRST, "device_plan", "kernels", 0, "name"), "k"),
        (("artifact_resources", 0, "dtype"), "u32"),
        (("artifact_resources", 0, "alignment"), 32),
        (("artifact_resources", 0, "shape", 0, "divisor"), 3),
        (("artifact_resources", 0, "shape", 0, "factors", 0, "upper_bound"), 65),
    ],
)
def test_every_change_of_what_executes_changes_the_identity(path: tuple[Any, ...], value: Any) -> None:
    """Whatever the validator would do differently is a different row."""
    row = full_row()
    changed = change(row, path, value)
    if path[-1] == "name" and "kernels" in path:
        changed = change(changed, (*LAUNCH, "kernel"), value)
    if path[-1] == "source":
        changed["aot_exports"][1]["bindings"].append(rows.pointer("workspace.w"))
    if path[-1] == "step":
        changed["aot_exports"][1]["step"] = 3
    assert digest(changed) != digest(row)


def test_what_does_not_execute_does_not_count() -> None:
    """Entry, order in the file, and defaults that are written out leave the identity alone."""
    row = full_row()
    same = change(row, ("entry",), "renamed")
    same["aot_exports"].reverse()
    for export in same["aot_exports"]:
        export.setdefault("role", "run")
        export.setdefault("plan", "default")
        export["device_plan"]["launches"][0]["attributes"].setdefault("cluster_scheduling", "default")
        export["bindings"] = [dict(reversed(binding.items())) for binding in export["bindings"]]
    same["aot_exports"][1]["bindings"][0]["projection"] = "descriptor"
    same["artifact_resources"][0]["scope"] = "rank_local"
    assert digest(same) == digest(row)


def test_the_value_of_a_predicate_counts() -> None:
    """Another exact value is another row, and so is none."""
    row = full_row()
    other, none = copy.deepcopy(row), copy.deepcopy(row)
    for export in other["aot_exports"]:
        export["specializes"] = {"input.eps": 1e-5}
    for export in none["aot_exports"]:
        del export["specializes"]
    assert len({digest(row), digest(other, {"eps": 1e-5}), digest(none)}) == 3


def test_a_plan_in_the_identity_reads_back() -> None:
    """The device plan of the document parses to the plan it came from, for a sealed index to be checked against."""
    parsed = rows.parse(full_row(), rows.NORM, CAPABILITIES)
    for export in parsed.exports:
        document = json.loads(canonical_json(export.device_plan.document()))
        assert parse_device_plan(document, Where(("p",)), export.bindings) == export.device_plan
