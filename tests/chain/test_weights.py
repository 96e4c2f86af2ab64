"""From hotkeys to a row, in integers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chain.blocks import BlockRef
from chain.hyperparameters import Hyperparameters
from chain.metagraph import Metagraph, Neuron
from chain.validator_state import ValidatorState
from chain.waiting import (
    Waiting,
    reason_against_row,
    reason_not_to_burn,
    reason_of_stake,
    reason_to_wait,
    too_many_commits,
)
from chain.weights import PPM, WeightTarget, resolve_row, rows_match, scale_shares
from config.errors import InternalError

BLOCK = BlockRef(100, "0x" + "00" * 32)


def neuron(uid: int, hotkey: str, *, permit: bool = False, last_update: int = 0) -> Neuron:
    """A neuron registered at block 1."""
    return Neuron(uid, hotkey, "cold", permit, 1, last_update)


def metagraph(*hotkeys: str) -> Metagraph:
    """Hotkeys with UIDs in order; the first one has a permit."""
    neurons = tuple(neuron(uid, name, permit=uid == 0) for uid, name in enumerate(hotkeys))
    return Metagraph(2, BLOCK, neurons, "", "")


def parameters(**changes: Any) -> Hyperparameters:
    """Parameters that stand in nobody's way."""
    fields: dict[str, Any] = {
        "netuid": 2,
        "block": BLOCK,
        "tempo": 20,
        "epoch": 5,
        "last_epoch_block": 90,
        "pending_epoch_at": 0,
        "blocks_since_last_step": 10,
        "commit_reveal_enabled": False,
        "commit_reveal_version": 4,
        "reveal_period_epochs": 1,
        "version_key": 0,
        "rate_limit": 10,
        "min_allowed_weights": 1,
        "max_weight_limit": 65_535,
    }
    return Hyperparameters(**(fields | changes))


def state(*, permit: bool = True, last_update: int = 0, uid: int | None = 0, **changes: Any) -> ValidatorState:
    """The validator `v`, uid 0, at block 100."""
    return ValidatorState(parameters(**changes), "v", uid, permit, last_update, 0, False, 0, {})


def target(*entries: tuple[str, Any]) -> WeightTarget:
    """A target for epoch 5."""
    return WeightTarget(entries, "d" * 64, 5)


@given(st.dictionaries(st.text(min_size=1, max_size=4), st.integers(1, PPM), min_size=1, max_size=40))
def test_scaling_keeps_order_and_total(shares: dict[str, int]) -> None:
    """The largest share becomes 65535, order is kept, and no value is off by a whole unit or more."""
    values = scale_shares(shares)
    top = max(shares.values())
    assert max(values.values()) == 65_535
    for name, share in shares.items():
        assert abs(values[name] * top - share * 65_535) < top
        for other, smaller in shares.items():
            if share > smaller:
                assert values[name] >= values[other]
    assert sum(values.values()) == sum(shares.values()) * 65_535 // top


def test_the_row_is_resolved_by_hotkey_and_sorted_by_uid() -> None:
    """UIDs come from the metagraph at hand, whatever order the target has."""
    row = resolve_row(target(("c", 600_000), ("b", 400_000)), metagraph("v", "b", "c"), neuron(0, "v"))
    assert row.uids == (1, 2)
    assert row.hotkeys == ("b", "c")
    assert row.values == (43_690, 65_535)


def test_the_share_of_a_vanished_hotkey_goes_to_the_validator() -> None:
    """Nobody inherits: the missing share is added to the validator's own."""
    row = resolve_row(target(("gone", 500_000), ("b", 250_000), ("v", 250_000)), metagraph("v", "b"), neuron(0, "v"))
    assert dict(zip(row.hotkeys, row.values, strict=True)) == {"v": 65_535, "b": 21_845}


def test_the_share_of_a_vanished_hotkey_is_burned_where_the_policy_says_so() -> None:
    """With an absent hotkey named by the target, the missing share goes there and the others keep theirs exactly."""
    wanted = WeightTarget((("gone", 500_000), ("b", 500_000)), "d" * 64, 5, absent_hotkey="sink")
    row = resolve_row(wanted, metagraph("v", "b", "sink"), neuron(0, "v"))
    assert dict(zip(row.hotkeys, row.values, strict=True)) == {"b": 65_535, "sink": 65_535}
    assert reason_not_to_burn(wanted, metagraph("v", "b", "sink")) is None
    waiting = reason_not_to_burn(wanted, metagraph("v", "b"))
    assert waiting is not None
    assert waiting.code == "BURN_HOTKEY_NOT_REGISTERED"


@pytest.mark.parametrize(
    ("entries", "burn", "waits"),
    [
        ((("gone", PPM),), "gone", True),
        ((("gone", 1), ("b", PPM - 1)), "gone", True),
        ((("", PPM),), "", True),
        ((("b", PPM),), "gone", False),
        ((("b", PPM),), "b", False),
        ((("gone", PPM),), None, False),
    ],
)
def test_what_is_to_be_burned_goes_to_nobody_else(entries: Any, burn: str | None, waits: bool) -> None:
    """A vector that burns waits while its burn hotkey is not registered; one that burns nothing does not care."""
    wanted = WeightTarget(entries, "d" * 64, 5, burn)
    waiting = reason_not_to_burn(wanted, metagraph("v", "b"))
    assert (waiting.code if waiting else "") == ("BURN_HOTKEY_NOT_REGISTERED" if waits else "")


