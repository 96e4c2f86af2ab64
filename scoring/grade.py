"""grade(attempt, arena) -> Verdict: total, deterministic, and the only place where a verdict is made.

Invariants
1. The grader reads the attempt file and the arena document, nothing else; a verdict can be recomputed by anyone.
2. A file that is not valid evidence gets a `GradeError`, never a verdict.
3. Order of judgement: our own failures, then recorded checks, then the candidate's failures, then speed, then what a
   gain must not hide. A fault of ours is never charged to a miner, and a wrong output is never excused by speed.
4. Speed alone decides PASS. The tests of the baseline alone can only turn an undecided attempt into RETRY: they never
   make a candidate pass, and never un-pass one, because the speed test is exact under any noise. A candidate that
   brought about what they find, or spent the time itself, has failed.
5. What is too good to be true (`REVIEW_CODES`) is a RETRY that waits for a person; it never crowns. A person who has
   looked says `reviewed`, which lifts these codes and nothing else.
6. An attempt is graded under the policy that it names, so that its verdict stays what it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from config.arena import Arena
from config.errors import Blame, EvidenceError
from scoring import attempt_v1, conditioning, fitness, guard_rails
from scoring.attempt import AT_BOUND, Attempt, CallCheck, Role, encode_attempt, read_attempt
from scoring.evidence import check_evidence
from scoring.incidents import Consequence, Outcome, consequence
from scoring.policy import VerdictPolicy, find_policy
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


REVIEW_CODES = frozenset({"IMPLAUSIBLE_SPEEDUP", "BELOW_PHYSICAL_FLOOR"})


def grade(attempt: Attempt | bytes, arena: Arena, *, reviewed: bool = False) -> Verdict:
    """Grade one attempt under its arena. Raises `GradeError` when the file is not valid evidence.

    `reviewed` says that a person has found nothing wrong with a speed that waits for one: `REVIEW_CODES` are not given.
    """
    attempt = read_attempt(attempt if isinstance(attempt, bytes) else encode_attempt(attempt))
    check_evidence(attempt, arena)
    endings = [consequence(incident) for incident in attempt.incidents]
    if bool(endings) != (attempt.ending == "incident"):
        raise EvidenceError("ENDING_INCONSISTENT", "an attempt ends by incident exactly when it records one")
    for ending in _first_of(endings, "RETRY"):
        return _verdict(attempt, ending)
    for found in _failed_checks(attempt):
        return _verdict(attempt, found)
    for ending in _first_of(endings, "FAIL"):
        return _verdict(attempt, ending)
    return _judge_speed(attempt, arena, reviewed=reviewed)


def _first_of(endings: Sequence[Consequence], outcome: Outcome) -> list[Consequence]:
    return [ending for ending in endings if ending.outcome == outcome][:1]


def _verdict(attempt: Attempt, ending: Consequence, bounds: tuple[int, int] = (0, 0)) -> Verdict:
    blame = "" if ending.outcome == "PASS" else ending.blame.value
    launches = len(attempt.launches)
    return Verdict(
        VERDICT_SCHEMA, attempt.speed_policy, ending.outcome, ending.code, blame, *bounds, launches, ending.reason
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


def _judge_speed(attempt: Attempt, arena: Arena, *, reviewed: bool) -> Verdict:
    policy = find_policy(attempt.speed_policy)
    test = SequentialTest.for_arena(arena)
    for launch in attempt.launches:
        if test.decision is not Decision.CONTINUE:
            raise EvidenceError(
                "LAUNCH_AFTER_DECISION", f"launch {launch.index} was made after the test was decided at {test.launches}"
            )
        test.add_launch(launch_value(launch, len(attempt.identity.gaps)), launch.candidate_slot)
    _check_ending(attempt, test.decision)
    if attempt.schema != attempt_v1.SCHEMA:
        _check_time(attempt, arena)
    found = _from_decision(attempt, test, arena, policy)
    if found.outcome == "PASS":
        found = _hidden(attempt, test, arena, policy, reviewed=reviewed) or found
    return _verdict(attempt, found, (test.lower_ppm, test.upper_ppm))


def _hidden(
    attempt: Attempt, test: SequentialTest, arena: Arena, policy: VerdictPolicy, *, reviewed: bool
) -> Consequence | None:
    """Return what stands between a proved gain and a crown."""
    suspect = None if reviewed else _suspect(attempt, test, arena)
    if policy.conditioning is None:
        return suspect or guard_rails.slow_start(attempt.launches, policy.start)
    found = conditioning.regression(attempt, test.lower_ppm, policy.conditioning, arena.alpha_ppm)
    found = found or conditioning.uneven(attempt, arena)
    return found or suspect


def _suspect(attempt: Attempt, test: SequentialTest, arena: Arena) -> Consequence | None:
    if test.lower_ppm >= arena.implausible_speedup_ppm:
        reason = f"{_bounds(test)}: more than this arena believes unseen"
        return Consequence("RETRY", "IMPLAUSIBLE_SPEEDUP", Blame.OPERATOR, reason)
    return guard_rails.below_floor(attempt, arena)


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


def _check_time(attempt: Attempt, arena: Arena) -> None:
    """A referee goes on exactly as long as no launch has ended beyond the budget. Raises `GradeError`."""
    budget = arena.attempt_budget_seconds * 1_000_000_000
    ends = [launch.end_ns for launch in attempt.launches]
    if any(end > budget for end in ends[:-1]):
        raise EvidenceError("ENDING_INCONSISTENT", "a launch was made after the time of the attempt had run out")
    if attempt.ending == "time" and ends and ends[-1] <= budget:
        raise EvidenceError(
            "ENDING_INCONSISTENT", "the attempt says that its time ran out, and its last launch ended before that",
            hint="launches are missing from the file",
        )


def _from_decision(attempt: Attempt, test: SequentialTest, arena: Arena, policy: VerdictPolicy) -> Consequence:
    bounds = _bounds(test)
    needed = f"{_ratio(EQUAL_PPM + arena.margin_ppm)} is needed"
    if test.decision is Decision.PASS:
        return Consequence("PASS", "PASS", Blame.MINER, f"{bounds}; {needed}")
    if test.decision is Decision.NOT_FASTER:
        return Consequence("FAIL", "NOT_FASTER", Blame.MINER, f"{bounds}; {needed}")
    short = test.launches < arena.launches_min
    if policy.conditioning and short and (found := guard_rails.time_spent(attempt, arena, policy.conditioning)):
        return found
    if unfit := fitness.unfit(attempt.launches, policy.machine, own_turns=policy.conditioning is not None):
        return Consequence("RETRY", "MACHINE_UNFIT", Blame.INTERNAL, f"undecided, and the baseline's own speed {unfit}")
    if short:
        return Consequence(
            "RETRY", "TIME_BUDGET_SHORT", Blame.INTERNAL, f"time ran out after {test.launches} launches"
        )
    return Consequence("FAIL", "NOT_FASTER", Blame.MINER, f"not proved within the budget: {bounds}; {needed}")


def _bounds(test: SequentialTest) -> str:
    return f"the gain lies between {_ratio(test.lower_ppm)} and {_ratio(test.upper_ppm)}"


def _ratio(ppm: int) -> str:
    return f"{ppm // EQUAL_PPM}.{ppm % EQUAL_PPM // 1000:03d}x"
