"""Grading is total and deterministic, and no tampered attempt gets a verdict."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import GradeError
from scoring.attempt import NON_FINITE, Attempt, Block, Incident, encode_attempt, read_attempt
from scoring.grade import Verdict, grade
from scoring.incidents import INCIDENT_KINDS
from tests.scoring.support import TARGET, FakeReferee, change, digest, make_arena, out_of_time, relaid

ARENA = make_arena()
GOOD = FakeReferee(ARENA).measure()


def verdict_of(attempt: Attempt, arena: Any = ARENA) -> Verdict:
    """Return the verdict of an attempt that must be valid evidence."""
    return grade(attempt, arena)


def test_a_faster_candidate_passes_with_its_bounds() -> None:
    """A candidate 1.49 times as fast passes after ten launches, with bounds on both sides of the truth."""
    verdict = verdict_of(GOOD)
    assert (verdict.outcome, verdict.code, verdict.blame, verdict.launches_used) == ("PASS", "PASS", "", 10)
    assert 1_050_000 < verdict.lower_ppm < 1_491_824 < verdict.upper_ppm


def test_grading_the_bytes_again_gives_the_same_verdict() -> None:
    """Document and bytes, once or often: one verdict."""
    data = encode_attempt(GOOD)
    assert {grade(data, ARENA), grade(GOOD, ARENA), grade(data, ARENA)} == {grade(GOOD, ARENA)}


@pytest.mark.parametrize("gain", [-0.4, 0.0])
def test_a_candidate_without_the_margin_is_not_faster(gain: float) -> None:
    """A slower candidate, and an equal one, fail by their upper bound and carry the blame."""
    verdict = verdict_of(FakeReferee(ARENA, gain=gain).measure())
    assert (verdict.outcome, verdict.code, verdict.blame) == ("FAIL", "NOT_FASTER", "miner")
    assert verdict.upper_ppm <= 1_050_000


def test_an_undecided_attempt_fails_when_the_launches_are_spent() -> None:
    """A gain at the margin cannot be proved; the attempt ends as NOT_FASTER after the last launch."""
    verdict = verdict_of(FakeReferee(ARENA, gain=0.0488, noise=0.05, number=3).measure())
    assert (verdict.code, verdict.launches_used) == ("NOT_FASTER", 24)


def test_drift_turns_only_an_undecided_attempt_into_a_retry() -> None:
    """The same drift leaves a proved gain alone: it neither helps nor hurts a decided attempt."""
    undecided = FakeReferee(ARENA, gain=0.0488, noise=0.05, number=3, drift=0.05).measure()
    verdict = verdict_of(undecided)
    assert (verdict.outcome, verdict.code, verdict.blame) == ("RETRY", "MACHINE_UNFIT", "internal")
    assert verdict_of(FakeReferee(ARENA, drift=0.2).measure()).outcome == "PASS"
    assert verdict_of(FakeReferee(ARENA, drift=0.2, gain=0.0).measure()).code == "NOT_FASTER"


def test_a_scattered_baseline_turns_only_an_undecided_attempt_into_a_retry() -> None:
    """A machine whose incumbent jumps between launches cannot condemn a candidate, and cannot crown one either."""
    for gain, noise, code in ((0.0488, 0.05, "MACHINE_UNFIT"), (0.4, 0.01, "PASS"), (0.0, 0.01, "NOT_FASTER")):
        referee = FakeReferee(ARENA, gain=gain, noise=noise, number=3)
        referee.scatter = 0.4
        assert verdict_of(referee.measure()).code == code
    quiet = FakeReferee(ARENA, gain=0.0488, noise=0.05, number=3)
    quiet.scatter = 0.05
    assert verdict_of(quiet.measure()).code == "NOT_FASTER"


def test_an_implausible_speed_up_waits_for_review() -> None:
    """A lower bound beyond the arena's belief never crowns."""
    verdict = verdict_of(FakeReferee(ARENA, gain=5.0).measure())
    assert (verdict.outcome, verdict.code, verdict.blame) == ("RETRY", "IMPLAUSIBLE_SPEEDUP", "operator")


