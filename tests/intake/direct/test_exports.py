"""Exports and their plans: fields, life cycles, coverage, fills, specialization and requirements."""

from __future__ import annotations

from typing import Any

import pytest

from config.errors import IntakeError
from config.slot_resources import load_slot_resources
from intake.direct.provider import registry_digest
from intake.direct.specialization import select_plan, split_capabilities
from tests.intake.direct import rows
from tests.intake.support import golden

SDPA = "attention.sdpa"


def refused(row: rows.Table, slot: str = rows.SILU, capabilities: rows.Table | None = None) -> IntakeError:
    """Return the error of a row."""
    with pytest.raises(IntakeError) as caught:
        rows.parse(row, slot, capabilities)
    return caught.value


def test_the_provider_registry_is_the_recorded_one() -> None:
    """The closed table has the digest that the recorded target catalog binds."""
    snapshot = golden("target_catalog_snapshot")["snapshot"]
    assert registry_digest() == snapshot["artifact_provider_registry_digest"]


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        ({"provider": "acme.v1"}, "DIRECT_PROVIDER"),
        ({"provider": 1}, "DIRECT_TYPE"),
        ({"name": ""}, "DIRECT_VALUE"),
        ({"name": "a" * 65}, "DIRECT_VALUE"),
        ({"name": "a\n"}, "DIRECT_VALUE"),
        ({"factory": "class"}, "DIRECT_VALUE"),
        ({"factory": "é"}, "DIRECT_VALUE"),
        ({"factory": "f" * 129}, "DIRECT_VALUE"),
        ({"factory": "a.b"}, "DIRECT_VALUE"),
        ({"profile_inputs": ["sm_count"]}, "DIRECT_PROVIDER"),
        ({"profile_inputs": ["max_active_clusters.cluster_size_2"] * 2}, "DIRECT_VALUE"),
        ({"profile_inputs": [[]]}, "DIRECT_PROVIDER"),
        ({"role": "main"}, "DIRECT_VALUE"),
        ({"plan": "Big"}, "DIRECT_VALUE"),
        ({"step": 256}, "DIRECT_VALUE"),
        ({"step": True}, "DIRECT_TYPE"),
        ({"bindings": []}, "DIRECT_LIMIT"),
        ({"bindings": [rows.bind("stream.current", "stream")] * 65}, "DIRECT_LIMIT"),
        ({"device_plan": None}, "DIRECT_MISSING_KEY"),
        ({"launch": 1}, "DIRECT_UNKNOWN_KEY"),
        ({"prelaunch": [{"op": "fill", "target": "output.out", "value": 0}] * 17}, "DIRECT_LIMIT"),
        ({"specializes": []}, "DIRECT_TYPE"),
        ({"specializes": {"input.x": 1}}, "DIRECT_SPECIALIZATION"),
    ],
)
def test_wrong_fields_are_refused(keys: rows.Table, code: str) -> None:
    """Each field of an export has its alphabet, range or vocabulary."""
    assert refused(rows.op({**rows.covering(rows.SILU), **keys})).code == code


def test_profile_inputs_are_sorted() -> None:
    """Their order in the file means nothing."""
    names = [f"max_active_clusters.cluster_size_{size}" for size in (8, 16, 1)]
    parsed = rows.parse(rows.op(rows.covering(rows.SILU, profile_inputs=names)))
    assert parsed.exports[0].profile_inputs == tuple(sorted(names))


def step(role: str, number: int, *bindings: rows.Table, **keys: Any) -> rows.Table:
    """Return a step that binds only storage."""
    return rows.export(list(bindings), role=role, step=number, name=f"s{number}-{keys.get('plan', 'p')}", **keys)


STATE, WORK, WEIGHTS = rows.resource("state.s"), rows.resource("workspace.w"), rows.resource("prepared.w")


def test_a_full_life_cycle() -> None:
    """All five roles in order, with storage of all lifetimes, on a slot with a load-time half."""
    row = rows.op(
        step("init", 0, rows.pointer("state.s")),
        step("prepare", 1, rows.pointer("input.w13"), rows.pointer("prepared.w"), rows.pointer("workspace.w")),
        step("reset", 2, rows.pointer("state.s")),
        rows.covering(rows.MOE, rows.pointer("prepared.w"), rows.pointer("state.s"), step=3),
        step("destroy", 4, rows.pointer("state.s")),
        resources=[STATE, WORK, WEIGHTS],
    )
    parsed = rows.parse(row, rows.MOE)
    assert [item.role for item in parsed.plans["default"]] == ["init", "prepare", "reset", "run", "destroy"]


