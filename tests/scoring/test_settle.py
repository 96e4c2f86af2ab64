"""Settlement is a pure function of sets, and its events replay to its state."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import InternalError
from scoring.settle import (
    Candidate,
    CrownState,
    FinalizedOrder,
    Plan,
    SettlementEvent,
    Unresolved,
    apply_event,
    incumbents,
    live_claims,
    plan,
    replay,
    revoke,
)

NORM, SILU = ("norm",), ("silu",)
BOTH = ("norm", "silu")


def order(block: int) -> FinalizedOrder:
    """Return the place of a reveal in block `block`."""
    return FinalizedOrder(block, 0, 0, f"5M{block}", f"{block:064x}")


def candidate(
    block: int, members: tuple[str, ...] = NORM, speedup_ppm: int = 1_200_000, against: tuple[str, ...] = ()
) -> Candidate:
    """Return a candidate revealed at `block`."""
    return Candidate(f"s{block}", order(block), "+".join(members), members, "t" * 64, speedup_ppm, against)


def kinds(result: Plan) -> list[tuple[str, str]]:
    """Return the (type, submission) pairs of a plan's events."""
    return [(event.type, event.submission_id) for event in result.events]


def crowned(*candidates: Candidate) -> CrownState:
    """Return the state after settling `candidates`, one after the other."""
    state = CrownState()
    for one in candidates:
        state = plan(state, [one]).state
    return state


def test_the_first_winner_is_crowned_and_earns_a_claim() -> None:
    """A crown's claim names its holder, gain and reveal block."""
    result = plan(CrownState(), [candidate(7)])
    assert kinds(result) == [("CROWN", "s7")]
    (claim,) = live_claims(result.state)
    assert (claim.hotkey, claim.speedup_ppm, claim.crowned_block) == ("5M7", 1_200_000, 7)
    assert claim.claim_id == result.events[0].digest


def test_the_fastest_wins_and_the_other_is_measured_again() -> None:
    """Of two for one target the faster is crowned; the slower is stale now, not failed."""
    result = plan(CrownState(), [candidate(1, speedup_ppm=1_100_000), candidate(2, speedup_ppm=1_300_000)])
    assert kinds(result) == [("CROWN", "s2"), ("STALE_INCUMBENT", "s1")]
    assert result.remeasure == ("s1",)
    assert result.events[1].cause == "s2"


def test_finalized_order_breaks_ties() -> None:
    """Equal speed-ups: the earlier reveal wins."""
    assert kinds(plan(CrownState(), [candidate(2), candidate(1)]))[0] == ("CROWN", "s1")


def test_disjoint_winners_share_a_transition() -> None:
    """Two targets without common members are crowned together."""
    result = plan(CrownState(), [candidate(1, NORM), candidate(2, SILU)])
    assert sorted(kinds(result)) == [("CROWN", "s1"), ("CROWN", "s2")]
    assert result.remeasure == ()


def test_a_successor_retires_the_holder() -> None:
    """Measured against the holder and faster: the holder's crown ends and its claim with it."""
    state = crowned(candidate(1))
    result = plan(state, [candidate(2, against=("s1",))])
    assert kinds(result) == [("RETIRE", "s1"), ("CROWN", "s2")]
    assert [claim.hotkey for claim in live_claims(result.state)] == ["5M2"]


def test_a_stale_candidate_is_returned_for_measuring() -> None:
    """Measured against stock while a crown is live: measured again, free of charge."""
    result = plan(crowned(candidate(1)), [candidate(2)])
    assert kinds(result) == [("STALE_INCUMBENT", "s2")]
    assert result.remeasure == ("s2",)


def test_an_atomic_crown_displaces_the_singles_it_covers() -> None:
    """A crown over two members ends both single crowns; a later single one ends the atomic."""
    state = crowned(candidate(1, NORM), candidate(2, SILU))
    result = plan(state, [candidate(3, BOTH, against=("s1", "s2"))])
    assert kinds(result) == [("DISPLACE", "s1"), ("DISPLACE", "s2"), ("CROWN", "s3")]
    back = plan(result.state, [candidate(4, NORM, against=("s3",))])
    assert kinds(back) == [("DISPLACE", "s3"), ("CROWN", "s4")]
    assert incumbents(back.state, SILU) == ()


def test_an_earlier_unresolved_submission_blocks_only_what_overlaps_it() -> None:
    """Overlapping and later waits; disjoint, earlier, or of unknown members does not."""
    waiting = plan(CrownState(), [candidate(5)], [Unresolved("u", order(4), NORM)])
    assert (waiting.events, waiting.waiting) == ((), ("s5",))
    for other in (Unresolved("u", order(4), SILU), Unresolved("u", order(6), NORM), Unresolved("u", order(4))):
        assert kinds(plan(CrownState(), [candidate(5)], [other])) == [("CROWN", "s5")]


