"""Direct rows as a whole: the recorded manifests, what a row may not be, and every error at once."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import tomli

from config.errors import IntakeError
from intake.direct.identity import direct_identity
from intake.direct.row import is_direct, parse_direct_row, read_direct_row
from intake.direct.where import line_finder, row_place
from intake.toml_lines import TomlLines
from tests.intake.direct import rows
from tests.intake.support import golden

VECTORS = [item for item in golden("manifest_vectors") if item["name"].startswith(("aot_", "resources_"))]
CODES = {
    "aot_unknown_provider": "DIRECT_PROVIDER",
    "aot_missing_factory": "DIRECT_MISSING_KEY",
    "aot_bad_profile": "DIRECT_PROVIDER",
    "aot_unknown_resource": "DIRECT_SOURCE",
    "aot_bad_name": "DIRECT_VALUE",
    "aot_param_width": "DIRECT_PLAN",
    "aot_with_prepare": "DIRECT_ROW",
    "aot_bad_role": "DIRECT_VALUE",
    "aot_dup_step": "DIRECT_LIFECYCLE",
    "resources_without_aot": "DIRECT_ROW",
    "aot_ordinal_gap": "DIRECT_PLAN",
}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_recorded_manifests(vector: dict[str, Any]) -> None:
    """Every recorded direct manifest is accepted or refused as recorded, with the code of its fault and a line."""
    document = tomli.loads(vector["manifest_text"])
    row = document["ops"][0]
    where = row_place(0, line_finder(TomlLines(vector["manifest_text"]), document))
    assert is_direct(row)
    if vector["accept"]:
        parsed = parse_direct_row(row, slot=row["slot"], variant="default", where=where)
        assert [item.name for item in parsed.exports] == vector["parsed"]["ops"][0]["aot_exports"]
        assert parsed.feature == "aot:cutlass.cute.cubin.v1"
        return
    with pytest.raises(IntakeError) as caught:
        parse_direct_row(row, slot=row["slot"], variant="default", where=where)
    assert caught.value.code == CODES[vector["name"]]
    assert str(caught.value).startswith("manifest.toml:")
    assert caught.value.location is not None
    assert caught.value.location.line > 1


def test_recorded_targets_do_not_depend_on_the_entry() -> None:
    """Two recorded bundles that differ in `entry` alone have one direct identity."""
    digests = set()
    for vector in golden("target_resolution_vectors"):
        if vector["name"] in ("direct", "direct_entry_renamed", "direct_without_builder"):
            files = {item["path"]: base64.b64decode(item["data_b64"]) for item in vector["entries"]}
            row = tomli.loads(files["manifest.toml"].decode())["ops"][0]
            digests.add(direct_identity(parse_direct_row(row, slot=row["slot"], variant="default")).digest)
    assert len(digests) == 1


def test_a_plain_row_is_not_direct() -> None:
    """Empty lists declare nothing; either list alone makes a row direct."""
    assert not is_direct({"aot_exports": [], "artifact_resources": []})
    assert not is_direct({"slot": "x"})
    assert is_direct({"artifact_resources": [1]})


@pytest.mark.parametrize("key", ["prepare", "setup", "base_kernel", "override_point"])
def test_a_direct_row_names_no_host_code(key: str) -> None:
    """Runtime callables and override points do not stand beside exports."""
    with pytest.raises(IntakeError) as caught:
        rows.parse(rows.op(rows.covering(rows.SILU), **{key: "p"}))
    assert caught.value.code == "DIRECT_ROW"
    assert caught.value.message.startswith(f"ops[0].{key}:")


def test_an_empty_list_of_sources_is_no_source() -> None:
    """`cuda_sources = []` is the default; a file in it is not."""
    assert rows.parse(rows.op(rows.covering(rows.SILU), cuda_sources=[]))
    with pytest.raises(IntakeError):
        rows.parse(rows.op(rows.covering(rows.SILU), cuda_sources=["k.cu"]))


def test_a_slot_without_a_call_abi_is_refused() -> None:
    """Direct artifacts need a slot whose call is known."""
    with pytest.raises(IntakeError) as caught:
        rows.parse(rows.op(rows.covering(rows.SILU)), slot="no.such\n")
    assert caught.value.code == "DIRECT_ROW"


@pytest.mark.parametrize("value", ["x", {"a": 1}, 3, None])
def test_exports_are_an_array(value: object) -> None:
    """Anything but an array of tables is refused by type."""
    with pytest.raises(IntakeError) as caught:
        rows.parse({"aot_exports": value})
    assert caught.value.code == "DIRECT_TYPE"


def test_names_are_unique_and_exports_are_bounded() -> None:
    """One row has at most 16 exports, each with a name of its own."""
    same = rows.op(rows.covering(rows.SILU), rows.covering(rows.SILU, step=1))
    with pytest.raises(IntakeError, match="stands twice"):
        rows.parse(same)
    many = [rows.covering(rows.SILU, name=f"e{index}", step=index) for index in range(17)]
    assert len(rows.parse(rows.op(*many[:16])).exports) == 16
    with pytest.raises(IntakeError) as caught:
        rows.parse(rows.op(*many))
    assert caught.value.code == "DIRECT_LIMIT"


def test_every_broken_part_is_reported() -> None:
    """One error per broken export and resource, and one for the row, in one pass."""
    row = rows.op(
        rows.covering(rows.SILU, factory="1"),
        rows.covering(rows.SILU, role="boot", name="b"),
        resources=[rows.resource(dtype="f128"), rows.resource("state.x", lifetime="call")],
        setup="s",
    )
    errors: list[IntakeError] = []
    parsed = read_direct_row(
        row, errors.append, slot=rows.SILU, variant="v", metadata_capabilities=None, where=row_place(3)
    )
    assert parsed is None
    assert [error.message.partition(":")[0] for error in errors] == [
        "ops[3].setup",
        "ops[3].artifact_resources[0].dtype",
        "ops[3].artifact_resources[1].lifetime",
        "ops[3].aot_exports[0].factory",
        "ops[3].aot_exports[1].role",
    ]


def test_a_row_comes_out_in_canonical_order() -> None:
    """Exports are ordered by plan, step and name, resources by name, whatever their order in the file."""
    resources = [rows.resource("workspace.b"), rows.resource("workspace.a")]
    use = [rows.pointer("workspace.a"), rows.pointer("workspace.b")]
    second = rows.covering(rows.SILU, *use, name="a", step=1)
    first = rows.covering(rows.SILU, name="z")
    parsed = rows.parse(rows.op(second, first, resources=resources))
    assert [item.name for item in parsed.exports] == ["z", "a"]
    assert [item.name for item in parsed.resources] == ["workspace.a", "workspace.b"]
    assert list(parsed.plans) == ["default"]
