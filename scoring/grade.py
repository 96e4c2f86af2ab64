"""grade(attempt, arena) -> Verdict: total, deterministic, and the only place where a verdict is made.

Invariants
1. The grader reads the attempt file and the arena document, nothing else; a verdict can be recomputed by anyone.
2. A file that is not valid evidence gets a `GradeError`, never a verdict.
3. Order of judgement: our own failures, then recorded checks, then the candidate's failures, then its start, then
   speed. A fault of ours is never charged to a miner, and a wrong output is never excused by speed.
4. Speed alone decides PASS. The tests of the baseline alone can only turn an undecided attempt into RETRY: they never
   make a candidate pass, and never un-pass one, because the speed test is exact under any noise.
5. An implausible speed-up is a RETRY that waits for a person; it never crowns.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

import msgspec

from config.arena import Arena
from config.errors import Blame, EvidenceError
from scoring.attempt import AT_BOUND, ArmRecord, Attempt, CallCheck, Launch, Role, encode_attempt, read_attempt
from scoring.evidence import check_evidence
from scoring.incidents import Consequence, Outcome, consequence
from scoring.policy import POLICY, SPEED_POLICY
from scoring.speed import EQUAL_PPM, Decision, SequentialTest, launch_value

VERDICT_SCHEMA = "cacheon.verdict.v1"


class Verdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one attempt proved. Bounds are ppm of the speed ratio; both are 0 when speed was not judged."""

    schema: str
    policy: str
    outcome: Outcome
    code: str  # "PASS", or the reason of a FAIL or RETRY
    blame: str  # "" for a PASS
    lower_ppm: int
    upper_ppm: int
    launches_used: int
    reason: str  # one sentence


def grade(attempt: Attempt | bytes, arena: Arena) -> Verdict:
    """Grade one attempt under its arena. Raises `GradeError` when the file is not valid evidence."""
    attempt = read_attempt(attempt if isinstance(attempt, bytes) else encode_attempt(attempt))
    check_evidence(attempt, arena)
    endings = [consequence(incident) for incident in attempt.incidents]
    if bool(endings) != (attempt.ending == "incident"):
        raise EvidenceError("ENDING_INCONSISTENT", "an attempt ends by incident exactly when it records one")
    for ending in _first_of(endings, "RETRY"):
        return _early(ending, attempt)
    for found in _failed_checks(attempt):
        return _early(found, attempt)
    for ending in _first_of(endings, "FAIL"):
        return _early(ending, attempt)
    return _judge_speed(attempt, arena)


def _first_of(endings: Sequence[Consequence], outcome: Outcome) -> list[Consequence]:
    return [ending for ending in endings if ending.outcome == outcome][:1]


def _early(ending: Consequence, attempt: Attempt) -> Verdict:
    return _verdict(ending, 0, 0, len(attempt.launches))


def _verdict(ending: Consequence, lower_ppm: int, upper_ppm: int, launches: int) -> Verdict:
    blame = "" if ending.outcome == "PASS" else ending.blame.value
    return Verdict(
        VERDICT_SCHEMA, SPEED_POLICY, ending.outcome, ending.code, blame, lower_ppm, upper_ppm, launches, ending.reason
    )


def _failed_checks(attempt: Attempt) -> Iterator[Consequence]:
    """Yield what the recorded checks themselves prove, in the order in which the calls were made."""
    for role, where, checks in _all_checks(attempt):
        late = any(check.late_digest not in ("", check.output_digest) for check in checks)
        if not late and all(0 <= check.worst_ppm <= AT_BOUND for check in checks):
            continue
        if role == "baseline":
            yield Consequence("RETRY", "BASELINE_FAILED", Blame.INTERNAL, f"the incumbent's output is wrong ({where})")
        elif late:
            yield Consequence("FAIL", "LATE_WRITE", Blame.MINER, f"an output changed after the call returned ({where})")
        else:
            yield Consequence(
                "FAIL", "WRONG_OUTPUT", Blame.MINER, f"an output lies outside the slot's tolerance ({where})"
            )


def _all_checks(attempt: Attempt) -> Iterator[tuple[Role, str, tuple[CallCheck, ...]]]:
    for stage in attempt.stages:
        yield "candidate", f"stage {stage.stage}", stage.checks
    for launch in attempt.launches:
        yield "baseline", f"launch {launch.index}, warm-up", launch.baseline.warmup
        yield "candidate", f"launch {launch.index}, warm-up", launch.candidate.warmup
        for number, block in enumerate(launch.blocks):
            yield "baseline", f"launch {launch.index}, block {number}", block.baseline.checks
            yield "candidate", f"launch {launch.index}, block {number}", block.candidate.checks


