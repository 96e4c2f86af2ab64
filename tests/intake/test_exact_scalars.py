"""Exact scalars of direct rows in the routing domain."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import IntakeError
from intake.domain import Domain, canonical_descriptor, effective_domain, is_empty, mismatches, read_row_metadata
from intake.exact_scalars import offered_scalars, read_scalars, render_scalars

SDPA, NORM, SILU = "attention.sdpa", "norm.rmsnorm", "activation.silu_and_mul"


def domain(capabilities: Any, slot: str = NORM) -> Domain:
    """Return the domain of a direct row with these capabilities, after one rendering."""
    found = effective_domain(read_row_metadata(json.dumps({"capabilities": capabilities}).encode(), slot))
    assert effective_domain(json.loads(json.dumps(found.render()))) == found
    return found


@pytest.mark.parametrize("predicate", [1e-6, [1e-6], {"exact": 1e-6}, {"one_of": [1e-6, 1e-5]}])
def test_a_call_with_another_value_is_outside(predicate: Any) -> None:
    """The value itself matches; another one, another type, and no value do not."""
    found = domain({"eps": predicate, "num_tokens": {"max": 8}})

    def misses(**call: Any) -> list[tuple[str, ...]]:
        return [tuple(item) for item in mismatches(found, canonical_descriptor({"num_tokens": 1, **call}))]

    assert misses(eps=1e-6, graph_mode="eager") == []
    assert ("eps", "outside_domain") in misses(eps=1e-7)
    assert ("eps", "outside_domain") in misses(eps=1)
    assert ("eps", "missing") in misses()


def test_types_and_signs_are_kept_apart() -> None:
    """Domains with 0.0 and -0.0, or true and false, are disjoint; equal ones are not."""
    assert is_empty(domain({"eps": 0.0}), domain({"eps": -0.0}))
    assert not is_empty(domain({"eps": 0.0}), domain({"eps": [0.0, 1.0]}))
    assert is_empty(domain({"causal": True}, SDPA), domain({"causal": False}, SDPA))


@pytest.mark.parametrize(
    ("capabilities", "slot", "code"),
    [
        ({"eps": 1e-6}, SILU, "CAPABILITY_UNKNOWN"),
        ({"eps": 1}, NORM, "CAPABILITY_VALUE"),
        ({"eps": "x"}, NORM, "CAPABILITY_VALUE"),
        ({"eps": {"min": 0.0}}, NORM, "CAPABILITY_PREDICATE"),
        ({"eps": []}, NORM, "CAPABILITY_PREDICATE"),
        ({"causal": 1}, SDPA, "CAPABILITY_VALUE"),
        ({"num_tokens": 1.0}, NORM, "CAPABILITY_VALUE"),
    ],
)
def test_what_is_not_an_exact_value_of_the_slot_is_refused(capabilities: Any, slot: str, code: str) -> None:
    """Ranges, other types, and scalars that the slot does not offer have their codes."""
    with pytest.raises(IntakeError) as caught:
        domain(capabilities, slot)
    assert caught.value.code == code


def test_a_miner_cannot_write_the_rendering() -> None:
    """The key of rendered domains is unknown in metadata files."""
    with pytest.raises(IntakeError) as caught:
        read_row_metadata(b'{"exact_scalars": {"eps": [1]}}', NORM)
    assert caught.value.code == "METADATA_UNKNOWN_KEY"


@given(st.dictionaries(st.text(max_size=4), st.none() | st.booleans() | st.floats() | st.lists(st.integers())))
def test_only_intake_errors_leave(raw: dict[str, Any]) -> None:
    """Any metadata gives a domain that renders and reads back, or an `IntakeError`."""
    try:
        found = domain({**raw, "eps": raw.get("", 0.5)})
    except IntakeError:
        return
    assert read_scalars(render_scalars(found.scalars)) == found.scalars
    assert "eps" in offered_scalars(NORM)