def test_time_running_out_is_ours_before_the_minimum_and_the_candidates_after() -> None:
    """Too few launches in the time budget is a RETRY; enough of them without proof is NOT_FASTER."""
    few = out_of_time(msgspec.structs.replace(GOOD, launches=GOOD.launches[:6]), ARENA)
    assert verdict_of(few).code == "TIME_BUDGET_SHORT"
    spent = FakeReferee(ARENA, gain=0.0488, noise=0.05, number=3).measure()
    enough = out_of_time(msgspec.structs.replace(spent, launches=spent.launches[:16]), ARENA)
    assert (verdict_of(enough).outcome, verdict_of(enough).code) == ("FAIL", "NOT_FASTER")


def test_a_slow_start_cannot_hide_behind_steady_speed() -> None:
    """`prepare` plus first call beyond policy fails a candidate that would have passed."""
    launches = tuple(change(launch, "candidate.arms.0.prepare_ns", 3_000_000_000) for launch in GOOD.launches)
    verdict = verdict_of(relaid(msgspec.structs.replace(GOOD, launches=launches)))
    assert (verdict.outcome, verdict.code) == ("FAIL", "SLOW_START")


def answered(place: str, late: str, worst: int) -> Attempt:
    """Return a good attempt with another outcome of the check at `place`; the question stays the same."""
    bad = change(change(GOOD, f"{place}.output_digest", "0" * 16), f"{place}.late_digest", late)
    return change(bad, f"{place}.worst_ppm", worst)


@pytest.mark.parametrize(
    ("worst", "late", "code"),
    [(NON_FINITE, "", "WRONG_OUTPUT"), (1_000_001, "", "WRONG_OUTPUT"), (5, "f" * 16, "LATE_WRITE"),
     (2_000_000, "f" * 16, "LATE_WRITE")],
)  # fmt: skip
@pytest.mark.parametrize("place", ["stages.0.checks.0", "launches.3.candidate.warmup.0",
                                   "launches.3.blocks.1.candidate.checks.1"])  # fmt: skip
def test_a_bad_output_anywhere_fails_even_a_fast_candidate(place: str, worst: int, late: str, code: str) -> None:
    """Every recorded check counts: stages, warm-up calls and timed calls."""
    verdict = verdict_of(answered(place, late, worst))
    assert (verdict.outcome, verdict.code, verdict.blame) == ("FAIL", code, "miner")


def test_an_output_exactly_at_its_bound_passes() -> None:
    """The tolerance is inclusive, and a late fingerprint equal to the first one is no change."""
    attempt = answered("launches.3.blocks.1.candidate.checks.1", "0" * 16, 1_000_000)
    assert verdict_of(attempt).outcome == "PASS"


def test_a_bad_baseline_is_never_charged_to_the_miner() -> None:
    """A wrong output of the incumbent is a RETRY of ours."""
    verdict = verdict_of(answered("launches.0.blocks.0.baseline.checks.0", "", 2_000_000))
    assert (verdict.outcome, verdict.code, verdict.blame) == ("RETRY", "BASELINE_FAILED", "internal")


@pytest.mark.parametrize("kind", sorted(INCIDENT_KINDS))
@pytest.mark.parametrize("role", ["baseline", "candidate", "referee"])
def test_every_incident_has_an_outcome_and_a_blame(kind: str, role: Any) -> None:
    """The candidate's own failures fail it; everything else is retried; impossible pairs are refused."""
    incident = Incident("block", 2, role, kind, "detail")
    attempt = msgspec.structs.replace(GOOD, incidents=(incident,), ending="incident", launches=GOOD.launches[:2])
    ours = kind in {"arm_start", "interrupted", "sandbox", "machine", "internal"}
    if role == "referee" and not ours:
        with pytest.raises(GradeError) as refused:
            grade(attempt, ARENA)
        assert refused.value.code == "INCIDENT_UNKNOWN"
        return
    verdict = verdict_of(attempt)
    fails = role == "candidate" and not ours
    assert (verdict.outcome, verdict.blame) == (("FAIL", "miner") if fails else ("RETRY", "internal"))
    assert verdict.launches_used == 2
    assert "detail" in verdict.reason


