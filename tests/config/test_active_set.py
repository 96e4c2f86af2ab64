"""`config/active_set.py`: what may be active together, and in which order."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.active_set import displaced_by, order_active
from config.errors import ConfigurationError
from config.target_catalog import CompositionRule, Target, TargetCatalog, load_catalog

SNAPSHOT: dict[str, Any] = json.loads(
    (Path(__file__).parent.parent / "golden/target_catalog_snapshot.json").read_text("utf-8")
)


@pytest.mark.parametrize("vector", SNAPSHOT["active_set_vectors"], ids=lambda vector: "+".join(vector["active"]) or "-")
def test_golden_active_sets(vector: dict[str, Any]) -> None:
    """Recorded sets have the recorded order, or are refused."""
    if vector["accept"]:
        assert list(order_active(load_catalog(), vector["active"])) == vector["ordered"]
        return
    with pytest.raises(ConfigurationError) as caught:
        order_active(load_catalog(), vector["active"])
    assert caught.value.code == "ACTIVE_SET_INVALID"


def test_golden_displacement_closures() -> None:
    """Displacement is what was recorded."""
    for name, displaced in SNAPSHOT["displacement_closures"].items():
        assert sorted(displaced_by(load_catalog(), name)) == displaced


def plain(name: str, displaces: tuple[str, ...] = (), requires: tuple[str, ...] = ()) -> Target:
    """Return a target with these relations."""
    return Target(name, "slot", (name,), ("entry",), displaces=displaces, requires=requires)


def test_displacement_reaches_through_others() -> None:
    """A target excludes what its displaced targets displace."""
    catalog = TargetCatalog("v", [plain("a", ("b",)), plain("b", ("c",)), plain("c")])
    assert displaced_by(catalog, "a") == {"b", "c"}
    with pytest.raises(ConfigurationError):
        order_active(catalog, ["a", "c"])


def test_requirements_come_first() -> None:
    """What is required has to be there and is bound before what requires it."""
    catalog = TargetCatalog("v", [plain("a", requires=("z",)), plain("z"), plain("m")])
    assert order_active(catalog, ["a", "m", "z"]) == ("m", "z", "a")
    with pytest.raises(ConfigurationError, match="requires z"):
        order_active(catalog, ["a", "m"])


def test_circles_of_a_catalog_built_by_hand_are_refused() -> None:
    """Ordering ends, whatever the catalog."""
    rule = CompositionRule("r", ("a", "z"), ("a", "z"), "first_applicable", "", "")
    catalog = TargetCatalog("v", [plain("a", requires=("z",)), plain("z")], [rule])
    with pytest.raises(ConfigurationError):
        order_active(catalog, ["a", "z"])


@given(st.sets(st.sampled_from(sorted(load_catalog().targets))), st.randoms())
def test_the_same_set_has_the_same_order(names: set[str], random: Any) -> None:
    """Input order never matters, precedence always holds, and refusals are typed."""
    shuffled = sorted(names)
    random.shuffle(shuffled)
    if any(displaced_by(load_catalog(), one) & {two} for one, two in itertools.permutations(names, 2)):
        with pytest.raises(ConfigurationError):
            order_active(load_catalog(), shuffled)
        return
    ordered = order_active(load_catalog(), shuffled)
    assert sorted(ordered) == sorted(names)
    assert ordered == order_active(load_catalog(), sorted(names))
