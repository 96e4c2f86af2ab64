"""`cacheon slots`: the listing follows the catalog, the call ABIs and what is really measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from config.arena import known_arenas, load_arena
from config.slot_resources import load_slot_resources
from config.target_catalog import load_catalog
from intake.capabilities import FIELDS
from intake.domain import METADATA_KEYS
from intake.templates import load_templates
from node.cli.actions.slots import COMMON_FIELDS, METADATA
from qualify.slots.base import live_descriptor
from qualify.slots.registry import PROFILES, SLOTS

if TYPE_CHECKING:
    from tests.node.cli.conftest import RunCli


def listed(cli: RunCli, *arguments: str) -> dict[str, dict[str, Any]]:
    """Return the rows by slot."""
    ran = cli("slots", *arguments, "--json")
    assert (ran.code, ran.document["schema"]) == (0, "cacheon.slots.v1")
    return {row["id"]: row for row in ran.document["data"]["slots"]}


def test_every_slot_is_described(cli: RunCli) -> None:
    """Calls, load-time halves, scalars and holders are those of catalog and call ABI."""
    rows = listed(cli)
    assert list(rows) == sorted(load_slot_resources())
    assert rows["norm.rmsnorm"]["call"] == "rmsnorm(x, weight, out, eps)"
    assert rows["moe.fused_experts"]["prepare"] == "prepare(w13, w2)"
    assert rows["attention.sdpa"]["scalars"] == ["sm_scale", "causal"]
    for name, row in rows.items():
        held = [target.id for target in load_catalog().targets.values() if name in target.members]
        assert sorted(holder["target"] for holder in row["targets"]) == sorted(held)
        assert {argument["name"] for argument in row["arguments"]} == set(load_templates()[name].arguments)
        assert row["dtypes"] == ["bfloat16", "float16", "float32"]


def test_what_is_served_is_what_an_arena_measures(cli: RunCli) -> None:
    """A slot is served when a built-in arena has a workload for a target of it that this build can execute."""
    workloads = {load.target for name in known_arenas() for load in load_arena(name).workloads}
    rows = listed(cli)
    assert {name for name, row in rows.items() if row["served"]} == workloads & set(rows)


def test_a_measured_slot_reports_what_its_live_calls_have() -> None:
    """A row that constrains a field which no call has would never be used, so the list has to be right."""
    for slot in SLOTS.values():
        fields = set(live_descriptor(slot, slot.catalog_shapes[0], "bfloat16", "cpu"))
        assert {*load_templates()[slot.id].reports, *COMMON_FIELDS} == fields
    assert {field for template in load_templates().values() for field in template.reports} <= FIELDS


def test_edges_controls_and_profiles_are_shown(cli: RunCli) -> None:
    """What a slot is asked beside general inputs, what it has to find out, and which models use it their own way."""
    rows = listed(cli)
    for name, row in rows.items():
        assert [edge["name"] for edge in row["edges"]] == [style.name for style in SLOTS[name].edges]
        assert [one["model"] for one in row["profiles"]] == [one.model for one in PROFILES.values() if one.id == name]
        assert {"no-op", "zeros", "remembered answer"} <= set(row["controls"])
    text = cli("slots", "moe.fused_experts").out
    assert "crowded: all tokens choose the same experts" in text
    assert "MiniMax-M3-NVFP4 (edges: crowded, large)" in text
    assert "next expert" in text


def test_the_vocabulary_is_the_one_that_intake_reads(cli: RunCli) -> None:
    """Metadata keys and capability fields are complete."""
    words = cli("slots", "--json").document["data"]["vocabulary"]
    assert set(METADATA) == set(words["metadata"]) == set(METADATA_KEYS)
    assert {*words["number_fields"], *words["text_fields"]} == FIELDS


def test_one_slot_can_be_asked_for(cli: RunCli) -> None:
    """Its block has the arguments by name; a misspelt id is answered with the nearest one."""
    assert list(listed(cli, "norm.rmsnorm")) == ["norm.rmsnorm"]
    text = cli("slots", "collective.ar_residual_rmsnorm").out
    assert "out_residual  (M, H), the dtype of x" in text
    assert "collective.moe_epilogue.v1 (atomic" in text
    assert "activation" not in text
    ran = cli("slots", "norm.rmsnrom", "--json")
    assert (ran.code, ran.document["error"]["code"]) == (7, "SLOT_NOT_LISTED")
    assert "norm.rmsnorm" in ran.document["error"]["hint"]
