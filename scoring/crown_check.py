"""Does a crowned bundle still do what it was crowned for? Judged from a check: an attempt of the crown against what
stands beneath it, in which no challenger has a part. Pure.

Invariants
1. Only what the crowned bundle itself did counts: a failure of its own, being proved no faster than what it was crowned
   over, or being so slow or so unsteady that nothing can be compared with it, on a machine on which the other arm of
   the same launches is neither.
2. A gain that could merely not be proved again proves nothing. Nor does a rule about which calls reach the bundle, a
   slow start, or a fault of ours.
3. One check proves nothing either: a crown is revoked on two that are a pair of independent attempts.
4. Slowness is the bundle's only beside another arm that ran at its usual speed in the same attempt. An attempt whose
   time was gone before there were launches enough to tell (`is_uncompared`) shows it as well as a machine in trouble
   does: it proves nothing in a pair, and the node looks more often, for longer than machines are in trouble.
5. Slow and unsteady are exact by design, as the speed test is: a fair sealed coin dealt the two arms of a launch their
   places, so noise of the machine, however it comes, falls on the crowned one no more often than on the other.
6. All constants are the policy's that the attempt names (`scoring.policy.CrownPolicy`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from config.arena import Arena
from scoring.attempt import Attempt, Launch, Role
from scoring.grade import Verdict
from scoring.guard_rails import own_time
from scoring.policy import CrownPolicy, find_policy
from scoring.speed import EQUAL_PPM

CROWN_SLOW, CROWN_UNSTEADY = "CROWN_SLOW", "CROWN_UNSTEADY"
TOO_SLOW = "CANDIDATE_TOO_SLOW"
OWN_FAULTS = frozenset({
    "WRONG_OUTPUT", "LATE_WRITE", "INPUT_MUTATED", "OUT_OF_BOUNDS_WRITE", "ARM_CRASHED", "ARM_RAISED", "CALL_DEADLINE",
    "RESOURCE_LIMIT", "ARM_PROTOCOL", "FORBIDDEN_CALL", "LOAD_FAILED", "ENTRY_SIGNATURE", "PREPARE_FAILED",
    "NOT_EXECUTED", TOO_SLOW,
})
# What a machine that stalls for minutes can bring about as well: the second check is not made in the same minutes.
TIMED_FAULTS = frozenset({"CALL_DEADLINE", "RESOURCE_LIMIT", TOO_SLOW, CROWN_SLOW, CROWN_UNSTEADY})
SUSPECT_RETRIES = frozenset({"BASELINE_FAILED", "TIME_BUDGET_SHORT", "MACHINE_UNFIT"})  # an incumbent can cause these


def fault_of_crown(attempt: Attempt, verdict: Verdict, arena: Arena) -> str:
    """Return the code of what a check shows against the crowned bundle, its candidate; "" when it shows nothing."""
    policy = find_policy(attempt.speed_policy).crown
    launches = attempt.launches
    if verdict.code == TOO_SLOW:  # beside a busy machine's other arm, a median is no proof
        return verdict.code if _is_slow(launches, policy) or _may_be_slow(launches, policy) else ""
    if verdict.outcome == "FAIL" and verdict.code in OWN_FAULTS:
        return verdict.code
    if verdict.code == "NOT_FASTER" and verdict.upper_ppm < EQUAL_PPM + arena.margin_ppm:
        return verdict.code
    if attempt.ending == "incident" or verdict.code not in ("NOT_FASTER", "TIME_BUDGET_SHORT"):
        return ""
    if _is_slow(launches, policy):
        return CROWN_SLOW
    ours, theirs = _totals(launches, "candidate"), _totals(launches, "baseline")
    return CROWN_UNSTEADY if unsteady_alone(ours, theirs, policy) else ""


def is_uncompared(attempt: Attempt, fault: str) -> bool:
    """Say whether an attempt that shows `fault` has too little beside the bundle to tell its slowness from a machine's:
    it took all the time before there was another arm, or before a coin was thrown often enough."""
    return fault == TOO_SLOW and not _is_slow(attempt.launches, find_policy(attempt.speed_policy).crown)


def _is_slow(launches: Sequence[Launch], policy: CrownPolicy) -> bool:
    """Say whether the candidate, starts included, took many times as long as the other arm in every launch.

    In many launches a coin says that no machine did it. In a few it is the other arm's own times: where that took its
    usual time in every one of them, turn by turn with this one, the machine was not in trouble.
    """
    if len(launches) < policy.far_launches:
        return False
    if len(launches) < policy.slow_launches:
        return _beside_a_usual_arm(launches, policy) and _is_slower(launches, policy.far_ratio_ppm)
    return _is_slower(launches, policy.slow_ratio_ppm)


def _may_be_slow(launches: Sequence[Launch], policy: CrownPolicy) -> bool:
    """Say whether a bundle that took all the time may be slow, where too few launches were made to say more.

    Without this a bundle that is slow by less than few launches show, and by more than many launches fit, is safe.
    """
    if len(launches) < policy.far_launches:
        return True
    few = len(launches) < policy.slow_launches
    return few and _beside_a_usual_arm(launches, policy) and _is_slower(launches, policy.slow_ratio_ppm)


def _beside_a_usual_arm(launches: Sequence[Launch], policy: CrownPolicy) -> bool:
    theirs = [own_time(launch, launch.baseline) for launch in launches]
    return max(theirs) * EQUAL_PPM <= min(theirs) * policy.usual_ratio_ppm


def _is_slower(launches: Sequence[Launch], ratio_ppm: int) -> bool:
    return all(
        own_time(launch, launch.candidate) * EQUAL_PPM > own_time(launch, launch.baseline) * ratio_ppm
        for launch in launches
    )


def unsteady_alone(ours: Sequence[int], theirs: Sequence[int], policy: CrownPolicy) -> bool:
    """Say whether one arm's times (ns, one per launch) drift or scatter, the other's of the same launches do not, and
    that is no work of chance."""
    launches = len(ours)
    if launches < policy.unsteady_launches or not _is_unsteady(ours, policy) or _is_unsteady(theirs, policy):
        return False
    count = sum(
        our * EQUAL_PPM > their * policy.dominance_ppm
        for our, their in zip(_distances(ours), _distances(theirs), strict=True)
    )
    chances = sum(math.comb(launches, times) for times in range(count, launches + 1))
    return chances * EQUAL_PPM <= policy.unsteady_alpha_ppm << launches


def _totals(launches: Sequence[Launch], role: Role) -> list[int]:
    """Return the time of all calls of a role, per launch, in ns."""
    return [sum(sum(getattr(block, role).call_ns) for block in launch.blocks) for launch in launches]


def _is_unsteady(totals: Sequence[int], policy: CrownPolicy) -> bool:
    """Say whether times drift or scatter as those of a fit machine, and of steady code on it, do not."""
    third = len(totals) // 3
    lower, upper = _quartiles(totals)
    drift = _apart(statistics.median_low(totals[:third]), statistics.median_low(totals[-third:]))
    return drift > policy.drift_limit_ppm or _apart(lower, upper) > policy.scatter_limit_ppm


def _distances(totals: Sequence[int]) -> list[int]:
    """Return for each launch how far it is, in ppm and either way, from halfway between the quartiles."""
    usual = math.isqrt(math.prod(_quartiles(totals)))
    return [_apart(total, usual) - EQUAL_PPM for total in totals]


def _quartiles(totals: Sequence[int]) -> tuple[int, int]:
    ordered, quarter = sorted(totals), len(totals) // 4
    return ordered[quarter], ordered[-1 - quarter]


def _apart(one: int, other: int) -> int:
    return max(one, other) * EQUAL_PPM // max(1, min(one, other))
