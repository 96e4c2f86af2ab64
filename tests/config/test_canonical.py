"""`config/canonical.py`: one encoding, one digest, one strict reader, one order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.canonical import (
    CanonicalJsonError,
    canonical_json,
    domain_digest,
    is_digest,
    path_order,
    read_json,
    sorted_paths,
)
from config.errors import CacheonError, InternalError

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "canonical_digest_vectors.json").read_text("utf-8"))
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize("row", [row for row in GOLDEN if row["digest"]], ids=lambda row: row["digest"][:8])
def test_recorded_digests_are_reproduced(row: dict[str, Any]) -> None:
    """Every recorded domain digest and its canonical bytes come out the same."""
    assert domain_digest(row["domain"], row["payload"], schema_version=row["schema_version"]) == row["digest"]
    envelope = {key: row[key] for key in ("domain", "payload", "schema_version")}
    assert canonical_json(envelope).decode() == row["preimage"]


@pytest.mark.parametrize("row", [row for row in GOLDEN if not row["digest"]], ids=lambda row: repr(row["domain"]))
def test_recorded_refusals_are_refused(row: dict[str, Any]) -> None:
    """Every recorded bad domain, version or payload is refused."""
    with pytest.raises(CacheonError):
        domain_digest(row["domain"], row["payload"], schema_version=row["schema_version"])


@given(PLAIN)
def test_reading_back_gives_the_same_value(value: object) -> None:
    """Canonical bytes decode to the value they came from, and are accepted as canonical."""
    assert read_json(canonical_json(value), require_canonical=True) == value


@pytest.mark.parametrize("value", [1.5, float("nan"), b"x", {1}, {1: 2}, [object], {"a": 0.0}], ids=repr)
def test_values_without_a_canonical_form_are_refused(value: object) -> None:
    """Floats, bytes, sets and non-text keys have no canonical form."""
    with pytest.raises(CanonicalJsonError) as caught:
        canonical_json(value)
    assert caught.value.code == "NOT_CANONICAL_JSON"


def test_lone_surrogates_are_refused() -> None:
    """Text that cannot be UTF-8 is refused instead of leaking a codec error."""
    with pytest.raises(CanonicalJsonError):
        canonical_json("\ud800")


@pytest.mark.parametrize(
    "data",
    [b'{"a":1,"a":2}', b"1.0", b"NaN", b"\xff", b"", b"[" * 100_000, b'{"a":Infinity}'],
    ids=lambda data: repr(data[:12]),
)
def test_the_strict_reader_refuses(data: bytes) -> None:
    """Duplicate keys, floats, NaN, bad UTF-8 and deep nesting are one error."""
    with pytest.raises(CanonicalJsonError) as caught:
        read_json(data)
    assert caught.value.code == "JSON_MALFORMED"


def test_non_canonical_bytes_are_refused_on_request() -> None:
    """Valid JSON in another spelling is refused when canonical bytes are required."""
    assert read_json(b'{"b": 1}') == {"b": 1}
    with pytest.raises(CanonicalJsonError) as caught:
        read_json(b'{"b": 1}', require_canonical=True)
    assert caught.value.code == "NOT_CANONICAL_JSON"


@pytest.mark.parametrize(("domain", "version"), [("", 1), ("Upper", 1), ("-a", 1), ("a", 0), ("a", True)])
def test_malformed_domains_are_a_defect(domain: str, version: int) -> None:
    """A malformed digest domain is our own fault and says so."""
    with pytest.raises(InternalError):
        domain_digest(domain, {}, schema_version=version)


def test_digest_shape() -> None:
    """A digest is 64 lower-case hexadecimal characters and nothing else."""
    assert is_digest("a" * 64)
    assert not any(is_digest(bad) for bad in ("A" * 64, "a" * 63, "a" * 65, "a" * 63 + "\n", 7, None))


def test_paths_are_ordered_by_components() -> None:
    """A directory's content sorts before a sibling whose name extends it with a character below the slash."""
    assert sorted_paths(["a.py", "a-x/c.py", "a b/d", "a/z.py", "a/b.py"]) == [
        "a/b.py", "a/z.py", "a b/d", "a-x/c.py", "a.py",
    ]
    assert path_order("a/b") == ("a", "b")
