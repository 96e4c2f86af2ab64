"""Capabilities, domains and variant selection."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import IntakeError
from intake.capabilities import FIELDS, canonical_value, normal_field, parse_predicates
from intake.domain import (
    Domain,
    canonical_descriptor,
    check_metadata,
    effective_domain,
    is_empty,
    mismatches,
    read_metadata,
)
from intake.refusal import BundleRefused
from intake.registry import VariantRegistry
from intake.screen import screen_files
from tests.intake.differences import ELIGIBILITY, VALUES
from tests.intake.support import MANIFEST, bundle, golden

VECTORS = golden("capability_vectors")


def domain(metadata: Any, dtypes: list[str] | None = None, architectures: list[str] | None = None) -> Domain:
    """Return the effective domain of parsed metadata (None = no file)."""
    checked = {} if metadata is None else check_metadata(metadata)
    return effective_domain(checked, tuple(dtypes or ()), tuple(architectures or ()))


@pytest.mark.parametrize("vector", VECTORS["field_names"], ids=lambda vector: repr(vector["input"]))
def test_golden_field_names(vector: dict[str, Any]) -> None:
    """Spellings of fields normalise as recorded."""
    assert (normal_field(vector["input"]) or None) == vector["canonical"]
    assert (normal_field(vector["input"]) in FIELDS) == vector["supported"]


@pytest.mark.parametrize("vector", VECTORS["values"], ids=lambda vector: f"{vector['field']}={vector['input']!r}")
def test_golden_values(vector: dict[str, Any]) -> None:
    """Values canonicalise as recorded, or are refused."""
    field = normal_field(vector["field"])
    if not vector["accept"]:
        with pytest.raises(IntakeError):
            canonical_value(field, vector["input"])
        return
    value = canonical_value(field, vector["input"])
    assert value == VALUES.get(vector["input"], (vector["canonical"],))[0]
    assert canonical_value(field, value) == value


@pytest.mark.parametrize("vector", VECTORS["metadata_parse"], ids=lambda vector: vector["why"])
def test_golden_predicates(vector: dict[str, Any]) -> None:
    """Capability objects parse to the recorded predicates, or are refused."""
    if not vector["accept"]:
        with pytest.raises(IntakeError):
            parse_predicates(check_metadata(vector["metadata"]).get("capabilities"))
        return
    found = parse_predicates(check_metadata(vector["metadata"]).get("capabilities"))
    expected = [(row["field"], row["allowed"], row["min"], row["max"]) for row in vector["predicates"]]
    assert [(item.field, list(item.allowed), item.minimum, item.maximum) for item in found] == expected


@pytest.mark.parametrize("vector", VECTORS["eligibility"], ids=lambda vector: vector["why"])
def test_golden_domains(vector: dict[str, Any]) -> None:
    """Manifest lists and metadata combine as recorded; contradictions are proved empty."""
    arguments = (vector["metadata"], vector["manifest_dtypes"], vector["manifest_architectures"])
    if not vector["accept"] or vector["why"] in ELIGIBILITY:
        with pytest.raises(IntakeError):
            domain(*arguments)
        return
    found = domain(*arguments)
    for key in ("dtypes", "architectures", "quant"):
        assert sorted(getattr(found, key)) == sorted(vector["eligibility"][key])
    for key in ("graph_safe", "max_last_dim", "min_num_tokens", "max_num_tokens"):
        assert getattr(found, key) == vector["eligibility"][key]
    assert is_empty(found) == vector["proven_empty"]


@pytest.mark.parametrize("vector", VECTORS["overlap"], ids=lambda vector: vector["why"])
def test_golden_overlaps(vector: dict[str, Any]) -> None:
    """Disjointness is proved exactly where recorded, and decides registration."""
    left, right = domain(vector["left"]), domain(vector["right"])
    assert is_empty(left, right) == vector["disjoint_proven"]
    registry = VariantRegistry()
    registry.register("s", "left", left)
    if vector["both_variants_registrable"]:
        registry.register("s", "right", right)
    else:
        with pytest.raises(IntakeError) as caught:
            registry.register("s", "right", right)
        assert caught.value.code == "VARIANTS_OVERLAP"


@pytest.mark.parametrize("vector", VECTORS["match"], ids=lambda vector: vector["why"])
def test_golden_matches(vector: dict[str, Any]) -> None:
    """A live call matches or misses as recorded, for the recorded reasons."""
    found = mismatches(domain(vector["metadata"]), canonical_descriptor(vector["descriptor"]))
    assert [list(item) for item in found] == vector["mismatches"]


@pytest.mark.parametrize(
    "vector", [v for v in VECTORS["selection"] if "variants" in v], ids=lambda vector: vector["name"]
)
def test_golden_selections(vector: dict[str, Any]) -> None:
    """Exactly one matching variant is selected; anything else means the incumbent."""
    registry = VariantRegistry(active=vector["active"])
    for name, metadata in vector["variants"]:
        registry.register("s", name, domain(metadata))
    found = registry.select(vector["slot_queried"], canonical_descriptor(vector["descriptor"]))
    assert (found.outcome, found.variant) == (vector["outcome"], vector["variant"])


def test_golden_names_and_unknown_facts() -> None:
    """A variant name outside the alphabet is refused where it is written; an unknown fact of a call never matches."""
    by_name = {vector["name"]: vector for vector in VECTORS["selection"] if "variants" not in vector}
    assert not any(vector["accept"] for vector in by_name.values())
    row = f'variant = "{by_name["register_variant_name"]["variant_name"]}"\n'.encode()
    with pytest.raises(BundleRefused) as caught:
        screen_files(bundle(**{"manifest.toml": MANIFEST + row}))
    assert caught.value.code == "MANIFEST_VALUE"
    (legacy,) = VECTORS["legacy_lookup"]
    call = canonical_descriptor({key: legacy[key] for key in ("architecture", "num_tokens")})
    found = mismatches(domain({"max_num_tokens": 8, "graph_safe": True}, [], ["sm90"]), call)
    assert {(item.field, item.reason) for item in found} == {("architecture", "missing"), ("num_tokens", "missing")}


def test_a_descriptor_with_two_spellings_is_refused() -> None:
    """A live call that contradicts itself is an error, not a match."""
    with pytest.raises(IntakeError):
        canonical_descriptor({"tp": 4, "tp_size": 8})


@pytest.mark.parametrize(
    "data",
    [b"[]", b"{", b'{"a": NaN}', b'{"graph_safe": 1.5}', b"\xff", b'{"dtypes": [], "dtypes": []}', b"[" * 100_000],
)
def test_metadata_files_are_strict(data: bytes) -> None:
    """A metadata file is one strict JSON object."""
    with pytest.raises(IntakeError) as caught:
        read_metadata(data)
    assert caught.value.code == "METADATA_MALFORMED"


def test_a_misspelt_metadata_key_is_refused_with_a_suggestion() -> None:
    """A typo cannot drop constraints in silence."""
    with pytest.raises(IntakeError) as caught:
        read_metadata(b'{"capabilites": {}}')
    assert caught.value.code == "METADATA_UNKNOWN_KEY"
    assert "capabilities" in caught.value.hint


BOUNDS = st.tuples(st.integers(0, 6), st.integers(0, 6)).map(sorted)


@given(BOUNDS, BOUNDS, st.sets(st.integers(0, 6), min_size=1))
def test_the_overlap_proof_agrees_with_enumeration(left: list[int], right: list[int], allowed: set[int]) -> None:
    """Over a small field, the proof is right in both directions."""
    first = domain({"capabilities": {"q_len": {"min": left[0], "max": left[1]}, "top_k": sorted(allowed)}})
    second = domain({"capabilities": {"q_len": {"min": right[0], "max": right[1]}, "top_k": {"max": 3}}})
    shared = any(
        not mismatches(first, {"q_len": q, "top_k": k}) and not mismatches(second, {"q_len": q, "top_k": k})
        for q in range(8)
        for k in range(8)
    )
    assert is_empty(first, second) is not shared


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)
    )
)
def test_any_json_gives_predicates_or_an_intake_error(value: Any) -> None:
    """No capability object makes the parser raise anything else."""
    with contextlib.suppress(IntakeError):
        parse_predicates(value)


@pytest.mark.parametrize(
    ("text", "line"),
    [('{\n "model": 1,\n "model": 2\n}', 3), ('{\n "model": \n}', 3), ('{"model": 1}\nx', 2), ('{"model": 1.5}', 1)],
)
def test_malformed_metadata_is_found_by_its_line(text: str, line: int) -> None:
    """The finding names the file and, where the parser knows it, the line."""
    files = bundle() | {"metadata/m.json": text.encode()}
    files["manifest.toml"] += b'metadata = "metadata/m.json"\n'
    with pytest.raises(IntakeError) as caught:
        screen_files(files)
    assert caught.value.code == "METADATA_MALFORMED"
    found = caught.value.location
    assert found is not None
    assert (found.path, found.line or 1) == ("metadata/m.json", line)
