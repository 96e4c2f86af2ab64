"""What a proved gain must not hide, and how nobody escapes a FAIL by being slow."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.arena import SPEED_POLICIES
from scoring import fitness
from scoring.attempt import ArmRecord, Attempt, Block, CaseWork, Incident, Launch
from scoring.grade import REVIEW_CODES, Verdict, grade
from scoring.policy import CONDITIONED_SPEED_POLICY, POLICIES, find_policy
from tests.scoring.support import FakeReferee, change, make_arena, out_of_time, relaid

ARENA = make_arena(speed_policy=CONDITIONED_SPEED_POLICY)
FLOORED = make_arena(
    speed_policy=CONDITIONED_SPEED_POLICY, peak_bytes_per_second=10**9, peak_operations_per_second=10**9
)
GOOD = FakeReferee(ARENA).measure()
POLICY = find_policy(CONDITIONED_SPEED_POLICY)
CONDITIONING = POLICY.conditioning
MILLISECOND = 1_000_000


def of_candidate(attempt: Attempt, edit: Any) -> Attempt:
    """Return `attempt` with `edit` applied to the candidate's record in every launch."""
    launches = tuple(
        msgspec.structs.replace(launch, candidate=edit(launch.candidate, launch.index)) for launch in attempt.launches
    )
    return relaid(msgspec.structs.replace(attempt, launches=launches))


def slower_warmup(extra: tuple[int, ...]) -> Any:
    """Return an edit that makes each warm-up call slower by `extra`."""

    def edit(record: ArmRecord, _index: int) -> ArmRecord:
        times = tuple(ns + more for ns, more in zip(record.warmup_ns, extra, strict=True))
        return msgspec.structs.replace(record, warmup_ns=times)

    return edit


def test_policies_have_the_names_that_arenas_may_use() -> None:
    """The arena document and the grader know the same policies, and the first one judges as it always did."""
    assert frozenset(POLICIES) == SPEED_POLICIES
    assert POLICIES["cacheon.speed.v1"].conditioning is None


def test_a_verdict_names_the_policy_of_its_attempt() -> None:
    """The policy is the file's, not the grader's newest."""
    assert grade(GOOD, ARENA).policy == CONDITIONED_SPEED_POLICY
    plain = make_arena()
    assert grade(FakeReferee(plain).measure(), plain).policy == "cacheon.speed.v1"


def test_a_slow_first_call_of_one_shape_fails_a_candidate_that_is_faster_ever_after() -> None:
    """100 calls at 1.4 times the speed save about 3 ms here: losing 2 ms passes, losing 50 ms at one shape does not."""
    assert grade(of_candidate(GOOD, slower_warmup((0, 2 * MILLISECOND))), ARENA).code == "PASS"
    verdict = grade(of_candidate(GOOD, slower_warmup((0, 50 * MILLISECOND))), ARENA)
    assert (verdict.outcome, verdict.code, verdict.blame) == ("FAIL", "SLOW_FIRST_CALL", "miner")
    assert "case 1" in verdict.reason


def test_what_is_put_off_to_the_second_call_of_a_shape_counts_too() -> None:
    """Every warm-up call of a shape is compared with the incumbent's at the same position."""
    arena = make_arena(speed_policy=CONDITIONED_SPEED_POLICY, warmup_calls=4)
    attempt = FakeReferee(arena).measure()
    assert grade(of_candidate(attempt, slower_warmup((0, 0, 50 * MILLISECOND, 0))), arena).code == "SLOW_FIRST_CALL"


def test_a_slow_prepare_and_a_slow_import_are_judged_apart_from_each_other() -> None:
    """10,000 calls save about 0.3 s here: a `prepare` or a start that loses seconds fails, and says which it was."""

    def prepares(record: ArmRecord, _index: int) -> ArmRecord:
        return change(record, "arms.0.prepare_ns", 2_000 * MILLISECOND)

    verdict = grade(of_candidate(GOOD, prepares), ARENA)
    assert (verdict.code, verdict.reason.partition(":")[0]) == ("SLOW_START", "prepare")
    referee = FakeReferee(ARENA)
    referee.start_ns["candidate"] = 2_000 * MILLISECOND
    verdict = grade(referee.measure(), ARENA)
    assert (verdict.code, verdict.reason.partition(":")[0]) == ("SLOW_START", "start")


def test_half_as_long_again_needs_no_excuse() -> None:
    """Up to the policy's ratio nothing has to be earned back, however small the gain."""
    arena = make_arena(speed_policy=CONDITIONED_SPEED_POLICY, margin_ppm=0)
    attempt = FakeReferee(arena, gain=0.01, noise=0.0001).measure()
    assert grade(attempt, arena).code == "PASS"
    slower = of_candidate(attempt, slower_warmup((25_000, 25_000)))
    assert grade(slower, arena).code == "PASS"


