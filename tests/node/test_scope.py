"""What is crowned is what was measured: the scope of an attempt, and settlement over random sequences of crowns."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.active_set import footprint
from config.canonical import sha256_hex
from config.target_catalog import load_catalog
from node.services.scope import Scope, scope_of
from qualify.engine_tree import EngineTree, Part
from scoring.settle import Candidate, CrownState, FinalizedOrder, Plan, plan

CATALOG = load_catalog()
ATOMIC = "collective.moe_epilogue.v1"
FIRST, SECOND = CATALOG.targets[ATOMIC].members
SILU, NORM = "activation.silu_and_mul", "norm.rmsnorm"
PLAIN, REDUCE = "moe.fused_experts", "moe.fused_experts_reduce"
TARGETS = (ATOMIC, FIRST, SECOND, SILU, PLAIN, REDUCE)


class Chain:
    """Crowns over time, and candidates as the node would measure and settle them."""

    def __init__(self) -> None:
        self.state = CrownState()
        self.measured: dict[int, tuple[Scope, str]] = {}  # by number: the scope and tree of its attempts
        self.targets: dict[int, str] = {}

    def content(self, number: int) -> str:
        """Return the content hash of a candidate."""
        return sha256_hex(b"%d" % number)

    def measure(self, number: int, target: str = "") -> None:
        """Measure a candidate against the crowns as they are."""
        self.targets.setdefault(number, target)
        found = CATALOG.targets[self.targets[number]]
        scope = scope_of(CATALOG, self.state, found)
        self.measured[number] = (scope, scope.tree_with(found, self.content(number)).digest)

    def settle(self, *numbers: int, speed: dict[int, int] | None = None) -> Plan:
        """Settle candidates, and see that each new crown is in the tree in which it was measured."""
        before = {number: scope_of(CATALOG, self.state, CATALOG.targets[self.targets[number]]) for number in numbers}
        settled = plan(self.state, [self._candidate(number, (speed or {}).get(number, 0)) for number in numbers])
        self.state = settled.state
        crowned = {event.submission_id for event in settled.events if event.type == "CROWN"}
        for number in numbers:
            if f"s{number}" in crowned:
                assert self.tree_over(before[number].slots).digest == self.measured[number][1]
        return settled

    def tree_over(self, slots: tuple[str, ...]) -> EngineTree:
        """Return the tree of the live crowns over `slots`."""
        live = [crown for crown in self.state.crowns if set(slots).intersection(crown.members)]
        return EngineTree.of(CATALOG, [Part(crown.target_id, crown.content_hash) for crown in live])

    def _candidate(self, number: int, speed: int) -> Candidate:
        target = CATALOG.targets[self.targets[number]]
        scope, tree = self.measured[number]
        now = scope_of(CATALOG, self.state, target)
        return Candidate(
            f"s{number}", FinalizedOrder(number, 0, 0, "5M", self.content(number)), target.id, target.members, tree,
            1_100_000 + speed, scope.measured_against, footprint=now.slots,
            tree_now=now.tree_with(target, self.content(number)).digest,
        )


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 2**32))
def test_every_crown_lands_in_the_tree_it_was_measured_in(seed: int) -> None:
    """Whatever is crowned when, and however many at once: the tree is the measured one, or the candidate is stale."""
    draw, chain = random.Random(seed), Chain()
    waiting: list[int] = []
    for number in range(draw.randint(1, 24)):
        chain.measure(number, draw.choice(TARGETS))
        waiting.append(number)
        if draw.random() < 0.6:
            picked = draw.sample(waiting, draw.randint(1, len(waiting)))
            settled = chain.settle(*picked, speed={one: draw.randint(0, 9) for one in picked})
            for one in picked:
                if f"s{one}" in settled.remeasure:
                    chain.measure(one)
                else:
                    waiting.remove(one)
    # Nothing that keeps being measured again is lost for ever: settled one by one, everybody gets a turn.
    for one in waiting:
        chain.measure(one)
        assert chain.settle(one).remeasure == ()


def test_a_displacing_single_concerns_both_slots() -> None:
    """Two singles that would displace one atomic crown cannot win together: neither was measured beside the other."""
    chain = Chain()
    chain.measure(1, ATOMIC)
    chain.settle(1)
    chain.measure(2, FIRST)
    chain.measure(3, SECOND)
    assert chain.measured[2][0].slots == tuple(sorted((FIRST, SECOND)))
    settled = chain.settle(2, 3, speed={3: 5})
    assert [(event.type, event.submission_id) for event in settled.events] == [
        ("DISPLACE", "s1"), ("CROWN", "s3"), ("STALE_INCUMBENT", "s2"),
    ]
    chain.measure(2)
    assert chain.measured[2][0].slots == (FIRST,)  # nobody's second slot is at stake any more
    assert chain.settle(2).remeasure == ()
    assert {crown.submission_id for crown in chain.state.crowns} == {"s2", "s3"}


def test_a_pass_in_another_tree_is_stale_whatever_it_was_measured_against() -> None:
    """The digest of the measured tree counts by itself: evidence of an earlier rule about trees crowns nobody."""
    chain = Chain()
    chain.measure(1, SILU)
    scope, _ = chain.measured[1]
    chain.measured[1] = (scope, "0" * 64)
    assert chain.settle(1).remeasure == ("s1",)
    assert chain.state.crowns == ()


def test_targets_of_one_binding_are_settled_one_after_the_other() -> None:
    """The reduce form decides which calls reach the plain one, so the one is part of the other's tree."""
    chain = Chain()
    chain.measure(1, PLAIN)
    chain.measure(2, REDUCE)
    settled = chain.settle(1, 2)
    assert [(event.type, event.submission_id) for event in settled.events] == [
        ("CROWN", "s1"), ("STALE_INCUMBENT", "s2"),
    ]


@pytest.mark.parametrize(
    ("active", "target", "slots"),
    [
        ([], SILU, {SILU}),
        ([NORM, ATOMIC, PLAIN], SILU, {SILU}),
        ([], FIRST, {FIRST}),
        ([SECOND], FIRST, {FIRST}),
        ([ATOMIC], FIRST, {FIRST, SECOND}),
        ([], ATOMIC, {FIRST, SECOND}),
        ([], PLAIN, {PLAIN, REDUCE}),
        ([PLAIN], REDUCE, {PLAIN, REDUCE}),
    ],
)
def test_the_footprint_is_what_a_crown_touches(active: list[str], target: str, slots: set[str]) -> None:
    """Its members, what it takes away, and what shares a binding with these."""
    assert footprint(CATALOG, active, target) == slots


def test_other_targets_are_no_part_of_a_scope() -> None:
    """The tree of an attempt holds the crowns over its slots and nothing else."""
    chain = Chain()
    for number, target in enumerate((NORM, ATOMIC, SILU), 1):
        chain.measure(number, target)
        chain.settle(number)
    scope = scope_of(CATALOG, chain.state, CATALOG.targets[SILU])
    assert [part.target_id for part in scope.tree.parts] == [SILU]
    assert scope.incumbent == chain.content(3)
    assert scope.measured_against == ("s3",)