def test_who_waits_is_not_overtaken_on_its_slots() -> None:
    """A submission in front of a candidate stops whoever would take the candidate's slots meanwhile, and no other."""
    blocked = candidate(5, BOTH, speedup_ppm=1_500_000)
    later, aside = candidate(6, NORM), candidate(7, ("moe",))
    result = plan(CrownState(), [blocked, later, aside], [Unresolved("u", order(4), SILU)])
    assert kinds(result) == [("CROWN", "s7")]
    assert (result.waiting, result.remeasure) == (("s5", "s6"), ())
    freed = plan(result.state, [blocked, later])
    assert kinds(freed) == [("CROWN", "s5"), ("STALE_INCUMBENT", "s6")]


def test_an_earlier_winner_makes_who_waits_stale() -> None:
    """Waiting protects from those behind: who stands before both the candidate and what it waits for wins as ever."""
    result = plan(
        CrownState(), [candidate(2, NORM), candidate(5, BOTH, speedup_ppm=1_500_000)], [Unresolved("u", order(4), SILU)]
    )
    assert kinds(result) == [("CROWN", "s2"), ("STALE_INCUMBENT", "s5")]
    assert (result.waiting, result.remeasure) == ((), ("s5",))


def test_a_revoked_crown_ends_alone() -> None:
    """Its claim ends, other crowns stay, and who was measured against it is stale."""
    state = crowned(candidate(1), candidate(2, SILU))
    result = revoke(state, "s1", order(1), reason="ARM_RAISED", evidence=("a" * 64, "b" * 64))
    (event,) = result.events
    assert (event.type, event.cause, event.reason, event.evidence) == (
        "REVOKE", "s1", "ARM_RAISED", ("a" * 64, "b" * 64)
    )
    assert [claim.hotkey for claim in live_claims(result.state)] == ["5M2"]
    assert apply_event(state, event) == result.state
    assert kinds(plan(result.state, [candidate(3, against=("s1",))])) == [("STALE_INCUMBENT", "s3")]
    with pytest.raises(InternalError) as refused:
        revoke(result.state, "s1", order(1), reason="ARM_RAISED", evidence=("a" * 64, "b" * 64))
    assert refused.value.code == "CROWN_NOT_LIVE"


def test_digests_of_events_without_a_reason_are_those_of_before_there_was_one() -> None:
    """The chain of a ledger that an earlier release wrote still holds."""
    (event,) = plan(CrownState(), [candidate(7)]).events
    assert "reason" not in msgspec.to_builtins(event)
    assert event.digest == "088582d47e35bcd1b584d71bf024e520db0cea5f1e125245a608dde49d23b676"


@pytest.mark.parametrize(
    ("candidates", "code"),
    [
        ([candidate(2), candidate(2)], "CANDIDATE_DUPLICATE"),
        ([candidate(1)], "CANDIDATE_SETTLED"),
        ([candidate(2, speedup_ppm=1_000_000)], "CANDIDATE_NO_GAIN"),
        ([candidate(2, ())], "CANDIDATE_NO_MEMBERS"),
    ],
)
def test_impossible_candidates_have_a_code(candidates: list[Candidate], code: str) -> None:
    """Nothing is crowned twice, without gain, or without members."""
    with pytest.raises(InternalError) as refused:
        plan(crowned(candidate(1)), candidates)
    assert refused.value.code == code


MEMBERS = st.sampled_from([NORM, SILU, BOTH, ("moe",), ("moe", "norm")])


@st.composite
def situations(draw: st.DrawFn) -> tuple[CrownState, list[Candidate], list[Unresolved]]:
    """Return a state, candidates measured against it or against stock, and unresolved submissions."""
    state = crowned(*[candidate(100 + i, draw(MEMBERS)) for i in range(draw(st.integers(0, 1)))])
    fresh = [
        candidate(block, members, draw(st.integers(1_000_001, 1_000_004)))
        for block, members in enumerate(draw(st.lists(MEMBERS, max_size=6)))
    ]
    candidates = [
        msgspec.structs.replace(one, measured_against=incumbents(state, one.members)) if draw(st.booleans()) else one
        for one in fresh
    ]
    unresolved = [
        Unresolved(f"u{block}", order(block), members)
        for block, members in draw(st.lists(st.tuples(st.integers(0, 6), MEMBERS | st.just(())), max_size=3))
    ]
    return state, candidates, unresolved


@settings(deadline=None)
@given(situations(), st.randoms())
def test_a_plan_depends_on_sets_and_replays_to_its_state(
    situation: tuple[CrownState, list[Candidate], list[Unresolved]], chance: random.Random
) -> None:
    """Any order of the inputs gives the same plan; its events lead from the old state to the new one; crowns are
    disjoint; every candidate is crowned, returned or waiting, exactly once."""
    state, candidates, unresolved = situation
    result = plan(state, candidates, unresolved)
    shuffled, also = list(candidates), list(unresolved)
    chance.shuffle(shuffled)
    chance.shuffle(also)
    assert plan(state, shuffled, also) == result
    again = state
    for event in result.events:
        again = apply_event(again, event)
    assert again == result.state
    members = [member for crown in result.state.crowns for member in crown.members]
    assert len(members) == len(set(members))
    won = [event.submission_id for event in result.events if event.type == "CROWN"]
    assert sorted([*won, *result.remeasure, *result.waiting]) == sorted(one.submission_id for one in candidates)


