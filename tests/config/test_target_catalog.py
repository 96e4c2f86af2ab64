"""`config/target_catalog.py`: reward units as data."""

from __future__ import annotations

import pytest

from config.errors import ConfigurationError
from config.target_catalog import load_catalog, parse_catalog

SLOT = '[[targets]]\nid = "{id}"\nkind = "{kind}"\nmembers = [{members}]\nfeatures = "s"\n{more}\n'
HEAD = 'policy_version = "v"\n[feature_sets]\ns = ["entry"]\n'


def slot(name: str, kind: str = "slot", members: str = "", more: str = "") -> str:
    """Return one target table."""
    return SLOT.format(id=name, kind=kind, members=members or f'"{name}"', more=more)


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


def test_an_atomic_target_displaces_its_members() -> None:
    """An atomic set is accepted when each member is a slot target that it displaces."""
    text = HEAD + slot("a") + slot("b") + slot("ab", "atomic", '"a", "b"', 'displaces = ["a", "b"]')
    atomic = parse_catalog(text.encode(), "x").for_members(["b", "a"])
    assert atomic is not None
    assert atomic.id == "ab"


@pytest.mark.parametrize(
    "body",
    [
        slot("a") + slot("a"),
        slot("a", members='"b"'),
        slot("a", kind="system"),
        slot("ab", "atomic", '"a", "b"', 'displaces = ["a", "b"]'),
        slot("a") + slot("b") + slot("ab", "atomic", '"a", "b"', 'displaces = ["a"]'),
        slot("a", more='compatible_with = ["b"]') + slot("b"),
        slot("a", more="surprise = 1"),
        slot("a").replace('features = "s"', 'features = "t"'),
        "[[targets",
    ],
)
def test_catalogs_that_break_a_rule_are_refused(body: str) -> None:
    """Each broken rule is CATALOG_INVALID."""
    with pytest.raises(ConfigurationError) as caught:
        parse_catalog((HEAD + body).encode(), "x")
    assert caught.value.code == "CATALOG_INVALID"


def test_the_digest_follows_the_content() -> None:
    """Two catalogs with different targets have different digests."""
    one = parse_catalog((HEAD + slot("a")).encode(), "x")
    two = parse_catalog((HEAD + slot("a") + slot("b")).encode(), "x")
    assert one.digest != two.digest
