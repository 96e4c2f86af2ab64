"""Decay of a crown's worth, with the published integer vectors."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.canonical import CanonicalJsonError, domain_digest
from config.errors import InternalError
from scoring.claims import Claim, claims_digest, full_credit, read_claim, standing_credit


def claim(speedup_ppm: int = 1_100_000, crowned_block: int = 0, **changes: object) -> Claim:
    """Return a claim."""
    fields = {"claim_id": "c" * 64, "target_id": "norm.rmsnorm", "hotkey": "5A"} | changes
    return Claim(speedup_ppm=speedup_ppm, crowned_block=crowned_block, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("speedup_ppm", "age", "half_life", "credit"),
    [
        (1_022_400, 0, 216_000, 22_400),
        (1_022_400, 216_000, 216_000, 11_200),
        (1_007_500, 7_200, 216_000, 7_258),
        (1_000_001, 1, 1, 0),
        (1_300_000, 2 * 216_000, 216_000, 100_000),
    ],
)
def test_decay_follows_the_published_vectors(speedup_ppm: int, age: int, half_life: int, credit: int) -> None:
    """Reciprocal decay in exact integers: half at one half-life, a third at two."""
    assert standing_credit(claim(speedup_ppm, 1000), 1000 + age, half_life) == credit


@pytest.mark.parametrize(
    ("row", "block", "half_life", "code"),
    [
        (claim(crowned_block=11), 10, 100, "CLAIM_FROM_FUTURE"),
        (claim(1_000_000), 10, 100, "CLAIM_WORTHLESS"),
        (claim(), 10, 0, "HALF_LIFE_INVALID"),
    ],
)
def test_an_impossible_claim_has_a_code(row: Claim, block: int, half_life: int, code: str) -> None:
    """Never a number for a claim from the future, one without gain, or a half-life of nothing."""
    with pytest.raises(InternalError) as refused:
        standing_credit(row, block, half_life)
    assert refused.value.code == code


GOOD = {"claim_id": "c", "target_id": "t", "hotkey": "5A", "speedup_ppm": 1_100_000, "crowned_block": 3}


@pytest.mark.parametrize(
    "row",
    [
        None, 7, {}, {"claim_id": 1}, {"claim_id": "c", "speedup_ppm": "1"}, GOOD | {"crowned_block": -1},
        GOOD | {"hotkey": ""}, GOOD | {"speedup_ppm": 1.5}, GOOD | {"speedup_ppm": True}, GOOD | {"more": 1},
    ],
)
def test_an_unreadable_claim_has_a_code(row: object) -> None:
    """A row that is no claim is named as such."""
    with pytest.raises(InternalError) as refused:
        read_claim(row)
    assert refused.value.code == "CLAIM_UNREADABLE"


@settings(deadline=None)
@given(st.integers(1_000_001, 10**9), st.integers(0, 10**7), st.integers(0, 10**7), st.integers(1, 10**7))
def test_credit_only_falls_with_age(speedup_ppm: int, age: int, more: int, half_life: int) -> None:
    """Decay is monotone, starts at the full gain and never goes below zero."""
    row = claim(speedup_ppm)
    young, old = (standing_credit(row, at, half_life) for at in (age, age + more))
    assert full_credit(row) == standing_credit(row, 0, half_life) >= young >= old >= 0


def test_the_digest_of_claims_ignores_their_order() -> None:
    """A set of claims has one digest."""
    one, two = claim(), claim(claim_id="d" * 64)
    assert claims_digest((one, two)) == claims_digest((two, one)) != claims_digest((one,))


CLAIMS = st.builds(Claim, *[st.text(max_size=8)] * 3, st.integers(-(2**70), 2**70), st.integers(-(2**70), 2**70))


@settings(deadline=None)
@given(st.lists(CLAIMS, max_size=4, unique_by=lambda row: row.claim_id))
def test_the_digest_is_that_of_canonical_json(rows: list[Claim]) -> None:
    """However it is computed: any text, any integer."""
    document = sorted((msgspec.to_builtins(row) for row in rows), key=lambda row: str(row["claim_id"]))
    assert claims_digest(tuple(rows)) == domain_digest("cacheon.claims", document)


def test_text_that_is_none_has_no_digest() -> None:
    """A lone surrogate is refused with our code."""
    with pytest.raises(CanonicalJsonError):
        claims_digest((claim(hotkey="\ud800"),))