@pytest.mark.parametrize(
    ("exports", "resources", "code"),
    [
        ([step("init", 0)], [], "DIRECT_LIFECYCLE"),
        ([rows.covering(rows.SILU), step("init", 1)], [], "DIRECT_LIFECYCLE"),
        ([rows.covering(rows.SILU), step("reset", 0)], [], "DIRECT_LIFECYCLE"),
        ([step("init", 0, rows.pointer("input.x")), rows.covering(rows.SILU, step=1)], [], "DIRECT_SOURCE"),
        ([step("reset", 0, rows.pointer("output.out")), rows.covering(rows.SILU, step=1)], [], "DIRECT_SOURCE"),
        ([step("init", 0, rows.pointer("workspace.w")), rows.covering(rows.SILU, step=1)], [WORK], "DIRECT_SOURCE"),
        ([rows.covering(rows.SILU), step("destroy", 1, rows.pointer("workspace.w"))], [WORK], "DIRECT_SOURCE"),
        ([step("init", 0, rows.pointer("prepared.w")), rows.covering(rows.SILU, step=1)], [WEIGHTS], "DIRECT_SOURCE"),
        ([step("reset", 0, rows.pointer("prepared.w")), rows.covering(rows.SILU, step=1)], [WEIGHTS], "DIRECT_SOURCE"),
        ([rows.covering(rows.SILU)], [WORK], "DIRECT_LIFECYCLE"),
        ([rows.covering(rows.SILU, rows.pointer("prepared.w"))], [WEIGHTS], "DIRECT_LIFECYCLE"),
        (
            [step("prepare", 0, rows.pointer("prepared.w")), rows.covering(rows.SILU, step=1)],
            [WEIGHTS],
            "DIRECT_LIFECYCLE",
        ),
        (
            [
                rows.covering(rows.SILU, rows.pointer("state.s")),
                step("prepare", 0, rows.pointer("prepared.w"), plan="default"),
            ],
            [STATE, WEIGHTS],
            "DIRECT_LIFECYCLE",
        ),
        (
            [
                rows.covering(rows.SILU, rows.pointer("state.s"), rows.pointer("state.t")),
                step("destroy", 1, rows.pointer("state.s"), rows.pointer("state.t")),
            ],
            [STATE, rows.resource("state.t", scope="group_ipc")],
            "DIRECT_LIFECYCLE",
        ),
        ([rows.export([rows.pointer("input.x")])], [], "DIRECT_COVERAGE"),
        ([rows.export([rows.bind("output.out", "scalar", projection="numel", cast="i32")])], [], "DIRECT_COVERAGE"),
    ],
)
def test_plans_that_form_no_life_cycle_are_refused(
    exports: list[rows.Table], resources: list[rows.Table], code: str
) -> None:
    """Order, reach, use and coverage are checked plan by plan."""
    assert refused(rows.op(*exports, resources=resources)).code == code


def test_a_prepared_resource_is_bound_and_not_only_filled_while_running() -> None:
    """Filling what was prepared would discard it."""
    fill = {"op": "fill", "target": "prepared.w", "value": 0}
    prepare = step("prepare", 0, rows.pointer("prepared.w"))
    run = rows.covering(rows.SILU, step=1, prelaunch=[fill])
    assert refused(rows.op(prepare, run, resources=[WEIGHTS])).code == "DIRECT_LIFECYCLE"
    bound = rows.covering(rows.SILU, rows.pointer("prepared.w"), step=1)
    assert rows.parse(rows.op(prepare, bound, resources=[WEIGHTS]))


def test_each_plan_stands_for_itself() -> None:
    """Coverage and use are asked of every plan, not of the row."""
    special = {"specializes": {"input.eps": 1e-6}, "plan": "fast", "name": "fast"}
    capabilities = {"eps": 1e-6}
    writes_nothing = rows.op(rows.covering(rows.NORM), rows.export([rows.pointer("input.x")], **special))
    assert refused(writes_nothing, rows.NORM, capabilities).code == "DIRECT_COVERAGE"
    unused = rows.op(
        rows.covering(rows.NORM, rows.pointer("workspace.w")), rows.covering(rows.NORM, **special), resources=[WORK]
    )
    assert refused(unused, rows.NORM, capabilities).code == "DIRECT_LIFECYCLE"


def test_a_fill_covers_an_output() -> None:
    """An output that is filled before a run step counts as written."""
    fill = {"op": "fill", "target": "output.out", "value": "nan"}
    assert rows.parse(rows.op(rows.export([rows.pointer("input.x")], prelaunch=[fill])))