def test_shares_too_small_for_the_chain_are_left_out() -> None:
    """A share that scales to zero is no row entry."""
    row = resolve_row(target(("b", PPM - 1), ("c", 1)), metagraph("v", "b", "c"), neuron(0, "v"))
    assert row.hotkeys == ("b",)


@pytest.mark.parametrize(
    "entries",
    [
        (),
        (("b", 0), ("c", PPM)),
        (("b", -1), ("c", PPM + 1)),
        (("b", 500_000),),
        (("b", 500_000), ("b", 500_000)),
        (("b", True), ("c", PPM - 1)),
        (("b", float("nan")), ("c", PPM)),
        (("b", 0.5), ("c", PPM)),
    ],
)
def test_an_unsound_vector_stops_publication(entries: Any) -> None:
    """Empty, negative, non-integer, duplicate or incomplete vectors are a defect of ours, not a publication."""
    with pytest.raises(InternalError) as caught:
        resolve_row(target(*entries), metagraph("v", "b", "c"), neuron(0, "v"))
    assert caught.value.code == "WEIGHT_VECTOR_INVALID"


def test_nothing_in_the_way_is_none() -> None:
    """A permitted validator outside the rate limit may publish."""
    row = resolve_row(target(("b", PPM)), metagraph("v", "b"), neuron(0, "v"))
    assert reason_to_wait(state(), 0, 101) is None
    assert reason_against_row(row, state(), 2) is None


def test_the_rate_limit_is_inclusive_and_names_its_block() -> None:
    """Exactly `rate_limit` blocks after the last update is late enough; one earlier waits for that block."""
    assert reason_to_wait(state(last_update=91), 0, 101) is None
    waiting = reason_to_wait(state(last_update=92), 0, 101)
    assert waiting is not None
    assert (waiting.code, waiting.at_block) == ("RATE_LIMITED", 102)
    assert (waiting.current, waiting.needed) == ("9 blocks", "10 blocks")


def test_a_mechanism_that_the_subnet_lacks_is_named() -> None:
    """Weights of mechanism 1 wait on a subnet that has only mechanism 0."""
    waiting = reason_to_wait(state(), 1, 101)
    assert waiting is not None
    assert (waiting.code, waiting.current, waiting.needed) == ("MECHANISM_MISSING", "1 mechanisms", "mechanism 1")
    assert reason_to_wait(state(mechanism_count=2), 1, 101) is None


def test_a_missing_permit_waits_for_the_next_epoch_except_for_the_own_row() -> None:
    """Without a permit only a row that points at oneself is taken."""
    graph, validator = metagraph("v", "b"), neuron(0, "v")
    waiting = reason_against_row(resolve_row(target(("b", PPM)), graph, validator), state(permit=False), 2)
    assert waiting is not None
    assert (waiting.code, waiting.at_block) == ("NOT_PERMITTED", 110)
    own = resolve_row(target(("v", PPM)), graph, validator)
    assert reason_against_row(own, state(permit=False, min_allowed_weights=9), 2) is None


def test_too_few_weights_and_too_large_a_weight_are_named_with_numbers() -> None:
    """Limits of the subnet are reported, not worked around."""
    graph, validator = metagraph("v", "b", "c"), neuron(0, "v", permit=True)
    row = resolve_row(target(("b", 900_000), ("c", 100_000)), graph, validator)
    few = reason_against_row(row, state(min_allowed_weights=8), 3)
    assert few is not None
    assert (few.code, few.current, few.needed) == ("WEIGHTS_TOO_FEW", "2", "3")
    large = reason_against_row(row, state(max_weight_limit=32_767), 3)
    assert large is not None
    assert large.code == "WEIGHT_ABOVE_LIMIT"
    assert large.needed == "at most 499992 ppm"


def test_too_little_stake_is_named_in_tao() -> None:
    """The stake there is and the stake needed are both in the reason."""
    waiting = reason_of_stake(state(stake_threshold=1_000_000_000_000), 999_500_000_000)
    assert waiting is not None
    assert (waiting.code, waiting.current, waiting.needed) == ("STAKE_TOO_LOW", "999.500000000", "1000.000000000")
    assert reason_of_stake(state(stake_threshold=5), 5) is None


@pytest.mark.parametrize(
    "waiting",
    [
        reason_to_wait(state(uid=None), 0, 101),
        reason_to_wait(state(), 3, 101),
        reason_to_wait(state(last_update=99), 0, 101),
        reason_of_stake(state(stake_threshold=9), 5),
        too_many_commits(10, parameters()),
        reason_not_to_burn(WeightTarget((("gone", PPM),), "d" * 64, 5, "gone"), metagraph("v")),
    ],
)
def test_every_reason_says_what_there_is_what_is_needed_and_when(waiting: Waiting | None) -> None:
    """A reason has both values and a block, or words that say whose turn it is and when it works then."""
    assert waiting is not None
    assert waiting.current
    assert waiting.needed
    words = ("in the block after", "set ", "paid")
    assert waiting.at_block is not None or any(word in waiting.message for word in words)


def test_rows_match_whatever_their_order() -> None:
    """Equality is by UID and value; a longer, shorter or different row is another row."""
    assert rows_match((1, 2), (5, 6), ((2, 6), (1, 5)))
    for other in ((), ((1, 5),), ((1, 5), (2, 7)), ((1, 5), (2, 6), (3, 1)), ((1, 5), (1, 5), (2, 6))):
        assert not rows_match((1, 2), (5, 6), other)
