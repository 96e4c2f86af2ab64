"""What a proved gain must not hide: a slow start, slow first calls, time spent, and what no machine can do.

Invariants
1. Everything is compared at equal positions: the same call of the same case in the same launch, for both roles. What
   counts is the median over launches, so that one bad launch excuses and condemns nobody.
2. What a start or a first call loses beyond the policy's ratio has to be earned back, by the gain that is proved and
   not by the one that is estimated, within the policy's number of calls.
3. Time that a candidate spent is told from time that was too short by the attempt file alone: the candidate's own time
   in every launch is replaced by the baseline's, and then the fewest launches either fit the budget or do not.
4. A call below the physical floor is nobody's gain: it waits for a person, whatever the bounds say.
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


def slow_start(launches: Sequence[Launch], policy: StartPolicy) -> Consequence | None:
    """Judge `prepare` and all warm-up calls together by a ratio and a floor, as the first policy did."""
    candidate = _median([launch.candidate.prepare_ns + launch.candidate.first_call_ns for launch in launches])
    baseline = _median([launch.baseline.prepare_ns + launch.baseline.first_call_ns for launch in launches])
    if candidate <= policy.floor_ns or candidate * EQUAL_PPM <= baseline * policy.ratio_ppm:
        return None
    reason = f"prepare and warm-up take {candidate // 1_000_000} ms and the incumbent's {baseline // 1_000_000} ms"
    return Consequence("FAIL", "SLOW_START", Blame.MINER, reason)


def regression(attempt: Attempt, lower_ppm: int, policy: ConditioningPolicy) -> Consequence | None:
    """Judge `prepare`, the whole start and the first calls of every case, each by itself, against the proved gain."""
    launches = attempt.launches
    calls = _call_medians(launches)
    call_ns = sum(calls.values()) // len(calls)
    for what, times in (("prepare", _longest_prepares(launches)), ("start", _longest_starts(launches))):
        baseline, candidate = times
        lost = _beyond(candidate, baseline, policy)
        if not _earned_back(lost, call_ns, policy.start_calls, lower_ppm):
            return _too_slow("SLOW_START", what, candidate, baseline, policy.start_calls)
    for number, case in enumerate(sorted(calls)):
        baseline, candidate, lost = 0, 0, 0
        for position in range(number, len(launches[0].candidate.warmup_ns), len(calls)):
            theirs = _median([launch.baseline.warmup_ns[position] for launch in launches])
            ours = _median([launch.candidate.warmup_ns[position] for launch in launches])
            baseline, candidate, lost = baseline + theirs, candidate + ours, lost + _beyond(ours, theirs, policy)
        if not _earned_back(lost, calls[case], policy.shape_calls, lower_ppm):
            return _too_slow("SLOW_FIRST_CALL", f"first calls of case {case}", candidate, baseline, policy.shape_calls)
    return None


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


def time_spent(attempt: Attempt, arena: Arena) -> Consequence | None:
    """Say when the budget would have held the fewest launches, had the candidate taken no longer than the baseline.

    Without any launch there is no baseline to compare with: then the candidate's checked calls must have taken most of
    the time that passed.
    """
    budget = arena.attempt_budget_seconds * _SECOND_NS
    stages = sum(sum(stage.call_ns) for stage in attempt.stages)
    if not attempt.launches:
        spent = 2 * stages > budget
    else:
        ours = _median([_own_time(launch, launch.candidate) for launch in attempt.launches])
        theirs = _median([_own_time(launch, launch.baseline) for launch in attempt.launches])
        if ours <= theirs:
            return None
        needless = stages - stages * theirs // ours
        launch_ns = _median(
            [
                launch.end_ns - launch.start_ns
                - max(0, _own_time(launch, launch.candidate) - _own_time(launch, launch.baseline))
                for launch in attempt.launches
            ]
        )  # fmt: skip
        before = max(0, attempt.launches[0].start_ns - needless)
        spent = before + arena.launches_min * launch_ns <= budget
    if not spent:
        return None
    reason = (
        f"{len(attempt.launches)} launches of {arena.launches_min} were made in {arena.attempt_budget_seconds} s, and "
        "all of them would have been had the candidate taken no longer than the incumbent"
    )
    return Consequence("FAIL", "CANDIDATE_TOO_SLOW", Blame.MINER, reason)


def _own_time(launch: Launch, role: ArmRecord) -> int:
    """Return the ns in which the referee waited for one role: its starts, its warm-up calls, its timed calls."""
    blocks = [block.candidate if role is launch.candidate else block.baseline for block in launch.blocks]
    starts = sum(arm.ready_ns - arm.start_ns for arm in role.arms)
    return starts + role.first_call_ns + sum(sum(block.call_ns) for block in blocks)


def _call_medians(launches: Sequence[Launch]) -> dict[int, int]:
    times: dict[int, list[int]] = {}
    for launch in launches:
        for block in launch.blocks:
            times.setdefault(block.case, []).extend(block.baseline.call_ns)
    return {case: _median(found) for case, found in times.items()}


def _longest_prepares(launches: Sequence[Launch]) -> tuple[int, int]:
    """Return the medians of the baseline and of the candidate; of several arms the slowest counts."""
    baseline = _median([max(arm.prepare_ns for arm in launch.baseline.arms) for launch in launches])
    return baseline, _median([max(arm.prepare_ns for arm in launch.candidate.arms) for launch in launches])


def _longest_starts(launches: Sequence[Launch]) -> tuple[int, int]:
    baseline = _median([max(arm.ready_ns - arm.start_ns for arm in launch.baseline.arms) for launch in launches])
    return baseline, _median([max(arm.ready_ns - arm.start_ns for arm in launch.candidate.arms) for launch in launches])


def _beyond(candidate: int, baseline: int, policy: ConditioningPolicy) -> int:
    return max(0, candidate - baseline * policy.ratio_ppm // EQUAL_PPM)


def _earned_back(lost_ns: int, call_ns: int, calls: int, lower_ppm: int) -> bool:
    """Say whether a gain of `lower_ppm` on calls of `call_ns` saves at least `lost_ns` within `calls` calls."""
    return lost_ns * lower_ppm <= calls * call_ns * (lower_ppm - EQUAL_PPM)


def _too_slow(code: str, what: str, candidate: int, baseline: int, calls: int) -> Consequence:
    reason = (
        f"{what}: {candidate / 1e6:.1f} ms and the incumbent's {baseline / 1e6:.1f} ms; the gain that is proved does "
        f"not earn that back within {calls} calls"
    )
    return Consequence("FAIL", code, Blame.MINER, reason)


def _median(values: Sequence[int]) -> int:
    return statistics.median_low(values)