@pytest.mark.parametrize("value", [True, 0, (1 << 64) - 1, -(1 << 63), 0.5, -0.0, "-inf", "+inf", "nan"])
def test_fill_values(value: object) -> None:
    """Exact scalars and three words can be filled in; floats enter the identity exactly."""
    row = rows.op(rows.covering(rows.SILU, prelaunch=[{"op": "fill", "target": "output.out", "value": value}]))
    document = rows.parse(row).exports[0].prelaunch[0].document()
    expected = {"hex": value.hex(), "type": "float"} if isinstance(value, float) else value
    assert document == {"op": "fill", "target": "output.out", "value": expected}


@pytest.mark.parametrize(
    ("fill", "code"),
    [
        ({"op": "copy", "target": "output.out", "value": 0}, "DIRECT_VALUE"),
        ({"op": "fill", "target": "input.x", "value": 0}, "DIRECT_PRELAUNCH"),
        ({"op": "fill", "target": "stream.current", "value": 0}, "DIRECT_PRELAUNCH"),
        ({"op": "fill", "target": "output.zz", "value": 0}, "DIRECT_SOURCE"),
        ({"op": "fill", "target": "output.out", "value": float("nan")}, "DIRECT_PRELAUNCH"),
        ({"op": "fill", "target": "output.out", "value": float("-inf")}, "DIRECT_PRELAUNCH"),
        ({"op": "fill", "target": "output.out", "value": "inf"}, "DIRECT_PRELAUNCH"),
        ({"op": "fill", "target": "output.out", "value": 1 << 64}, "DIRECT_VALUE"),
        ({"op": "fill", "target": "output.out", "value": []}, "DIRECT_PRELAUNCH"),
        ({"op": "fill", "target": "output.out"}, "DIRECT_MISSING_KEY"),
    ],
)
def test_wrong_fills_are_refused(fill: rows.Table, code: str) -> None:
    """Targets are tensors the step may write; values are exact."""
    assert refused(rows.op(rows.covering(rows.SILU, prelaunch=[fill]))).code == code


SCALARS = [
    (rows.NORM, "input.eps", "eps", 1e-6),
    (rows.DECODE, "input.sm_scale", "sm_scale", 0.125),
    (SDPA, "input.causal", "causal", True),
    (rows.REDUCE, "group.rank", "rank", 0),
    (rows.REDUCE, "group.size", "world_size", 8),
    ("attention.msa_block_score", "input.block_size", "block_size", 128),
]


def test_every_offered_scalar_is_tested() -> None:
    """The list below names each scalar that some call ABI offers."""
    assert {field for _, _, field, _ in SCALARS} == set(load_slot_resources().capability_scalars)


@pytest.mark.parametrize(("slot", "source", "field", "value"), SCALARS)
def test_every_offered_scalar_can_be_specialized_on(slot: str, source: str, field: str, value: Any) -> None:
    """What the ABI offers can be declared and proved, in each exact form; nothing weaker proves it."""
    row = rows.op(rows.covering(slot, specializes={source: value}))
    for proof in (value, [value], {"exact": value}, {"one_of": [value]}):
        parsed = rows.parse(row, slot, {field: proof})
        requirement = parsed.exports[0].specialization_capability_requirements[0]
        assert (requirement.capability_field, requirement.source) == (field, source)
    other: Any = not value if isinstance(value, bool) else value + 1
    confusable: Any = int(value) if isinstance(value, bool | float) else float(value)
    wrong = [None, other, [value, other], [], {"one_of": [value, other]}, {"min": value, "max": value}, str(value)]
    wrong += [{"exact": value, "one_of": [value]}, {"exact": [value]}, confusable, {"exact": confusable}]
    for proof in wrong:
        assert refused(row, slot, {field: proof}).code == "DIRECT_SPECIALIZATION"
    assert refused(row, slot).code == "DIRECT_SPECIALIZATION"


@pytest.mark.parametrize(
    ("slot", "specializes", "code"),
    [
        (rows.NORM, {"input.eps": 1}, "DIRECT_TYPE"),
        (rows.NORM, {"input.eps": float("inf")}, "DIRECT_VALUE"),
        (SDPA, {"input.causal": 1}, "DIRECT_TYPE"),
        (rows.REDUCE, {"group.rank": True}, "DIRECT_TYPE"),
        (rows.REDUCE, {"group.rank": 1 << 31}, "DIRECT_VALUE"),
        (rows.REDUCE, {"group.current": 1}, "DIRECT_SPECIALIZATION"),
        ("attention.msa_prefill_block_score", {"input.prefix_len": 1}, "DIRECT_SPECIALIZATION"),
        (rows.NORM, {"input": {"eps": 1e-6}}, "DIRECT_SPECIALIZATION"),
    ],
)
def test_predicates_have_the_exact_type_of_their_scalar(slot: str, specializes: rows.Table, code: str) -> None:
    """No value stands for one of another type; what the ABI does not offer cannot be named."""
    assert refused(rows.op(rows.covering(slot, specializes=specializes)), slot).code == code


