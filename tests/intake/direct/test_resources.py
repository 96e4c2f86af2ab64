"""Artifact resources: names fix lifetimes, bounds prove sizes, shapes read the slot's call."""

from __future__ import annotations

from typing import Any

import pytest

from config.errors import IntakeError
from config.slot_resources import load_slot_resources
from intake.direct.resources import ArtifactResource, Factor, concrete_shape, parse_resource
from intake.direct.where import Where
from tests.intake.direct import rows

WHERE = Where(("r",))
G31 = (1 << 31) - 1


def parse(value: object, slot: str = rows.SILU) -> ArtifactResource:
    """Parse one resource of `slot`."""
    return parse_resource(value, WHERE, load_slot_resources()[slot])


def dynamic(source: str, projection: str, bound: int = 8, **keys: Any) -> dict[str, Any]:
    """Return a dynamic factor."""
    return {"source": source, "projection": projection, "upper_bound": bound, **keys}


def shaped(*factors: dict[str, Any], name: str = "workspace.x", **keys: Any) -> dict[str, Any]:
    """Return a one-dimensional resource with these factors."""
    return rows.resource(name, shape=[{"factors": list(factors), **keys}])


@pytest.mark.parametrize(
    "value",
    [
        rows.resource(),
        rows.resource("prepared.a.b.c"),
        rows.resource("state.x", scope="group_ipc"),
        rows.resource(dtype="f8e4m3fn", alignment=1),
        rows.resource(alignment=1 << 20),
        rows.resource(shape=[{"factors": [{"static": 2}] * 8, "divisor": 200}] * 16, dtype="u8"),
        shaped(dynamic("input.x", "shape", axis=15), {"static": 3}),
        shaped(dynamic("output.out", "numel"), dynamic("input.x", "rank")),
    ],
)
def test_a_resource_is_its_own_document(value: dict[str, Any]) -> None:
    """What is accepted comes out as written; defaults are left out."""
    assert parse(value).document() == value
    written_out = {**value, "scope": value.get("scope", "rank_local")}
    assert parse(written_out).document() == value


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (rows.resource(name="temp.x"), "DIRECT_VALUE"),
        (rows.resource(name="workspace"), "DIRECT_VALUE"),
        (rows.resource(name="workspace.X"), "DIRECT_VALUE"),
        (rows.resource(name="workspace.a.b.c.d"), "DIRECT_VALUE"),
        (rows.resource(name="workspace.x\n"), "DIRECT_VALUE"),
        (rows.resource(dtype="f4"), "DIRECT_VALUE"),
        (rows.resource(dtype="f64", alignment=4), "DIRECT_RESOURCE"),
        (rows.resource(alignment=12), "DIRECT_VALUE"),
        (rows.resource(alignment=1 << 21), "DIRECT_VALUE"),
        (rows.resource(alignment=True), "DIRECT_TYPE"),
        (rows.resource(lifetime="engine"), "DIRECT_RESOURCE"),
        (rows.resource(lifetime="forever"), "DIRECT_VALUE"),
        (rows.resource(scope="group_ipc"), "DIRECT_RESOURCE"),
        (rows.resource(scope="world"), "DIRECT_VALUE"),
        (rows.resource(shape=[]), "DIRECT_LIMIT"),
        (rows.resource(shape=[{"factors": []}]), "DIRECT_LIMIT"),
        (rows.resource(shape=[{"factors": [{"static": 1}] * 9}]), "DIRECT_LIMIT"),
        (rows.resource(shape=[{"factors": [{"static": 1}]}] * 17), "DIRECT_LIMIT"),
        (rows.resource(shape=[{"factors": [{"static": 0}]}]), "DIRECT_VALUE"),
        (rows.resource(shape=[{"factors": [{"static": 1, "axis": 0}]}]), "DIRECT_UNKNOWN_KEY"),
        (shaped({"static": 1}, divisor=0), "DIRECT_VALUE"),
        (shaped({"static": G31}, {"static": 2}), "DIRECT_LIMIT"),
        (shaped({"static": G31}, {"static": G31}, {"static": 4}, divisor=G31), "DIRECT_LIMIT"),
        (rows.resource(shape=[{"factors": [{"static": 1 << 20}]}] * 2), "DIRECT_LIMIT"),
        (
            shaped({"static": 1 << 30}, dtype="f64")
            | rows.resource(dtype="f64", shape=[{"factors": [{"static": 1 << 17}]}] * 2),
            "DIRECT_LIMIT",
        ),
        (shaped(dynamic("workspace.y", "numel")), "DIRECT_SOURCE"),
        (shaped(dynamic("input.x", "shape")), "DIRECT_RESOURCE"),
        (shaped(dynamic("input.x", "numel", axis=0)), "DIRECT_RESOURCE"),
        (shaped(dynamic("input.x", "value")), "DIRECT_RESOURCE"),
        (shaped(dynamic("input.x", "stride", axis=0)), "DIRECT_VALUE"),
        (shaped(dynamic("stream.current", "rank")), "DIRECT_RESOURCE"),
        (shaped(dynamic("input.x", "numel", 0)), "DIRECT_VALUE"),
        (shaped(dynamic("input.x", "numel", 1 << 31)), "DIRECT_VALUE"),
        ({**rows.resource(), "init": 0}, "DIRECT_UNKNOWN_KEY"),
        ("workspace.x", "DIRECT_TYPE"),
    ],
)
def test_wrong_resources_are_refused(value: Any, code: str) -> None:
    """Names, sizes, factors and lifetimes follow their rules."""
    with pytest.raises(IntakeError) as caught:
        parse(value)
    assert caught.value.code == code