def test_a_fault_of_ours_excuses_what_followed_from_it() -> None:
    """When the attempt was interrupted, a candidate that died of it is not blamed."""
    incidents = (
        Incident("block", 0, "candidate", "crashed", "killed"),
        Incident("block", 0, "referee", "interrupted", "SIGTERM"),
    )
    attempt = msgspec.structs.replace(GOOD, incidents=incidents, ending="incident", launches=())
    assert verdict_of(attempt).code == "ATTEMPT_INTERRUPTED"


def tampered(path: str, value: Any) -> Any:
    """Return a case that replaces one field of the good attempt."""
    return change(GOOD, path, value)


def launches_without(index: int) -> Attempt:
    """Return the good attempt with one launch cut out."""
    kept = tuple(launch for launch in GOOD.launches if launch.index != index)
    return msgspec.structs.replace(GOOD, launches=kept)


def flip_all_roles() -> Attempt:
    """Return the attempt a cheating referee would write: candidate and baseline exchanged in one launch."""
    launch = GOOD.launches[0]
    return change(GOOD, "launches.0", msgspec.structs.replace(launch, candidate_slot=1 - launch.candidate_slot))



def started_at_once(attempt: Attempt) -> Attempt:
    """Return `attempt` with both arms of its first launch started at the same time."""
    launch = attempt.launches[0]
    for role in ("baseline", "candidate"):
        launch = change(launch, f"{role}.arms.0.start_ns", launch.start_ns)
    return msgspec.structs.replace(attempt, launches=(launch, *attempt.launches[1:]))