def variants(*predicates: rows.Table) -> rows.Table:
    """Return a row of `attention.sdpa` with one plan for each set of predicates."""
    return rows.op(
        *(rows.covering(SDPA, plan=f"p{i}", name=f"p{i}", specializes=item) for i, item in enumerate(predicates))
    )


CAUSAL, SCALE = {"input.causal": True}, {"input.sm_scale": 0.5}
PROVED = {"causal": True, "sm_scale": 0.5}


def test_plans_refine_one_another() -> None:
    """A chain of refinements is a fallback chain: the most specific plan that fits is chosen."""
    parsed = rows.parse(variants({}, CAUSAL, {**CAUSAL, **SCALE}), SDPA, PROVED)
    plans = {name: steps[0].specializes for name, steps in parsed.plans.items()}
    assert select_plan(plans, {"input.causal": True, "input.sm_scale": 0.5}) == "p2"
    assert select_plan(plans, {"input.causal": True, "input.sm_scale": 0.25}) == "p1"
    assert select_plan(plans, {"input.causal": False, "input.sm_scale": 0.5}) == "p0"
    assert select_plan({"p1": CAUSAL}, {"input.causal": 1}) is None


@pytest.mark.parametrize("predicates", [({}, {}), (CAUSAL, CAUSAL), (CAUSAL, SCALE)])
def test_plans_that_one_call_could_both_meet_are_refused(predicates: tuple[rows.Table, ...]) -> None:
    """Equal predicate sets and crossing ones are ambiguous."""
    error = refused(variants(*predicates), SDPA, PROVED)
    assert error.code == "DIRECT_SPECIALIZATION"
    assert "neither refines the other" in error.message


def test_the_steps_of_a_plan_share_their_predicates() -> None:
    """One plan is chosen as a whole."""
    row = rows.op(rows.covering(rows.NORM, specializes={"input.eps": 1e-6}), rows.covering(rows.NORM, name="b", step=1))
    assert refused(row, rows.NORM, {"eps": 1e-6}).code == "DIRECT_SPECIALIZATION"


def test_scalars_are_split_from_the_routing_vocabulary() -> None:
    """Fields that routing knows stay there; only the others are the direct row's own."""
    given = {"block_size": 128, "eps": 1e-6, "dtype": "bfloat16", "typo": 1}
    scalars = load_slot_resources().capability_scalars
    routing, own = split_capabilities(given, frozenset({"block_size", "dtype"}), scalars)
    assert routing == {"block_size": 128, "dtype": "bfloat16", "typo": 1}
    assert own == {"eps": 1e-6}


HANDLE = rows.bind("group.current", "pointer", projection="native_handle")


def test_requirements_are_derived() -> None:
    """Group projections of bindings and of handle parameters are listed, sorted, once."""
    group = rows.bind("group.current", "group")
    parameters = [rows.parameter("group_handle", 8, binding=1, group_projection="peer_ptr_table")] * 2
    outputs = [rows.pointer("output.out")]
    row = rows.op(rows.export([HANDLE, group, *outputs], rows.plan(rows.launch(parameters, 3))))
    document = rows.parse(row, rows.REDUCE).exports[0].document()
    expected = [
        {"capability": "group.native_handle.v1", "projection": "native_handle", "source": "group.current"},
        {"capability": "group.peer_ptr_table.v1", "projection": "peer_ptr_table", "source": "group.current"},
    ]
    assert document["provider_capability_requirements"] == expected
    written = {**row["aot_exports"][0], "provider_capability_requirements": expected}
    assert rows.parse(rows.op(written), rows.REDUCE)
    for wrong in ([], expected[:1], expected[::-1], [*expected, expected[0]], [{**expected[0], "more": 1}], "x"):
        assert refused(rows.op({**written, "provider_capability_requirements": wrong}), rows.REDUCE)


def test_a_written_specialization_list_equals_the_derived_one() -> None:
    """The second list follows the same rule."""
    need = [{"capability_field": "eps", "source": "input.eps"}]
    keys: rows.Table = {"specializes": {"input.eps": 1e-6}}
    written = rows.covering(rows.NORM, specialization_capability_requirements=need, **keys)
    assert rows.parse(rows.op(written), rows.NORM, {"eps": 1e-6})
    empty = rows.covering(rows.NORM, specialization_capability_requirements=[], **keys)
    assert refused(rows.op(empty), rows.NORM, {"eps": 1e-6}).code == "DIRECT_REQUIREMENT"
