"""The arithmetic of an epoch: permits, clipping, masks, bonds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chain.devnet.pallets.consensus import Subnet, run, to_u16, top_permits

HALF = 32_767


def subnet(stakes: list[int], rows: dict[int, list[tuple[int, int]]], **changes: Any) -> Subnet:
    """Every neuron active since block 1, registered in block 0; those with a row hold a permit."""
    count = len(stakes)
    made = Subnet(
        stakes=stakes,
        permits=[uid in rows for uid in range(count)],
        active=[True] * count,
        weights=[rows.get(uid, []) for uid in range(count)],
        bonds=[[] for _ in range(count)],
        outdated_before=[1] * count,
        registered=[0] * count,
        owner_uid=None,
        kappa=HALF,
        bonds_moving_average=900_000,
    )
    return msgspec.structs.replace(made, **changes)


@pytest.mark.parametrize(
    ("stakes", "most", "permits"),
    [
        ([5, 0, 9, 7], 2, [False, False, True, True]),
        ([5, 0, 9, 7], 8, [True, False, True, True]),
        ([4, 4, 4], 2, [True, True, False]),
        ([0, 0], 1, [False, False]),
        ([1], 0, [False]),
    ],
)
def test_permits_go_to_the_largest_stakes(stakes: list[int], most: int, permits: list[bool]) -> None:
    """No permit without stake; a tie at the edge is decided for the lower uid."""
    assert top_permits(stakes, most) == permits


def test_minority_is_clipped() -> None:
    """What only a quarter of the stake supports is worth nothing, and that validator's trust shows it."""
    outcome = run(subnet([300, 100, 0, 0], {0: [(2, 1)], 1: [(3, 1)]}))
    assert outcome.consensus == [0, 0, 1, 0]
    assert outcome.incentives == [0, 0, 1, 0]
    assert outcome.validator_trust == [1, 0, 0, 0]
    assert outcome.dividends == [1, 0, 0, 0]


def test_a_row_is_cut_to_what_the_majority_gives() -> None:
    """The lone higher weight on a miner is cut to the one that half of the stake supports."""
    rows = {0: [(2, 3), (3, 1)], 1: [(2, 1), (3, 1)]}
    outcome = run(subnet([60, 40, 0, 0], rows))
    assert outcome.consensus[2:] == [0.75, 0.25]
    outcome = run(subnet([40, 60, 0, 0], rows))
    assert outcome.consensus[2:] == [0.5, 0.5]
    assert outcome.validator_trust[:2] == [0.75, 1.0]


@pytest.mark.parametrize(
    "changes",
    [
        {"permits": [False, False, False]},
        {"active": [False, True, True]},
        {"stakes": [0, 0, 0]},
        {"registered": [0, 0, 1]},
        {"registered": [0, 0, 7]},
        {"weights": [[(0, 5)], [], []]},
        {"weights": [[(2, 0)], [], []]},
        {"weights": [[(9, 4)], [], []]},
    ],
    ids=["no permit", "inactive", "no stake", "registered with it", "registered later", "own", "zero", "unknown"],
)
def test_what_does_not_count(changes: dict[str, Any]) -> None:
    """A row that must not count leaves every score at zero."""
    outcome = run(msgspec.structs.replace(subnet([10, 0, 0], {0: [(2, 5)]}), **changes))
    assert (outcome.incentives, outcome.dividends, outcome.bonds) == ([0.0] * 3, [0.0] * 3, [[], [], []])


def test_owner_may_weight_itself() -> None:
    """The subnet owner's weight on its own uid, where burnt emission goes, counts."""
    rows = {0: [(0, 5)]}
    assert run(subnet([10, 0], rows)).incentives == [0, 0]
    assert run(subnet([10, 0], rows, owner_uid=0)).incentives == [1, 0]


def test_bonds_follow_slowly() -> None:
    """A validator that joins late at equal stake first shares a tenth of the bonds, then more every epoch."""
    rows = {0: [(2, 1)], 1: [(2, 1)]}
    first = run(subnet([50, 0, 0], rows))
    assert first.dividends == [1, 0, 0]
    shares, bonds = [], first.bonds
    for _ in range(3):
        outcome = run(subnet([50, 50, 0], rows, bonds=bonds))
        shares.append(outcome.dividends[1])
        bonds = outcome.bonds
    assert shares[0] == pytest.approx(0.05, abs=1e-3)
    assert shares == sorted(shares)
    assert bonds[0] == [(2, 65_535)]


@settings(deadline=None)
@given(st.data())
def test_shares_stay_shares(data: st.DataObject) -> None:
    """Whatever the rows, incentives and dividends are fractions that sum to one or are all zero."""
    count = data.draw(st.integers(1, 6))
    row = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 65_535)), max_size=6, unique_by=lambda pair: pair[0])
    stakes = data.draw(st.lists(st.integers(0, 10**15), min_size=count, max_size=count))
    rows = {uid: data.draw(row) for uid in range(count)}
    outcome = run(subnet(stakes, rows, owner_uid=0))
    for shares in (outcome.incentives, outcome.dividends):
        assert all(0 <= share <= 1 + 1e-9 for share in shares)
        assert sum(shares) == pytest.approx(1) or not any(shares)
    assert all(0 <= to_u16(share) <= 65_535 for share in outcome.validator_trust)
    assert all(0 <= value <= 65_535 for bonds in outcome.bonds for _, value in bonds)
