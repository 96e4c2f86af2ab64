"""Every choice follows from the sealed seed."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import GradeError
from scoring import sealing
from scoring.policy import POLICY

SEEDS = st.binary(min_size=32, max_size=32)
OPEN = POLICY.betting.open_launches


def test_the_commitment_is_the_published_construction() -> None:
    """SHA-256 over the seed followed by the attempt id."""
    expected = hashlib.sha256(bytes(32) + b"a").hexdigest()
    assert sealing.commitment(bytes(32), "a") == expected
    assert sealing.commitment(bytes(32), "b") != expected


@settings(deadline=None)
@given(SEEDS, st.integers(0, 40))
def test_later_launches_exchange_roles_in_pairs(seed: bytes, pair: int) -> None:
    """After the open launches, the second launch of a pair has the roles of the first exchanged."""
    first = sealing.candidate_slot(seed, "a", OPEN + 2 * pair)
    assert sealing.candidate_slot(seed, "a", OPEN + 2 * pair + 1) == 1 - first


def test_coins_are_fair_and_unlinked() -> None:
    """Over many seeds each coin is even, and two coins of one attempt agree half of the time."""
    seeds = [i.to_bytes(32, "big") for i in range(4000)]
    for launch in (0, 1, OPEN - 1, OPEN, OPEN + 2):
        assert abs(sum(sealing.candidate_slot(seed, "a", launch) for seed in seeds) - 2000) < 160
    agree = sum(sealing.candidate_slot(seed, "a", 0) == sealing.candidate_slot(seed, "a", 1) for seed in seeds)
    assert abs(agree - 2000) < 160
    first = sum(sealing.candidate_first(seed, "a", 0, 0) == sealing.candidate_first(seed, "a", 0, 1) for seed in seeds)
    assert abs(first - 2000) < 160


@settings(deadline=None)
@given(SEEDS, st.text(max_size=8), st.text(max_size=8))
def test_purposes_and_indices_do_not_collide(seed: bytes, one: str, other: str) -> None:
    """Two differently named choices are different bytes, however the names are cut."""
    names = {(one, other), (one + other, ""), ("", one + other)}
    assert len({sealing.derive(seed, *name, 1) for name in names}) == len(names)
    assert sealing.derive(seed, one, other, 1, 2) != sealing.derive(seed, one, other, 12)


@pytest.mark.parametrize("text", ["", "00", "G" * 64, "A" * 64, "0" * 65])
def test_a_malformed_seed_is_refused(text: str) -> None:
    """A seed is exactly 64 lower-case hexadecimal characters."""
    with pytest.raises(GradeError) as refused:
        sealing.parse_seed(text)
    assert refused.value.code == "SEED_MALFORMED"
    with pytest.raises(GradeError):
        sealing.commitment(b"short", "a")
