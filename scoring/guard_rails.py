"""Time that a candidate spent, times that no machine can reach, and how the first policy judged a start.

Invariants
1. Time that a candidate spent is told from time that was too short by the attempt file alone: what the candidate took
   beyond the baseline of the same launches is taken off, and then the fewest launches either fit the budget or do not.
   A launch that stalled for once is never the reason: honest code cannot fail by one bad launch.
2. A call below the physical floor is nobody's gain: it waits for a person, whatever the bounds say.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from config.arena import Arena
from config.errors import Blame
from scoring.attempt import ArmRecord, Attempt, Launch
from scoring.incidents import Consequence
from scoring.policy import ConditioningPolicy, StartPolicy

EQUAL_PPM = 1_000_000
_SECOND_NS = 1_000_000_000
_FLOOR = "BELOW_PHYSICAL_FLOOR"
_LAUNCHES_SEVERAL = 4  # from here on the worst launch is left out; with fewer only a manifold of the time helps


def slow_start(launches: Sequence[Launch], policy: StartPolicy) -> Consequence | None:
    """Judge `prepare` and all warm-up calls together by a ratio and a floor, as the first policy did."""
    candidate = _median([launch.candidate.prepare_ns + launch.candidate.first_call_ns for launch in launches])
    baseline = _median([launch.baseline.prepare_ns + launch.baseline.first_call_ns for launch in launches])
    if candidate <= policy.floor_ns or candidate * EQUAL_PPM <= baseline * policy.ratio_ppm:
        return None
    reason = f"prepare and warm-up take {candidate // 1_000_000} ms and the incumbent's {baseline // 1_000_000} ms"
    return Consequence("FAIL", "SLOW_START", Blame.MINER, reason)


def below_floor(attempt: Attempt, arena: Arena) -> Consequence | None:
    """Say when a timed call took less than moving its bytes, or doing its operations, takes at the arena's peaks."""
    if not (arena.peak_bytes_per_second and arena.peak_operations_per_second):
        return None
    floors = {
        work.case: max(
            work.least_bytes * _SECOND_NS // arena.peak_bytes_per_second,
            work.least_operations * _SECOND_NS // arena.peak_operations_per_second,
        )
        for work in attempt.work
    }
    for launch in attempt.launches:
        for block in launch.blocks:
            floor = floors.get(block.case, 0)
            for who, part in (("the incumbent's", block.baseline), ("the candidate's", block.candidate)):
                if min(part.call_ns) < floor:
                    reason = (
                        f"{who} call took {min(part.call_ns)} ns in launch {launch.index}, and no machine of this "
                        f"arena does its work in less than {floor} ns (case {block.case})"
                    )
                    return Consequence("RETRY", _FLOOR, Blame.OPERATOR, reason)
    return None


def time_spent(attempt: Attempt, arena: Arena, policy: ConditioningPolicy) -> Consequence | None:
    """Say when the budget would have held the fewest launches, had the candidate not taken so much longer.

    What counts is its time beyond the policy's ratio of the baseline's: of the same launch, or of the usual one where
    that took longer. Of several launches the worst is left out. Without any launch there is no baseline to compare
    with: then the candidate's checked calls must have taken most of the time that passed.
    """
    budget = arena.attempt_budget_seconds * _SECOND_NS
    stages = sum(sum(stage.call_ns) for stage in attempt.stages)
    if not attempt.launches:
        spent = 2 * stages > budget
    else:
        theirs = [own_time(launch, launch.baseline) for launch in attempt.launches]
        ours = [own_time(launch, launch.candidate) for launch in attempt.launches]
        usual = _median(theirs)
        needless = [
            max(0, mine - max(other, usual) * policy.ratio_ppm // EQUAL_PPM)
            for mine, other in zip(ours, theirs, strict=True)
        ]
        saved = sum(needless) - (max(needless) if len(needless) >= _LAUNCHES_SEVERAL else 0)
        if saved <= 0:
            return None
        needed = _median([
            launch.end_ns - launch.start_ns - spare for launch, spare in zip(attempt.launches, needless, strict=True)
        ])  # fmt: skip
        saved += max(0, stages - stages * sum(theirs) * policy.ratio_ppm // (sum(ours) * EQUAL_PPM))
        missing = arena.launches_min - len(attempt.launches)
        spent = attempt.launches[-1].end_ns - saved + missing * needed <= budget
    if not spent:
        return None
    reason = (
        f"{len(attempt.launches)} launches of {arena.launches_min} were made in {arena.attempt_budget_seconds} s, and "
        "all of them would have been had the candidate taken no longer than the incumbent"
    )
    return Consequence("FAIL", "CANDIDATE_TOO_SLOW", Blame.MINER, reason)


def own_time(launch: Launch, role: ArmRecord) -> int:
    """Return the ns for which the referee waited for one role of a launch: starts, warm-up calls, timed calls."""
    blocks = [block.candidate if role is launch.candidate else block.baseline for block in launch.blocks]
    starts = sum(arm.ready_ns - arm.start_ns for arm in role.arms)
    return starts + role.first_call_ns + sum(sum(block.call_ns) for block in blocks)


def _median(values: Sequence[int]) -> int:
    return statistics.median_low(values)