FIRST = GOOD.launches[0].blocks[0]
TAMPERINGS: dict[str, tuple[Attempt, str]] = {
    "another arena": (tampered("identity.arena_digest", digest("other")), "ARENA_MISMATCH"),
    "a primary with a predecessor": (tampered("previous_attempt", digest("p")), "ROLE_INCONSISTENT"),
    "a reproduction without one": (tampered("role", "reproduction"), "ROLE_INCONSISTENT"),
    "other limits": (tampered("limits.call_deadline_ms", 5), "LIMITS_MISMATCH"),
    "another timing method": (tampered("environment.timing_method", "inner"), "TIMING_METHODS_MIXED"),
    "mixed timing methods": (tampered("launches.1.timing_method", "inner"), "TIMING_METHODS_MIXED"),
    "an end before the start": (tampered("ended_unix_ns", 0), "TIMES_REVERSED"),
    "a slot nobody knows": (tampered("identity.slots", (TARGET, "other")), "TARGET_NOT_IN_ARENA"),
    "slots without the target's": (tampered("identity.slots", ("a", "b")), "SLOTS_INCONSISTENT"),
    "the target's slots named": (tampered("identity.slots", (TARGET,)), "SLOTS_INCONSISTENT"),
    "slots out of order": (tampered("identity.slots", ("z", TARGET)), "SLOTS_INCONSISTENT"),
    "a gap beyond the workload": (tampered("identity.gaps", (2,)), "GAPS_INCONSISTENT"),
    "gaps out of order": (tampered("identity.gaps", (1, 0)), "GAPS_INCONSISTENT"),
    "nothing but gaps": (tampered("identity.gaps", (0, 1)), "GAPS_INCONSISTENT"),
    "a time recorded in a gap": (tampered("identity.gaps", (1,)), "CASE_MISMATCH"),
    "another seed": (tampered("seed.revealed", digest("seed")), "SEED_NOT_OPENING"),
    "another attempt id": (tampered("attempt_id", "other"), "SEED_NOT_OPENING"),
    "no checks": (tampered("stages", ()), "CHECKS_MISSING"),
    "a missing launch": (launches_without(4), "LAUNCH_MISSING"),
    "a missing last launch": (launches_without(9), "ENDING_INCONSISTENT"),
    "no launches": (tampered("launches", ()), "ENDING_INCONSISTENT"),
    "an exchanged slot": (flip_all_roles(), "COIN_MISMATCH"),
    "an arm in the wrong slot": (tampered("launches.0.baseline.slot", GOOD.launches[0].candidate_slot),
                                 "SLOT_MISMATCH"),
    "an arm on another core": (tampered("launches.0.baseline.core", 7), "SLOT_MISMATCH"),
    "no cores": (tampered("environment.cores", ()), "SLOT_MISMATCH"),
    "an exchanged order": (tampered("launches.0.blocks.0.first",
                                    "baseline" if FIRST.first == "candidate" else "candidate"), "ORDER_MISMATCH"),
    "a block less": (tampered("launches.0.blocks", GOOD.launches[0].blocks[:-1]), "LAUNCH_INCOMPLETE"),
    "a call less": (tampered("launches.0.blocks.0.candidate.call_ns", FIRST.candidate.call_ns[:-1]),
                    "LAUNCH_INCOMPLETE"),
    "a check less": (tampered("launches.0.blocks.0.candidate.checks", FIRST.candidate.checks[:-1]),
                     "LAUNCH_INCOMPLETE"),
    "no warm-up check": (tampered("launches.0.candidate.warmup", ()), "LAUNCH_INCOMPLETE"),
    "another shape": (tampered("launches.0.blocks.0.case", 1), "CASE_MISMATCH"),
    "a call without duration": (tampered("launches.0.blocks.0.candidate.call_ns", (0, 5)), "TIMING_NOT_POSITIVE"),
    "a launch before its predecessor": (tampered("launches.1.start_ns", 0), "CLOCK_BACKWARDS"),
    "an arm ready before its start": (tampered("launches.0.candidate.arms.0.ready_ns", 0), "CLOCK_BACKWARDS"),
    "overlapping blocks": (tampered("launches.0.blocks.1.baseline.start_ns", FIRST.baseline.start_ns),
                           "CLOCK_BACKWARDS"),
    "an end before the last block": (tampered("launches.0.end_ns", GOOD.launches[0].candidate.ready_ns),
                                     "CLOCK_BACKWARDS"),
    "a process used twice": (tampered("launches.1.candidate.arms.0.processes",
                                      GOOD.launches[0].candidate.processes),
                             "PROCESS_REUSED"),
    "an input used twice": (tampered("launches.1.candidate.warmup", GOOD.launches[0].candidate.warmup),
                            "INPUT_REPEATED"),
    "an unknown incident": (msgspec.structs.replace(
        GOOD, incidents=(Incident("block", 0, "candidate", "tired", ""),), ending="incident"), "INCIDENT_UNKNOWN"),
    "an incident without that ending": (msgspec.structs.replace(
        GOOD, incidents=(Incident("block", 0, "candidate", "crashed", ""),)), "ENDING_INCONSISTENT"),
    "that ending without an incident": (tampered("ending", "incident"), "ENDING_INCONSISTENT"),
    "an undecided ending": (tampered("ending", "time"), "ENDING_INCONSISTENT"),
    "an answer that moves nothing": (tampered("work.0.least_bytes", 0), "WORK_INCONSISTENT"),
    "a stage longer than all time before": (tampered("stages.0.call_ns.0", 10**9), "CLOCK_BACKWARDS"),
    "a stage's call without a time": (tampered("stages.0.call_ns.0", 0), "TIMING_NOT_POSITIVE"),
    "a warm-up call without a time": (tampered("launches.2.candidate.warmup_ns.1", 0), "TIMING_NOT_POSITIVE"),
    "no room for a warm-up call": (tampered("launches.2.baseline.warmup_ns.1", 10**6), "CLOCK_BACKWARDS"),
    "a prepare longer than its start": (tampered("launches.1.candidate.arms.0.prepare_ns", 101), "CLOCK_BACKWARDS"),
    "both slots started at once": (started_at_once(GOOD), "CLOCK_BACKWARDS"),
    "another question": (tampered("launches.1.blocks.0.baseline.checks.0.input_digest", "0" * 16), "INPUTS_DIFFER"),
    "another question in warm-up": (tampered("launches.1.baseline.warmup.0.input_digest", "0" * 16), "INPUTS_DIFFER"),
    "time that had not run out": (
        msgspec.structs.replace(GOOD, launches=GOOD.launches[:6], ending="time"), "ENDING_INCONSISTENT"
    ),
    "a launch after the time": (
        relaid(tampered("launches.1.candidate.arms.0.ready_ns", 10**12)), "ENDING_INCONSISTENT"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(TAMPERINGS))
def test_a_tampered_attempt_is_refused_with_its_own_code(name: str) -> None:
    """A file that is not what a faithful referee writes gets a code and no verdict."""
    attempt, code = TAMPERINGS[name]
    with pytest.raises(GradeError) as refused:
        grade(attempt, ARENA)
    assert refused.value.code == code


def narrow(gain: float) -> Attempt:
    """Return the attempt of a candidate that leaves the second of two shapes to stock."""

    class Narrow(FakeReferee):
        def block(self, launch: int, number: int, luck: float) -> Block:
            return msgspec.structs.replace(super().block(launch, number, luck), case=0)

    referee = Narrow(ARENA, gain=gain)
    attempt = referee.document(tuple(referee.launch(index) for index in range(10)))
    return change(change(attempt, "identity.gaps", (1,)), "work", attempt.work[:1])


def test_a_gap_counts_as_no_gain_and_old_files_read_as_ever() -> None:
    """Half of the workload left to stock halves the bounds' logarithm; a file without gaps does not name them."""
    half, whole = grade(narrow(0.4), ARENA), grade(FakeReferee(ARENA, gain=0.2, noise=0.005).measure(), ARENA)
    assert half.outcome == whole.outcome == "PASS"
    assert abs(half.lower_ppm - whole.lower_ppm) < 20_000
    assert b'"gaps":[1]' in encode_attempt(narrow(0.4))
    assert b'"gaps"' not in encode_attempt(GOOD)
    assert b'"slots":[' not in encode_attempt(GOOD)
    assert read_attempt(encode_attempt(GOOD)) == GOOD


def test_launches_after_the_decision_are_refused() -> None:
    """Carrying on after the test had been decided is visible."""
    referee = FakeReferee(make_arena())
    attempt = referee.measure()
    longer = msgspec.structs.replace(attempt, launches=(*attempt.launches, referee.launch(10)))
    with pytest.raises(GradeError) as refused:
        grade(longer, ARENA)
    assert refused.value.code == "LAUNCH_AFTER_DECISION"


def test_more_launches_than_the_arena_allows_are_refused() -> None:
    """The launch budget is part of the arena."""
    arena = make_arena(launches_min=4, launches_max=4)
    referee = FakeReferee(arena)
    launches = tuple(referee.launch(index) for index in range(5))
    with pytest.raises(GradeError) as refused:
        grade(msgspec.structs.replace(referee.document(launches), ending="launches"), arena)
    assert refused.value.code == "LAUNCH_SURPLUS"


def test_a_target_the_arena_does_not_judge_is_refused() -> None:
    """An arena judges only targets it has a workload for."""
    arena = make_arena()
    attempt = change(FakeReferee(arena).measure(), "identity.target_id", "activation.silu_and_mul")
    assert arena.workload(TARGET)
    with pytest.raises(GradeError) as refused:
        grade(attempt, arena)
    assert refused.value.code == "TARGET_NOT_IN_ARENA"


@settings(max_examples=25, deadline=None)
@given(st.floats(-0.3, 0.5), st.floats(0, 0.1), st.integers(1, 10**6))
def test_every_faithful_attempt_gets_a_verdict(gain: float, noise: float, number: int) -> None:
    """Grading is total over what a faithful referee writes, and the outcome agrees with the bounds."""
    verdict = verdict_of(FakeReferee(ARENA, gain=gain, noise=noise, number=number).measure())
    assert verdict.outcome in {"PASS", "FAIL"}
    assert (verdict.outcome == "PASS") == (verdict.lower_ppm >= 1_050_000)
