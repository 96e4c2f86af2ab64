"""`config/target_catalog.py`, `config/catalog_rules.py`, `config/contracts.py`: reward units as data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from config.canonical import domain_digest
from config.contracts import Contract, Correctness, Tolerance, atomic_contract_digest
from config.errors import ConfigurationError
from config.target_catalog import CompositionRule, Target, load_catalog, parse_catalog
from config.target_reference import render

ROOT = Path(__file__).parent.parent.parent
SNAPSHOT: dict[str, Any] = json.loads((ROOT / "tests/golden/target_catalog_snapshot.json").read_text("utf-8"))
RECORDED: list[dict[str, Any]] = SNAPSHOT["snapshot"]["targets"]
# Recorded everywhere, allowed here only where a call has a load-time half or an override point.
EXTRAS = {"prepare", "override"}
HAS = {"moe.fused_experts": {"prepare", "override"}, "moe.fused_experts_reduce": {"prepare"}}

HEAD = 'policy_version = "v"\n[feature_sets]\ns = ["entry"]\np = ["entry", "prepare"]\no = ["entry", "override"]\n'
CALL = '[targets.contract]\ncall = "op"\nentry = "f"\ngraph_dynamic_inputs = ["x"]\ncorrectness = {mode = "allclose"}\n'


def slot(name: str, more: str = "", family: str = "", digest: str = "", kind: str = "slot", members: str = "") -> str:
    """Return one slot target table with its contract."""
    contract = Contract(name, "op", "f", ("x",), Correctness("allclose"), (), family)
    return (
        f'[[targets]]\nid = "{name}"\nkind = "{kind}"\nmembers = [{members or chr(34) + name + chr(34)}]\n'
        f'features = "s"\nbinding_family = "{family}"\ncontract_digest = "{digest or contract.digest}"\n{more}\n{CALL}'
    )


def atomic(name: str, *members: str, displaces: str | None = None) -> str:
    """Return one atomic target table over slots written by `slot`."""
    parts = [Contract(member, "op", "f", ("x",), Correctness("allclose"), (), "").digest for member in sorted(members)]
    listed = ", ".join(f'"{member}"' for member in members)
    return (
        f'[[targets]]\nid = "{name}"\nkind = "atomic"\nmembers = [{listed}]\nfeatures = "s"\nsemantics = "both"\n'
        f"displaces = [{listed if displaces is None else displaces}]\n"
        f'contract_digest = "{atomic_contract_digest(name, "both", parts)}"\n'
    )


def rule(*targets: str, family: str = "fam", name: str = "r") -> str:
    """Return one composition rule whose precedence is the given order."""
    made = CompositionRule(name, targets, targets, "first_applicable", family, "")
    listed = ", ".join(f'"{target}"' for target in targets)
    return (
        f'[[composition_rules]]\nid = "{name}"\ntargets = [{listed}]\nprecedence = [{listed}]\n'
        f'mode = "first_applicable"\nbinding_family = "{family}"\ncontract_digest = "{made.digest()}"\n'
    )


def pair(family: str = "fam") -> str:
    """Return two compatible slots of one binding family, without their rule."""
    return slot("a", 'compatible_with = ["b"]', family) + slot("b", 'compatible_with = ["a"]', family)


def refusal(body: str) -> ConfigurationError:
    """Return the refusal of a catalog with this body."""
    with pytest.raises(ConfigurationError) as caught:
        parse_catalog((HEAD + body).encode(), "x")
    assert caught.value.code == "CATALOG_INVALID"
    return caught.value


def test_lookup_by_id_and_by_members() -> None:
    """A target is found by its id and by its exact member set, and by nothing else."""
    catalog = load_catalog()
    target = catalog.find("norm.rmsnorm")
    assert target is not None
    assert catalog.for_members(["norm.rmsnorm"]) is target
    assert catalog.for_members(["norm.rmsnorm", "activation.silu_and_mul"]) is None
    assert catalog.find("norm") is None
    assert "entry" in target.allowed_features
    assert "setup" not in target.allowed_features


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: row["target_id"])
def test_every_recorded_target_is_registered(row: dict[str, Any]) -> None:
    """Kind, members, relations and contract are the recorded ones; features differ only where a call lacks a half."""
    target = load_catalog().targets[row["target_id"]]
    document = target.document()
    for key in ("kind", "members", "displaces", "compatible_with", "requires", "contract_digest"):
        assert document[key] == row[key]
    for key in ("contract_ref", "atomic_semantics_id", "member_contract_digests"):
        assert document.get(key) == row.get(key)
    expected = set(row["allowed_features"]) - EXTRAS | HAS.get(target.id, set())
    assert list(target.allowed_features) == sorted(expected)


def test_the_catalog_holds_nothing_else() -> None:
    """Twelve targets, and the one recorded composition rule with its digest."""
    catalog = load_catalog()
    assert sorted(catalog.targets) == sorted(row["target_id"] for row in RECORDED)
    (recorded,) = SNAPSHOT["snapshot"]["composition_rules"]
    (made,) = catalog.rules
    assert made.digest() == made.contract_digest == recorded["binding_contract_digest"]
    assert list(made.precedence) == recorded["precedence"]


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: row["target_id"])
def test_specification_digests_follow_the_recorded_algorithm(row: dict[str, Any]) -> None:
    """With the recorded features a target has the recorded specification digest, so only features make ours differ."""
    target = load_catalog().targets[row["target_id"]]
    recorded = msgspec.structs.replace(target, allowed_features=tuple(row["allowed_features"]))
    assert recorded.digest == SNAPSHOT["target_spec_digests"][target.id]
    assert (target.digest == recorded.digest) == (target.allowed_features == recorded.allowed_features)


def test_the_catalog_digest_is_taken_in_the_recorded_domain() -> None:
    """The recorded snapshot has the recorded digest; ours differs because its document does."""
    assert domain_digest("cacheon.target-catalog", SNAPSHOT["snapshot"]) == SNAPSHOT["catalog_digest"]
    assert load_catalog().digest != SNAPSHOT["catalog_digest"]


def test_providers_are_the_recorded_ones() -> None:
    """Profile inputs and capabilities of the direct-artifact provider are those of the recorded registry."""
    (recorded,) = SNAPSHOT["snapshot"]["artifact_provider_registry"]["providers"]
    provider = load_catalog().provider(recorded["provider_id"])
    assert provider is not None
    assert list(provider.profile_inputs) == recorded["compile_profile_inputs"]
    assert list(provider.capabilities) == recorded["provider_capabilities"]
    assert list(provider.features) == recorded["required_target_features"]
    assert load_catalog().provider("cutlass.cute.cubin.v2") is None


def test_override_points_are_data() -> None:
    """The one point stands on its slot with its base kernel, and no other slot has one."""
    catalog = load_catalog()
    assert [(it.point, it.base_kernel) for it in catalog.points_of("moe.fused_experts")] == [
        ("gemm1_epilogue", "nvfp4_moe_megakernel")
    ]
    assert catalog.points_of("norm.rmsnorm") == ()


def test_the_page_is_made_from_the_catalog() -> None:
    """docs/targets.md is what `python -m config.target_reference` writes now."""
    assert (ROOT / "docs/targets.md").read_text("utf-8") == render(load_catalog())


def test_an_atomic_target_displaces_its_members() -> None:
    """An atomic set is accepted when each member is a slot target that it displaces."""
    text = HEAD + slot("a") + slot("b") + atomic("ab", "a", "b")
    made = parse_catalog(text.encode(), "x").for_members(["b", "a"])
    assert made is not None
    assert made.id == "ab"


def test_compatible_targets_have_one_rule() -> None:
    """A compatible pair of one family loads with its rule."""
    assert parse_catalog((HEAD + pair() + rule("a", "b")).encode(), "x").rules[0].precedence == ("a", "b")


@pytest.mark.parametrize(
    "body",
    [
        slot("a") + slot("a"),
        slot("a", members='"b"') + slot("b"),
        slot("a", kind="system"),
        slot("a", digest="0" * 64),
        slot("a").replace(CALL, ""),
        slot("a").replace("allclose", "close"),
        slot("a").replace('call = "op"', 'call = "kernel"'),
        slot("a").replace('["x"]', '["1x"]'),
        slot("a").replace('{mode = "allclose"}', '{mode = "matched_ratio", min_ratio = "0.90"}'),
        slot("a").replace('{mode = "allclose"}', '{mode = "topk_overlap"}'),
        slot("a") + atomic("ab", "a", "b"),
        slot("a") + slot("b") + atomic("ab", "a", "b", displaces='"a"'),
        slot("a") + slot("b") + atomic("ab", "a", "b").replace('semantics = "both"', 'semantics = "other"'),
        slot("a") + slot("b") + slot("c") + atomic("ab", "a", "b") + atomic("bc", "b", "c"),
        slot("a", 'compatible_with = ["b"]') + slot("b"),
        slot("a", 'displaces = ["a"]'),
        slot("a", 'requires = ["zz"]'),
        slot("a", 'requires = ["b"]') + slot("b", 'requires = ["a"]'),
        slot("a", 'requires = ["b"]\ndisplaces = ["b"]') + slot("b"),
        slot("a", 'requires = ["b", "c"]') + slot("b", 'displaces = ["c"]') + slot("c"),
        slot("a", 'displaces = ["b"]') + slot("b", 'displaces = ["a"]'),
        pair(),
        pair() + rule("a", "b") + rule("b", "a", name="r2"),
        pair() + rule("a", "b", family="other"),
        pair() + rule("a", "b").replace("first_applicable", "all"),
        pair() + rule("a", "b").replace('precedence = ["a", "b"]', 'precedence = ["a"]'),
        slot("a", family="fam") + slot("b", family="fam"),
        slot("a") + slot("b") + rule("a", "b", family=""),
        slot("a", "surprise = 1"),
        slot("a").replace('features = "s"', 'features = "t"'),
        slot("a").replace('features = "s"', 'features = "p"'),
        slot("a").replace('features = "s"', 'features = "o"'),
        slot("a") + '[[override_points]]\nslot = "a"\npoint = "p"\nbase_kernel = "k"\n',
        slot("a") + '[[override_points]]\nslot = "b"\npoint = "p"\nbase_kernel = "k"\n',
        slot("a") + '[[dependencies]]\nid = "d"\npackage = "d"\nsubtree = "d/x"\ndestinations = ["d/y/*"]\n',
        slot("a") + '[[artifact_providers]]\nid = "p"\nbuilder = "b"\nprofile_inputs = []\ncapabilities = []\n',
        slot("a") + '[[builders]]\nid = "i"\nname = "n"\n' * 2,
        "[[targets",
        'x = "\udc80"',
    ],
)
def test_catalogs_that_break_a_rule_are_refused(body: str) -> None:
    """Each broken rule is CATALOG_INVALID."""
    with pytest.raises(ConfigurationError) as caught:
        parse_catalog((HEAD + body).encode("utf-8", "surrogateescape"), "x")
    assert caught.value.code == "CATALOG_INVALID"


@pytest.mark.parametrize("feature", ["setup", "op_extra:x", "rebuild:nothing", "dep_patch:nothing", "aot:nothing"])
def test_features_come_from_a_closed_vocabulary(feature: str) -> None:
    """No target can allow a feature that refers to nothing, `setup`, or unknown keys."""
    with pytest.raises(ConfigurationError):
        parse_catalog((HEAD + slot("a")).replace('s = ["entry"]', f's = ["entry", "{feature}"]').encode(), "x")


def test_refusals_point_at_their_row() -> None:
    """The location is the line where the offending target names itself."""
    error = refusal(slot("a") + slot("b", digest="0" * 64))
    assert str(error.location) == f"x:{(HEAD + slot('a')).count(chr(10)) + 2}"
    assert str(refusal("[[targets").location) == f"x:{HEAD.count(chr(10)) + 1}"


def test_the_digest_follows_the_content() -> None:
    """Two catalogs with different targets have different digests."""
    one = parse_catalog((HEAD + slot("a")).encode(), "x")
    two = parse_catalog((HEAD + slot("a") + slot("b")).encode(), "x")
    assert one.digest != two.digest


def test_a_contract_edit_changes_every_digest_above_it() -> None:
    """Tolerances are part of the contract, the contract of the target, the target of the catalog."""
    loose = (Tolerance("float32", "0.1", "0.1"),)
    tight = (Tolerance("float32", "0.01", "0.1"),)
    contracts = [Contract("a", "op", "f", ("x",), Correctness("allclose"), it, "") for it in (loose, tight)]
    targets = [Target("a", "slot", ("a",), ("entry",), contract=contract) for contract in contracts]
    assert len({contract.digest for contract in contracts}) == len({target.digest for target in targets}) == 2