def history() -> tuple[Any, ...]:
    """Return the events of three settlements."""
    state, events = CrownState(), []
    for one in (candidate(1), candidate(2, SILU), candidate(3, BOTH, against=("s1", "s2"))):
        result = plan(state, [one])
        events.extend(result.events)
        state = result.state
    assert replay(events) == state
    return tuple(events)


def test_a_broken_chain_is_detected() -> None:
    """Removing, repeating, exchanging or changing an event breaks the replay."""
    events = history()
    faster = msgspec.structs.replace(events[0], speedup_ppm=9_000_000)
    broken = (events[1:], (events[0], *events), (events[1], events[0], *events[2:]), (faster, *events[1:]))
    for chain in broken:
        with pytest.raises(InternalError) as refused:
            replay(chain)
        assert refused.value.code == "EVENT_CHAIN_BROKEN"


def test_ending_a_crown_that_is_not_live_is_refused() -> None:
    """A retirement needs a holder."""
    event = msgspec.structs.replace(history()[0], type="RETIRE")
    with pytest.raises(InternalError) as refused:
        replay([event])
    assert refused.value.code == "EVENT_CHAIN_BROKEN"


SLOTS = ("norm", "silu", "moe", "tail")
SETS = st.sets(st.sampled_from(SLOTS), min_size=1, max_size=3).map(lambda found: tuple(sorted(found)))


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(SETS, st.integers(1, 5)), min_size=1, max_size=16), st.integers(0, 2**32))
def test_long_histories_lose_and_double_nothing(entrants: list[tuple[tuple[str, ...], int]], seed: int) -> None:
    """Over long histories of measuring, settling in any company and order, revoking and starting again from the events:
    a slot has one holder, every crown is ended by exactly one event or live, claims are those of the live crowns, and
    nobody that keeps being measured is left without a turn."""
    chance, state, events = random.Random(seed), CrownState(), list[SettlementEvent]()
    measured: dict[int, Candidate] = {}

    def footprint(members: tuple[str, ...]) -> tuple[str, ...]:
        ended = [crown.members for crown in state.crowns if set(crown.members) & set(members)]
        return tuple(sorted(set(members).union(*ended)))

    def measure(block: int) -> None:
        members, gain = entrants[block]
        slots = footprint(members)
        measured[block] = msgspec.structs.replace(
            candidate(block, members, 1_000_000 + gain), measured_against=incumbents(state, slots), footprint=slots
        )

    waiting = list(range(len(entrants)))
    for block in waiting:
        measure(block)
    for _ in range(3 * len(entrants)):
        picked = chance.sample(waiting, chance.randint(0, len(waiting)))
        now = [
            msgspec.structs.replace(measured[block], footprint=footprint(entrants[block][0])) for block in picked
        ]
        before = [Unresolved(f"u{block}", order(block), footprint(entrants[block][0])) for block in waiting
                  if block not in picked and chance.random() < 0.2]  # fmt: skip
        result = plan(state, now, before)
        chance.shuffle(now)
        assert plan(state, now, before) == result
        events += result.events
        state = result.state
        won = {event.order.block for event in result.events if event.type == "CROWN"}
        waiting = [block for block in waiting if block not in won]
        for name in result.remeasure:
            measure(int(name[1:]))
        if state.crowns and chance.random() < 0.2:
            gone = chance.choice(state.crowns)
            ended = revoke(
                state, gone.submission_id, order(gone.crowned_block), reason="ARM_RAISED", evidence=("a", "b")
            )
            events += ended.events
            state = ended.state
        if chance.random() < 0.2:
            assert replay(events) == state
        _account(state, events)
    for block in waiting:  # one after the other, everybody gets his crown
        measure(block)
        result = plan(state, [measured[block]])
        events, state = [*events, *result.events], result.state
        assert f"s{block}" in {crown.submission_id for crown in state.crowns}
    assert replay(events) == state
    _account(state, events)


def _account(state: CrownState, events: list[SettlementEvent]) -> None:
    held = [slot for crown in state.crowns for slot in crown.members]
    assert len(held) == len(set(held))
    crowned = [event.submission_id for event in events if event.type == "CROWN"]
    ended = [event.submission_id for event in events if event.type in ("RETIRE", "DISPLACE", "REVOKE")]
    assert len(set(crowned)) == len(crowned)
    assert len(set(ended)) == len(ended)
    assert sorted([*ended, *(crown.submission_id for crown in state.crowns)]) == sorted(crowned)
    assert {claim.claim_id for claim in live_claims(state)} == {crown.event_digest for crown in state.crowns}
