"""Largest-remainder shares, with the published integer vectors."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import InternalError
from scoring.apportion import PPM, apportion


@pytest.mark.parametrize(
    ("credits", "pool", "shares"),
    [
        ({"a": 1, "b": 1, "c": 1}, PPM, {"a": 333_334, "b": 333_333, "c": 333_333}),
        ({"a": 5, "b": 3, "c": 0}, 999_999, {"a": 624_999, "b": 375_000}),
        ({"alice": 22_400, "bob": 7_500}, PPM, {"alice": 749_164, "bob": 250_836}),
        ({"alice": 22_400, "bob": 7_500}, 900_000, {"alice": 674_247, "bob": 225_753}),
        ({"z": 1, "a": 1}, 1, {"a": 1}),
        ({"a": 10**9, "b": 1}, PPM, {"a": 1_000_000}),
        ({"a": 0}, PPM, {}),
        ({}, PPM, {}),
        ({"a": 1}, 0, {}),
    ],
)
def test_shares_follow_the_published_vectors_without_zero_rows(
    credits: dict[str, int], pool: int, shares: dict[str, int]  # noqa: A002 - the word of the rule
) -> None:
    """Largest remainder, ties to the smaller key; a row that would be zero is not there."""
    assert apportion(credits, pool) == shares


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=4), st.integers(0, 10**15), max_size=40), st.integers(0, 10**7))
def test_shares_sum_to_the_pool_and_stay_within_one_of_the_exact_share(pool_of: dict[str, int], pool: int) -> None:
    """No share is off by one unit or more, none is zero, and the order of the input changes nothing."""
    shares = apportion(pool_of, pool)
    total = sum(pool_of.values())
    assert sum(shares.values()) == (pool if total else 0)
    assert all(share > 0 for share in shares.values())
    for key, credit in pool_of.items():
        assert abs(shares.get(key, 0) * total - credit * pool) < max(total, 1)
    assert apportion(dict(reversed(pool_of.items())), pool) == shares


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=3), st.integers(1, 10**9), min_size=2, max_size=10))
def test_a_larger_credit_never_gets_a_smaller_share(pool_of: dict[str, int]) -> None:
    """Shares are in the order of the credits."""
    shares = apportion(pool_of)
    ordered = sorted(pool_of, key=lambda key: pool_of[key])
    for low, high in itertools.pairwise(ordered):
        if pool_of[low] < pool_of[high]:
            assert shares.get(low, 0) <= shares.get(high, 0)


def test_negative_credits_are_refused() -> None:
    """A negative credit would pay others with someone's debt."""
    for arguments in (({"a": -1},), ({"a": 1}, -1)):
        with pytest.raises(InternalError) as refused:
            apportion(*arguments)
        assert refused.value.code == "APPORTION_INPUT"