def test_integer_scalars_and_the_group_give_sizes_and_floats_do_not() -> None:
    """A factor may be an integer argument or the size of the group."""
    assert parse(shaped(dynamic("input.block_size", "value")), "attention.msa_block_score")
    assert parse(shaped(dynamic("group.current", "size"), dynamic("group.size", "value")), rows.REDUCE)
    with pytest.raises(IntakeError) as caught:
        parse(shaped(dynamic("input.eps", "value")), rows.NORM)
    assert caught.value.code == "DIRECT_RESOURCE"


def test_prepared_shapes_know_only_what_preparing_sees() -> None:
    """With a load-time half the shape reads its arguments; without one, those of the call."""
    assert parse(shaped(dynamic("input.w13", "shape", axis=0), name="prepared.w"), rows.MOE)
    assert parse(shaped(dynamic("input.x", "shape", axis=0), name="prepared.w"), rows.SILU)
    with pytest.raises(IntakeError) as caught:
        parse(shaped(dynamic("input.x", "shape", axis=0), name="prepared.w"), rows.MOE)
    assert caught.value.code == "DIRECT_RESOURCE"


def test_names_are_unique_and_no_slot_resource() -> None:
    """A row cannot declare a name twice, nor one the slot has."""
    with pytest.raises(IntakeError, match="of the slot already"):
        parse(rows.resource("prepared.state"), rows.MOE)
    twice = [rows.resource(), rows.resource()]
    with pytest.raises(IntakeError, match="declared twice"):
        rows.parse(rows.op(rows.covering(rows.SILU, rows.pointer("workspace.tmp")), resources=twice))


def test_all_resources_together_are_bounded() -> None:
    """Three resources that are each within bounds can be too large together."""
    large = [rows.resource(f"workspace.x{i}", shape=[{"factors": [{"static": 1 << 17}]}] * 2) for i in range(3)]
    use = [rows.pointer(item["name"]) for item in large]
    assert rows.parse(rows.op(rows.covering(rows.SILU, *use[:2]), resources=large[:2]))
    with pytest.raises(IntakeError) as caught:
        rows.parse(rows.op(rows.covering(rows.SILU, *use), resources=large))
    assert caught.value.code == "DIRECT_LIMIT"


def test_a_live_shape_is_checked_against_its_bounds() -> None:
    """An extent is the rounded-up quotient; a factor above its bound and an empty extent are errors."""
    resource = parse(shaped(dynamic("input.x", "numel", 10), {"static": 3}, divisor=4))
    live: dict[str, int] = {}

    def read(factor: Factor) -> int:
        return live[factor.projection]

    live["numel"] = 9
    assert concrete_shape(resource, read, WHERE) == (7,)
    for wrong in (11, 0, -1):
        live["numel"] = wrong
        with pytest.raises(IntakeError) as caught:
            concrete_shape(resource, read, WHERE)
        assert caught.value.code == "DIRECT_EVALUATION"
