"""A proved steady gain hides no slow calls, wherever a candidate puts them; and noise alone is no slow call."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.arena import SPEED_POLICIES
from scoring import conditioning
from scoring.attempt import Attempt, Launch
from scoring.grade import grade
from scoring.policy import CONDITIONED_SPEED_POLICY, POLICIES, find_policy
from tests.scoring.support import FakeReferee, change, make_arena, out_of_time, relaid

ARENA = make_arena(speed_policy=CONDITIONED_SPEED_POLICY, blocks_per_launch=10, warmup_calls=4, launches_max=40)
GOOD = FakeReferee(ARENA).measure()
MILLISECOND = 1_000_000
Edit = Callable[[Launch], Launch]


def edited(attempt: Attempt, edit: Edit) -> Attempt:
    """Return `attempt` with every launch edited and its times laid out anew."""
    return relaid(msgspec.structs.replace(attempt, launches=tuple(edit(launch) for launch in attempt.launches)))


def stall(launch: Launch, block: int, ns: int, role: str = "candidate") -> Launch:
    """Return `launch` with the first call of one timed block longer."""
    place = f"blocks.{block}.{role}.call_ns.0"
    return change(launch, place, getattr(launch.blocks[block], role).call_ns[0] + ns)


def wait(launch: Launch, call: int, ns: int, role: str = "candidate") -> Launch:
    """Return `launch` with one warm-up call longer."""
    return change(launch, f"{role}.warmup_ns.{call}", getattr(launch, role).warmup_ns[call] + ns)


def start_late(launch: Launch, ns: int) -> Launch:
    """Return `launch` with a candidate that starts later."""
    return change(launch, "candidate.arms.0.ready_ns", launch.candidate.ready_ns + ns)


def test_work_put_off_to_a_timed_call_is_a_slow_first_call() -> None:
    """The median over blocks does not see one slow block; the sum of what a launch loses does."""
    verdict = grade(edited(GOOD, lambda launch: stall(launch, 0, 50 * MILLISECOND)), ARENA)
    assert (verdict.outcome, verdict.code, verdict.blame) == ("FAIL", "SLOW_FIRST_CALL", "miner")
    assert grade(edited(GOOD, lambda launch: stall(launch, 0, 2 * MILLISECOND)), ARENA).code == "PASS"


def test_a_call_that_each_process_draws_anew_is_found() -> None:
    """Whichever warm-up call or block of a case pays in a launch, the launch has paid; no position shows it."""

    def pays(launch: Launch) -> Launch:
        place = random.Random(launch.index).randrange(6)
        if place < 2:
            return wait(launch, 2 * place, 50 * MILLISECOND)
        return stall(launch, 2 * place - 4, 50 * MILLISECOND)

    assert grade(edited(GOOD, pays), ARENA).code == "SLOW_FIRST_CALL"


def test_work_spread_over_starts_and_first_calls_by_turns_is_found() -> None:
    """Two launches of five are slow to start, two have a slow first call of one case, one of the other case."""

    def pays(launch: Launch) -> Launch:
        turn = launch.index % 5
        return start_late(launch, 900 * MILLISECOND) if turn < 2 else wait(launch, turn % 2, 900 * MILLISECOND)

    verdict = grade(edited(GOOD, pays), ARENA)
    assert (verdict.code, verdict.reason.partition(":")[0]) == ("SLOW_START", "start and first calls together")


@pytest.mark.parametrize("policy", sorted(set(SPEED_POLICIES) - {"cacheon.speed.v1"}))
def test_slow_blocks_that_medians_leave_out_leave_no_gain(policy: str) -> None:
    """Two blocks in five of every case are slow enough to eat the gain, and not as slow as a first call may be."""
    arena = msgspec.structs.replace(ARENA, speed_policy=policy)
    attempt = FakeReferee(arena).measure()
    verdict = grade(
        edited(attempt, lambda one: stall(stall(stall(stall(one, 2, 250_000), 3, 250_000), 6, 250_000), 7, 250_000)),
        arena,
    )
    assert (verdict.outcome, verdict.code, verdict.blame) == ("FAIL", "UNEVEN_SPEED", "miner")
    assert grade(edited(attempt, lambda one: stall(stall(one, 2, 250_000), 3, 250_000)), arena).code == "PASS"


def test_the_first_policy_knows_none_of_it() -> None:
    """What was judged under it stays judged."""
    arena = msgspec.structs.replace(ARENA, speed_policy="cacheon.speed.v1")
    attempt = FakeReferee(arena).measure()
    assert grade(edited(attempt, lambda launch: stall(launch, 0, 50 * MILLISECOND)), arena).code == "PASS"


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.05, 0.2]))
def test_stalls_that_meet_both_roles_alike_fail_nobody(number: int, often: float) -> None:
    """Stalls of up to 30 times a call, in a fifth of all calls of both roles, are no fault of the candidate's."""
    draw = random.Random(number)

    def noisy(launch: Launch) -> Launch:
        for role in ("baseline", "candidate"):
            for call in range(len(launch.candidate.warmup_ns)):
                launch = wait(launch, call, draw.randrange(3 * MILLISECOND) if draw.random() < often else 0, role)
            for block in range(len(launch.blocks)):
                launch = stall(launch, block, draw.randrange(3 * MILLISECOND) if draw.random() < often else 0, role)
        return launch

    attempt = edited(GOOD, noisy)
    policy = POLICIES[CONDITIONED_SPEED_POLICY].conditioning
    assert policy is not None
    assert conditioning.uneven(attempt, ARENA) is None
    found = conditioning.regression(attempt, 1_050_000, policy, ARENA.alpha_ppm)
    assert found is None


def test_one_launch_that_stalls_uses_up_nobodys_time() -> None:
    """Nine launches of a second, then a machine that stands still for 45 s: none of that is the candidate's."""
    arena = make_arena(speed_policy=CONDITIONED_SPEED_POLICY)
    referee = FakeReferee(arena, gain=-0.01)
    referee.start_ns = {"baseline": 500 * MILLISECOND, "candidate": 510 * MILLISECOND}
    made = tuple(referee.launch(index) for index in range(9))
    attempt = out_of_time(referee.document(made), arena)
    assert grade(attempt, arena).code == "TIME_BUDGET_SHORT"
    inside = edited(attempt, lambda launch: start_late(launch, 51_000 * MILLISECOND) if launch.index == 8 else launch)
    assert grade(inside, arena).code == "TIME_BUDGET_SHORT"


def test_a_slower_kernel_does_not_explain_a_machine_that_has_no_time() -> None:
    """A candidate at half the speed on a machine that is too slow for the incumbent as well gets a RETRY."""
    arena = make_arena(speed_policy=CONDITIONED_SPEED_POLICY)
    referee = FakeReferee(arena)
    referee.start_ns = {"baseline": 8_000 * MILLISECOND, "candidate": 16_000 * MILLISECOND}
    made = tuple(referee.launch(index) for index in range(3))
    assert grade(msgspec.structs.replace(referee.document(made), ending="time"), arena).code == "TIME_BUDGET_SHORT"


def test_what_counts_is_named_by_the_policy() -> None:
    """Every policy after the first has constants for it."""
    named = {name for name in POLICIES if find_policy(name).conditioning is not None}
    assert named == set(SPEED_POLICIES) - {"cacheon.speed.v1"}
