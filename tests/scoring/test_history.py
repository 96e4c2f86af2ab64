"""Which chains of settlement events can have happened."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import GradeError, InternalError
from scoring.history import follow_history
from scoring.settle import (
    GENESIS,
    Candidate,
    CrownState,
    FinalizedOrder,
    SettlementEvent,
    incumbents,
    plan,
    replay,
    revoke,
)


def chain(*events: SettlementEvent) -> tuple[SettlementEvent, ...]:
    """The same events, numbered and linked: what a hostile validator would sign."""
    linked: list[SettlementEvent] = []
    for event in events:
        previous = linked[-1].digest if linked else GENESIS
        linked.append(msgspec.structs.replace(event, sequence=len(linked) + 1, previous=previous))
    return tuple(linked)


def event(kind: Any, name: str, cause: str = "", **changes: Any) -> SettlementEvent:
    """One event about the submission `name` on target `a`; evidence and order follow from the names."""
    by = cause or name
    evidence = (f"{name}1", f"{name}2") if kind in ("CROWN", "REVOKE") else ()
    reason = "WRONG_OUTPUT" if kind == "REVOKE" else ""
    if kind == "REVOKE":
        evidence = (f"{name}3", f"{name}4")
    made = SettlementEvent(
        1, kind, name, by, FinalizedOrder(5, 1, 0, by, f"hash of {by}"), "a", ("a",), "tree", 1_200_000, evidence, "",
        reason,
    )
    return msgspec.structs.replace(made, **changes)


ANN, BOB = event("CROWN", "ann"), event("CROWN", "bob")
BOB_TAKES = event("RETIRE", "ann", "bob")


def refused(*events: SettlementEvent) -> str:
    """The sentence with which a chain is refused."""
    with pytest.raises(GradeError) as found:
        follow_history(chain(*events))
    assert found.value.code == "LEDGER_UNLAWFUL"
    return found.value.message


def test_what_settling_writes_is_lawful() -> None:
    """A crown, a successor on its target, a revocation, and the same submission crowned again on other attempts."""
    again = event("CROWN", "bob", evidence=("b5", "b6"))
    events = chain(ANN, BOB_TAKES, BOB, event("REVOKE", "bob"), again)
    assert follow_history(events) == replay(events)


@pytest.mark.parametrize(
    ("events", "says"),
    [
        ((ANN, BOB), "both would earn"),
        ((ANN, event("CROWN", "bob", target_id="b", members=("a", "b"))), "both would earn"),
        ((ANN, BOB_TAKES), "nobody who took it"),
        ((ANN, BOB_TAKES, event("STALE_INCUMBENT", "cid")), "its winner does not follow"),
        ((ANN, BOB_TAKES, event("CROWN", "cid")), "for another submission"),
        ((ANN, event("RETIRE", "ann", "bob"), event("CROWN", "bob", target_id="b", members=("b",))), "shares no slot"),
        ((ANN, event("DISPLACE", "ann", "bob"), BOB), "in another way than its target says"),
        ((ANN, msgspec.structs.replace(BOB_TAKES, speedup_ppm=1_000_001), BOB), "other terms than the crown had"),
        ((ANN, msgspec.structs.replace(BOB_TAKES, evidence=("x",)), BOB), "evidence or a reason"),
        ((ANN, BOB_TAKES, BOB, event("RETIRE", "bob", "ann"), event("CROWN", "ann", evidence=("x", "y"))),
         "taken by a challenger before"),
        ((ANN, event("REVOKE", "ann"), ANN), "an attempt that an earlier event rests on"),
        ((ANN, event("REVOKE", "ann", evidence=("x",))), "it does not name two"),
        ((ANN, event("REVOKE", "ann", evidence=("x", "x"))), "it does not name two"),
        ((ANN, event("REVOKE", "ann", evidence=("ann1", "x"))), "an attempt that an earlier event rests on"),
        ((ANN, event("REVOKE", "ann", "bob")), "another submission as its cause"),
        ((ANN, event("REVOKE", "ann", reason="")), "names no reason"),
        ((ANN, event("REVOKE", "ann", order=FinalizedOrder(6, 1, 0, "ann", "hash of ann"))), "another reveal"),
        ((event("CROWN", "ann", speedup_ppm=1_000_000),), "no faster"),
        ((event("CROWN", "ann", members=()),), "no slots"),
        ((event("CROWN", "ann", members=("a", "a")),), "no slots"),
        ((event("CROWN", "ann", "bob"),), "somebody else"),
        ((event("CROWN", "ann", reason="X"),), "has no reason"),
    ],
)
def test_what_settling_never_writes_is_refused(events: tuple[SettlementEvent, ...], says: str) -> None:
    """Each forgery has a sentence of its own; hash chain and numbers are in order in all of them."""
    assert says in refused(*events)


def test_a_broken_chain_is_told_as_one() -> None:
    """A missing event, and the end of a crown that is not live."""
    for events in (chain(ANN, BOB_TAKES, BOB)[1:], chain(event("REVOKE", "ann"))):
        with pytest.raises(InternalError) as found:
            follow_history(events)
        assert found.value.code == "EVENT_CHAIN_BROKEN"


SETS = (("a",), ("b",), ("c",), ("a", "b"), ("b", "c"))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 9), st.booleans()), max_size=14))
def test_every_history_that_settling_makes_is_lawful(moves: list[tuple[int, int, bool]]) -> None:
    """Crowns on overlapping targets, several at once, ones that end, and revocations in between."""
    state, events = CrownState(), []
    waiting: list[Candidate] = []
    for number, (kind, gain, settle) in enumerate(moves):
        members = SETS[kind]
        order = FinalizedOrder(number, 0, 0, f"5M{number}", f"{number:064x}")
        waiting.append(Candidate(
            f"s{number}", order, "+".join(members), members, "tree", 1_000_000 + gain, incumbents(state, members),
            (f"{number}-1", f"{number}-2"),
        ))
        if settle:
            done = plan(state, waiting)
            events += done.events
            state, waiting = done.state, []
            if gain == 1 and state.crowns:
                crown = state.crowns[0]
                at = FinalizedOrder(crown.crowned_block, 0, 0, crown.hotkey, crown.content_hash)
                ended = revoke(state, crown.submission_id, at, reason="X", evidence=(f"r{number}", f"q{number}"))
                events += ended.events
                state = ended.state
    assert follow_history(events) == state
