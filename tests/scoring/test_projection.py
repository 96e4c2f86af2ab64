"""One weight vector per block, from claims alone, whatever their order."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import InternalError
from scoring.claims import Claim
from scoring.projection import WeightPolicy, project

POLICY = WeightPolicy(1000, "renormalise", "5Burn", "5Validator")
BURN = msgspec.structs.replace(POLICY, undistributed="burn")


def claim(number: int, hotkey: str, gain_ppm: int, block: int = 0) -> Claim:
    """Return claim `number` of `hotkey`."""
    return Claim(f"{number:064x}", f"target.{number}", hotkey, 1_000_000 + gain_ppm, block)


CLAIMS = st.lists(
    st.builds(
        claim,
        st.integers(0, 10**6),
        st.sampled_from([f"5{letter}" for letter in "ABCDEFG"]),
        st.integers(1, 10**7),
        st.integers(0, 900),
    ),
    max_size=12,
    unique_by=lambda row: row.claim_id,
)


@settings(deadline=None)
@given(CLAIMS, st.sets(st.sampled_from(["5A", "5B", "5C", "5D"])), st.sampled_from([POLICY, BURN]), st.randoms())
def test_a_projection_depends_on_sets_alone(
    rows: list[Claim], present: set[str], policy: WeightPolicy, chance: random.Random
) -> None:
    """Any order of claims gives the same vector: it sums to 1,000,000 with positive, ascending rows of members."""
    one = project(rows, block=1000, present=present, policy=policy)
    shuffled = list(rows)
    chance.shuffle(shuffled)
    assert project(shuffled, block=1000, present=present, policy=policy) == one
    entries = one.vector.entries
    assert sum(ppm for _, ppm in entries) == 1_000_000
    assert all(ppm > 0 for _, ppm in entries)
    assert list(entries) == sorted(entries)
    assert {hotkey for hotkey, _ in entries} <= present | {"5Burn", "5Validator"}


def test_everything_burns_while_nothing_is_crowned() -> None:
    """No claims: the burn hotkey gets all."""
    assert project([], block=5, present={"5A"}, policy=POLICY).vector.entries == (("5Burn", 1_000_000),)


def test_an_absent_claimants_share_goes_where_the_policy_says_and_the_others_keep_theirs() -> None:
    """Dropping one claimant moves its ppm to the validator or the burn hotkey, changes no other, and is undone by its
    return."""
    rows = [claim(1, "5A", 61_000), claim(2, "5B", 23_000), claim(3, "5C", 9_001)]
    everyone = {"5A", "5B", "5C"}
    for policy, heir in ((POLICY, "5Validator"), (msgspec.structs.replace(POLICY, absent="burn"), "5Burn")):
        full = dict(project(rows, block=7, present=everyone, policy=policy).vector.entries)
        less = dict(project(rows, block=7, present=everyone - {"5B"}, policy=policy).vector.entries)
        assert less == {"5A": full["5A"], "5C": full["5C"], heir: full["5B"]}
        again = project(rows, block=7, present=everyone, policy=policy).vector.entries
        assert dict(again) == full


def test_a_policy_from_before_a_field_existed_keeps_its_digest() -> None:
    """The default of a later field is part of no document and of no digest."""
    document = msgspec.to_builtins(POLICY)
    assert "absent" not in document
    assert msgspec.convert(document, WeightPolicy).digest == POLICY.digest
    assert msgspec.structs.replace(POLICY, absent="burn").digest != POLICY.digest


def test_the_absent_claimants_share_goes_to_the_validator() -> None:
    """A claimant who left the subnet is replaced; the derivation still names the claimant."""
    rows = [claim(1, "5A", 22_400), claim(2, "5Gone", 7_500)]
    result = project(rows, block=0, present={"5A"}, policy=POLICY)
    assert result.vector.entries == (("5A", 749_164), ("5Validator", 250_836))
    assert [(line.hotkey, line.recipient) for line in result.lines] == [("5A", "5A"), ("5Gone", "5Validator")]


def test_credits_of_one_hotkey_add_up() -> None:
    """Two crowns of one miner are one row."""
    rows = [claim(1, "5A", 100), claim(2, "5A", 200), claim(3, "5B", 100)]
    result = project(rows, block=0, present={"5A", "5B"}, policy=POLICY)
    assert result.vector.entries == (("5A", 750_000), ("5B", 250_000))


def test_decayed_credit_is_shared_out_or_burned_as_policy_says() -> None:
    """After one half-life a lone crown keeps all under `renormalise` and half under `burn`."""
    rows = [claim(1, "5A", 100_000)]
    assert project(rows, block=1000, present={"5A"}, policy=POLICY).vector.entries == (("5A", 1_000_000),)
    burned = project(rows, block=1000, present={"5A"}, policy=BURN)
    assert burned.vector.entries == (("5A", 500_000), ("5Burn", 500_000))
    assert burned.burned_credit == 50_000


def test_claims_that_decayed_to_nothing_burn() -> None:
    """When no credit is left at all, there is nobody to pay."""
    rows = [claim(1, "5A", 1)]
    for policy in (POLICY, BURN):
        result = project(rows, block=10**6, present={"5A"}, policy=policy)
        assert result.vector.entries == (("5Burn", 1_000_000),)


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        ({"claim_id": "x", "nonsense": 1}, "CLAIM_UNREADABLE"),
        (claim(9, "5B", 100, block=2000), "CLAIM_FROM_FUTURE"),
        (claim(9, "5B", 0), "CLAIM_WORTHLESS"),
    ],
)
def test_one_bad_claim_is_named_and_never_blocks_the_others(bad: Any, code: str) -> None:
    """The vector is that of the good claims, and the fault is reported."""
    good = [claim(1, "5A", 300), claim(2, "5C", 100)]
    with_bad = project([*good, bad], block=1000, present={"5A", "5C"}, policy=POLICY)
    assert with_bad.vector == project(good, block=1000, present={"5A", "5C"}, policy=POLICY).vector
    assert [fault.code for fault in with_bad.faults] == [code]


def test_a_fault_never_becomes_a_burn() -> None:
    """When every claim is unusable, nothing is projected."""
    with pytest.raises(InternalError) as refused:
        project([{"broken": True}], block=5, present=set(), policy=POLICY)
    assert refused.value.code == "NO_USABLE_CLAIM"


def test_a_claim_listed_twice_is_refused() -> None:
    """One crown is paid once."""
    with pytest.raises(InternalError) as refused:
        project([claim(1, "5A", 5), claim(1, "5A", 5)], block=5, present=set(), policy=POLICY)
    assert refused.value.code == "CLAIM_DUPLICATE"


def test_a_half_life_of_nothing_is_refused() -> None:
    """Even without claims."""
    with pytest.raises(InternalError) as refused:
        project([], block=5, present=set(), policy=msgspec.structs.replace(POLICY, half_life_blocks=0))
    assert refused.value.code == "HALF_LIFE_INVALID"


def test_every_input_changes_the_digest() -> None:
    """A vector is bound to its block, claims and policy."""
    rows = [claim(1, "5A", 300)]
    base = project(rows, block=10, present={"5A"}, policy=POLICY).vector.digest
    others = {
        project(rows, block=11, present={"5A"}, policy=POLICY).vector.digest,
        project([claim(2, "5A", 300)], block=10, present={"5A"}, policy=POLICY).vector.digest,
        project(rows, block=10, present={"5A"}, policy=BURN).vector.digest,
        project(rows, block=10, present=set(), policy=POLICY).vector.digest,
    }
    assert base not in others
    assert len(others) == 4


def test_a_claim_on_a_target_that_is_gone_is_named_and_paid_nothing() -> None:
    """The others get what they would get without it; alone it burns, because dropping a target is no fault."""
    good, gone = [claim(1, "5A", 300), claim(2, "5C", 100)], claim(3, "5B", 900)
    targets = {"target.1", "target.2"}
    result = project([*good, gone], block=5, present={"5A", "5B", "5C"}, policy=POLICY, targets=targets)
    assert result.vector == project(good, block=5, present={"5A", "5C"}, policy=POLICY).vector
    assert [(fault.claim_id, fault.code) for fault in result.faults] == [(gone.claim_id, "CLAIM_TARGET_UNKNOWN")]
    alone = project([gone], block=5, present={"5B"}, policy=POLICY, targets=targets)
    assert alone.vector.entries == (("5Burn", 1_000_000),)
    with pytest.raises(InternalError) as refused:
        project([gone, {"broken": True}], block=5, present={"5B"}, policy=POLICY, targets=targets)
    assert refused.value.code == "NO_USABLE_CLAIM"