def test_one_bad_launch_excuses_and_condemns_nobody() -> None:
    """A stall in two launches of ten changes nothing; in nine it fails, because fair coins would not have it so."""

    def stalls(count: int) -> Attempt:
        edit = slower_warmup((500 * MILLISECOND, 0))
        return of_candidate(GOOD, lambda record, index: edit(record, index) if index < count else record)

    assert grade(stalls(2), ARENA).code == "PASS"
    assert grade(stalls(9), ARENA).code == "SLOW_FIRST_CALL"


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_a_slower_first_call_never_helps(one: int, other: int) -> None:
    """Whoever fails with a first call fails with a slower one too."""
    low, high = sorted((one, other))
    codes = [grade(of_candidate(GOOD, slower_warmup((extra, 0))), ARENA).code for extra in (low, high)]
    assert codes in (["PASS", "PASS"], ["PASS", "SLOW_FIRST_CALL"], ["SLOW_FIRST_CALL", "SLOW_FIRST_CALL"])


def test_a_call_below_the_physical_floor_waits_for_a_person() -> None:
    """At 1 GB/s a kilobyte takes 1 us: calls of 67 us may be true; of a case with a megabyte they are not."""
    attempt = FakeReferee(FLOORED).measure()
    assert grade(attempt, FLOORED).code == "PASS"
    heavy = msgspec.structs.replace(attempt, work=(CaseWork(0, 1000, 1000), CaseWork(1, 80_000, 1)))
    verdict = grade(heavy, FLOORED)
    assert (verdict.outcome, verdict.code, verdict.blame) == ("RETRY", "BELOW_PHYSICAL_FLOOR", "operator")
    assert "the candidate's" in verdict.reason
    busy = msgspec.structs.replace(attempt, work=(CaseWork(0, 1, 80_000), CaseWork(1, 1, 1)))
    assert grade(busy, FLOORED).code == "BELOW_PHYSICAL_FLOOR"
    assert "incumbent" in grade(msgspec.structs.replace(attempt, work=(
        CaseWork(0, 10**9, 0), CaseWork(1, 10**9, 0))), FLOORED).reason  # fmt: skip


def test_an_arena_without_peaks_has_no_floor() -> None:
    """Peaks are the arena's to register; nothing measured takes their place."""
    attempt = msgspec.structs.replace(GOOD, work=(CaseWork(0, 10**15, 0), CaseWork(1, 10**15, 0)))
    assert grade(attempt, ARENA).code == "PASS"


def test_a_slower_candidate_below_the_floor_is_simply_not_faster() -> None:
    """Only what would be crowned needs a person."""
    attempt = FakeReferee(FLOORED, gain=-0.4).measure()
    heavy = msgspec.structs.replace(attempt, work=(CaseWork(0, 10**9, 0), CaseWork(1, 10**9, 0)))
    assert grade(heavy, FLOORED).code == "NOT_FASTER"


@pytest.mark.parametrize("policy", sorted(SPEED_POLICIES))
def test_a_review_lifts_the_codes_of_disbelief_and_nothing_else(policy: str) -> None:
    """After a review the same file passes, unless something else is wrong with it."""
    arena = make_arena(speed_policy=policy, implausible_speedup_ppm=1_100_000)
    attempt = FakeReferee(arena).measure()
    verdict = grade(attempt, arena)
    assert (verdict.outcome, verdict.code) == ("RETRY", "IMPLAUSIBLE_SPEEDUP")
    assert verdict.code in REVIEW_CODES
    assert grade(attempt, arena, reviewed=True).code == "PASS"
    slow = of_candidate(attempt, lambda record, _: change(record, "arms.0.prepare_ns", 3_000 * MILLISECOND))
    assert grade(slow, arena, reviewed=True).code == "SLOW_START"


def test_a_slow_start_fails_before_anybody_has_to_look() -> None:
    """Under the second policy a person is asked only about what nothing else is wrong with."""
    arena = make_arena(speed_policy=CONDITIONED_SPEED_POLICY, implausible_speedup_ppm=1_100_000)
    attempt = FakeReferee(arena).measure()
    slow = of_candidate(attempt, lambda record, _: change(record, "arms.0.prepare_ns", 3_000 * MILLISECOND))
    assert grade(slow, arena).code == "SLOW_START"


# --- time