def _judge_speed(attempt: Attempt, arena: Arena) -> Verdict:
    test = SequentialTest.for_arena(arena)
    for launch in attempt.launches:
        if test.decision is not Decision.CONTINUE:
            raise EvidenceError(
                "LAUNCH_AFTER_DECISION", f"launch {launch.index} was made after the test was decided at {test.launches}"
            )
        test.add_launch(launch_value(launch, len(attempt.identity.gaps)), launch.candidate_slot)
    _check_ending(attempt, test.decision)
    found = _from_decision(attempt, test, arena)
    if found.outcome == "PASS":
        found = _slow_start(attempt.launches) or found
    return _verdict(found, test.lower_ppm, test.upper_ppm, test.launches)


def _check_ending(attempt: Attempt, decision: Decision) -> None:
    expected = {
        Decision.PASS: "decided",
        Decision.NOT_FASTER: "decided",
        Decision.EXHAUSTED: "launches",
        Decision.CONTINUE: "time",
    }[decision]
    if attempt.ending != expected:
        raise EvidenceError(
            "ENDING_INCONSISTENT",
            f"the attempt says it ended by {attempt.ending!r}, its {len(attempt.launches)} launches say {expected!r}",
            hint="launches are missing from the file, or were added to it",
        )


def _from_decision(attempt: Attempt, test: SequentialTest, arena: Arena) -> Consequence:
    bounds = f"the gain lies between {_ratio(test.lower_ppm)} and {_ratio(test.upper_ppm)}"
    needed = f"{_ratio(EQUAL_PPM + arena.margin_ppm)} is needed"
    if test.decision is Decision.PASS:
        if test.lower_ppm >= arena.implausible_speedup_ppm:
            return Consequence(
                "RETRY", "IMPLAUSIBLE_SPEEDUP", Blame.OPERATOR, f"{bounds}: more than this arena believes unseen"
            )
        return Consequence("PASS", "PASS", Blame.MINER, f"{bounds}; {needed}")
    if test.decision is Decision.NOT_FASTER:
        return Consequence("FAIL", "NOT_FASTER", Blame.MINER, f"{bounds}; {needed}")
    if unfit := _unfit(attempt.launches):
        return Consequence("RETRY", "MACHINE_UNFIT", Blame.INTERNAL, f"undecided, and the baseline's own speed {unfit}")
    if test.launches < arena.launches_min:
        return Consequence(
            "RETRY", "TIME_BUDGET_SHORT", Blame.INTERNAL, f"time ran out after {test.launches} launches"
        )
    return Consequence("FAIL", "NOT_FASTER", Blame.MINER, f"not proved within the budget: {bounds}; {needed}")


def _slow_start(launches: Sequence[Launch]) -> Consequence | None:
    """Judge `prepare` plus warm-up apart from steady speed, so that a win in one cannot hide a loss in the other."""
    candidate = _median_start([launch.candidate for launch in launches])
    baseline = _median_start([launch.baseline for launch in launches])
    start = POLICY.start
    if candidate <= start.floor_ns or candidate * EQUAL_PPM <= baseline * start.ratio_ppm:
        return None
    reason = f"prepare and warm-up take {candidate // 1_000_000} ms and the incumbent's {baseline // 1_000_000} ms"
    return Consequence("FAIL", "SLOW_START", Blame.MINER, reason)


def _median_start(arms: Sequence[ArmRecord]) -> int:
    return statistics.median_low([arm.prepare_ns + arm.first_call_ns for arm in arms])


def _unfit(launches: Sequence[Launch]) -> str:
    """Say what the baseline alone did that a fit machine does not let it do; empty when nothing."""
    totals = [sum(sum(block.baseline.call_ns) for block in launch.blocks) for launch in launches]
    third = len(totals) // 3
    if third == 0:
        return ""
    first, last = statistics.median_low(totals[:third]), statistics.median_low(totals[-third:])
    if _apart(first, last) > POLICY.machine.drift_limit_ppm:
        return "drifted"
    ordered = sorted(totals)
    quarter = len(ordered) // 4
    if _apart(ordered[quarter], ordered[-1 - quarter]) > POLICY.machine.scatter_limit_ppm:
        return "scattered"
    return ""


def _apart(one: int, other: int) -> int:
    """Return the larger over the smaller of two durations, in ppm."""
    return max(one, other) * EQUAL_PPM // max(1, min(one, other))


def _ratio(ppm: int) -> str:
    return f"{ppm // EQUAL_PPM}.{ppm % EQUAL_PPM // 1000:03d}x"