def in_time(launches: int, *, start_s: float = 0.0, before_s: float = 1.0, **changes: Any) -> Verdict:
    """Return the verdict of an attempt that ended by time after so many launches; the candidate starts `start_s` late.

    A launch takes 1 s beside that, on a budget of 60 s for 10 launches.
    """
    arena = make_arena(speed_policy=CONDITIONED_SPEED_POLICY, **changes)
    referee = FakeReferee(arena, gain=0.0)
    referee.clock = round(before_s * 1e9)
    referee.start_ns = {"candidate": round(start_s * 1e9), "baseline": 500 * MILLISECOND}
    referee.pause_ns = 500 * MILLISECOND
    made = tuple(referee.launch(index) for index in range(launches))
    document = referee.document(made)
    over = made[-1].end_ns > arena.attempt_budget_seconds * 1_000_000_000
    return grade(msgspec.structs.replace(document, ending="time") if over else out_of_time(document, arena), arena)


def test_a_candidate_that_spends_the_time_fails() -> None:
    """Five launches of 12 s each: with the incumbent's start all ten would have fitted."""
    verdict = in_time(5, start_s=11.0)
    assert (verdict.outcome, verdict.code, verdict.blame) == ("FAIL", "CANDIDATE_TOO_SLOW", "miner")


def test_a_budget_that_is_too_short_for_the_incumbent_is_ours() -> None:
    """Both start in half a second, and a launch takes two: five seconds hold no ten launches, whoever competes."""
    verdict = in_time(2, start_s=0.5, attempt_budget_seconds=5)
    assert (verdict.outcome, verdict.code, verdict.blame) == ("RETRY", "TIME_BUDGET_SHORT", "internal")
    slow = in_time(1, start_s=3.0, attempt_budget_seconds=5)
    assert slow.code == "TIME_BUDGET_SHORT"


def test_time_lost_before_the_first_launch_is_told_apart() -> None:
    """A minute that passed before the candidate had its turn is ours; the candidate's share of it is not."""
    assert in_time(1, start_s=0.6, before_s=58.0).code == "TIME_BUDGET_SHORT"
    arena = make_arena(speed_policy=CONDITIONED_SPEED_POLICY)
    referee = FakeReferee(arena)
    waits = msgspec.structs.replace(referee.document(()), ending="time")
    assert grade(waits, arena).code == "TIME_BUDGET_SHORT"
    dawdles = change(waits, "stages.0.call_ns", (40_000 * MILLISECOND,))
    assert grade(dawdles, arena).code == "CANDIDATE_TOO_SLOW"


@pytest.mark.parametrize(
    ("role", "outcome", "code"),
    [("candidate", "FAIL", "CANDIDATE_TOO_SLOW"), ("baseline", "RETRY", "TIME_BUDGET_SHORT")],
)
def test_an_interrupted_launch_is_charged_to_whoever_dawdled(role: Any, outcome: str, code: str) -> None:
    """The referee ends a launch that overruns the budget, and says whose calls took the time."""
    document = FakeReferee(ARENA).document(())
    incident = Incident("block", 0, role, "dawdled", "")
    verdict = grade(msgspec.structs.replace(document, incidents=(incident,), ending="incident"), ARENA)
    assert (verdict.outcome, verdict.code) == (outcome, code)


# --- the machine


def scattered(turns: str) -> list[Launch]:
    """Return ten launches whose baseline is slow in some: in all blocks, or only in those after the candidate."""
    launches = []
    referee = FakeReferee(make_arena(blocks_per_launch=8), gain=0.0)
    for launch in (referee.launch(index) for index in range(10)):
        blocks = [
            slowed(block) if launch.index in (1, 4, 5, 8) and (turns == "all" or block.first == "candidate") else block
            for block in launch.blocks
        ]
        launches.append(msgspec.structs.replace(launch, blocks=tuple(blocks)))
    return launches


def slowed(block: Block) -> Block:
    """Return `block` with a baseline that takes four times as long."""
    return change(block, "baseline.call_ns", tuple(4 * ns for ns in block.baseline.call_ns))


def test_a_candidate_cannot_call_the_machine_unfit() -> None:
    """A baseline that is unsteady only right after the candidate's turns was made so; the first policy believed it."""
    for turns, own_turns, expected in (
        ("all", True, "scattered"),
        ("all", False, "scattered"),
        ("after", False, "scattered"),
        ("after", True, ""),
    ):
        assert fitness.unfit(scattered(turns), POLICY.machine, own_turns=own_turns) == expected
    assert fitness.unfit(scattered("none")[:0], POLICY.machine, own_turns=True) == ""


def test_the_registered_constants_cannot_be_changed_in_place() -> None:
    """A policy is what it was when it was named."""
    assert CONDITIONING is not None
    with pytest.raises(dataclasses.FrozenInstanceError):
        CONDITIONING.ratio_ppm = 1  # type: ignore[misc]
