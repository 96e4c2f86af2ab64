"""What a proved steady gain must not hide: slow starts, slow first calls, and slow calls that medians leave out.

Invariants
1. A start is compared with the incumbent's start, a warm-up call with the incumbent's at the same position, a timed
   call with the incumbent's usual call of the case. What a launch loses beyond the policy's ratio is added up within
   the launch, on whichever of its calls it falls, and what the incumbent itself loses by the same measure is taken
   off: drawing anew in every process which call pays hides nothing.
2. What is lost has to be earned back, by the gain that is proved and not by the one that is estimated, within the
   policy's number of calls. A candidate fails when more is lost in most launches, and when that is no work of chance:
   a fair coin dealt the two arms their places, so noise is as likely to cost the incumbent as much. Of the launches
   that cost either of them so much, the candidate must have been the one so often that fair coins do that with a
   probability of at most alpha; cases share it out.
3. The speed test reads medians of blocks, so that a stall decides nothing. What is slow on purpose in fewer than half
   of the blocks would vanish in them: the same test is made with all calls added up, and a candidate that it proves to
   be slower than the incumbent has no gain. The first block of a case is no part of that, because it may hold what is
   done once, which 2 is about. Stalls that meet both roles alike bring the two sums closer and never turn them round,
   so an honest candidate fails by it with a probability of at most alpha, however noisy the machine.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from config.arena import Arena
from config.errors import Blame
from scoring.attempt import ArmRecord, Attempt, Launch, Role
from scoring.incidents import Consequence
from scoring.policy import ConditioningPolicy, find_policy
from scoring.speed import Decision, SequentialTest, total_value

EQUAL_PPM = 1_000_000
_ROLES: tuple[Role, Role] = ("baseline", "candidate")

Lost = list[int]  # per launch: ns beyond what is allowed, less what the incumbent lost likewise


def regression(attempt: Attempt, lower_ppm: int, policy: ConditioningPolicy, alpha_ppm: int) -> Consequence | None:
    """Judge `prepare`, the whole start, the calls of every case, and start and first calls together."""
    launches = attempt.launches
    usual = usual_calls(launches)
    coins = find_policy(attempt.speed_policy).betting.open_launches
    start_allowed = _saved(sum(usual.values()) // len(usual), policy.start_calls, lower_ppm)
    starts: Lost = []
    for what, longest in (("prepare", _longest_prepare), ("start", _longest_start)):
        starts = _lost(launches, _once(longest), policy)
        if _proved(starts, start_allowed, coins, alpha_ppm):
            medians = [_median([longest(_arms(launch, role)) for launch in launches]) for role in _ROLES]
            return _too_slow("SLOW_START", what, medians, policy.start_calls)
    totals = starts
    for number, case in enumerate(sorted(usual)):
        firsts = _lost(launches, _warmup_of(number, len(usual)), policy)
        later = _lost(launches, _timed_of(case), policy, [usual[case]])
        lost = [one + other for one, other in zip(firsts, later, strict=True)]
        allowed = _saved(usual[case], policy.shape_calls, lower_ppm)
        if _proved(lost, allowed, coins, alpha_ppm // len(usual)):
            medians = [
                _median([sum(_warmup_of(number, len(usual))(launch, role)) for launch in launches]) for role in _ROLES
            ]
            return _too_slow("SLOW_FIRST_CALL", f"first calls of case {case}", medians, policy.shape_calls, lost)
        totals = [one + other for one, other in zip(totals, lost, strict=True)]
    if _proved(totals, start_allowed, coins, alpha_ppm):
        return _too_slow("SLOW_START", "start and first calls together", [], policy.start_calls, totals)
    return None


def uneven(attempt: Attempt, arena: Arena) -> Consequence | None:
    """Say when the candidate is proved to be slower than the incumbent once no call is left out."""
    test = SequentialTest(
        margin_ppm=0,
        alpha_ppm=arena.alpha_ppm,
        launches_min=len(attempt.launches),
        launches_max=arena.launches_max,
        betting=find_policy(attempt.speed_policy).betting,
    )
    for launch in attempt.launches:
        test.add_launch(total_value(launch, len(attempt.identity.gaps)), launch.candidate_slot)
    if test.decision is not Decision.NOT_FASTER:
        return None
    reason = (
        "its usual calls are faster, and so many others so slow that all of them together are proved to be "
        f"slower than the incumbent's, at {test.upper_ppm / EQUAL_PPM:.3f}x at most"
    )
    return Consequence("FAIL", "UNEVEN_SPEED", Blame.MINER, reason)


def usual_calls(launches: Sequence[Launch]) -> dict[int, int]:
    """Return the median duration of the incumbent's timed calls, by case."""
    times: dict[int, list[int]] = {}
    for launch in launches:
        for block in launch.blocks:
            times.setdefault(block.case, []).extend(block.baseline.call_ns)
    return {case: _median(found) for case, found in times.items()}


def _lost(
    launches: Sequence[Launch],
    times_of: Callable[[Launch, Role], Sequence[int]],
    policy: ConditioningPolicy,
    usual: Sequence[int] | None = None,
) -> Lost:
    """Return per launch what the candidate loses beyond the ratio of what is usual, less what the baseline loses.

    Usual are the baseline's medians at the same positions, or for all positions the one figure that `usual` holds.
    """
    times: Mapping[Role, list[Sequence[int]]] = {role: [times_of(one, role) for one in launches] for role in _ROLES}
    if usual is None:
        usual = [_median(column) for column in zip(*times["baseline"], strict=True)]
    allowed = [ns * policy.ratio_ppm // EQUAL_PPM for ns in usual]
    ours, theirs = ([_beyond(row, allowed) for row in times[role]] for role in ("candidate", "baseline"))
    return [one - other for one, other in zip(ours, theirs, strict=True)]


def _beyond(times: Sequence[int], allowed: Sequence[int]) -> int:
    limits = list(allowed) * len(times) if len(allowed) == 1 else allowed
    return sum(max(0, ns - limit) for ns, limit in zip(times, limits, strict=True))


def _once(longest: Callable[[ArmRecord], int]) -> Callable[[Launch, Role], Sequence[int]]:
    return lambda launch, role: [longest(_arms(launch, role))]


def _warmup_of(number: int, cases: int) -> Callable[[Launch, Role], Sequence[int]]:
    """Return what reads the warm-up calls of the case that comes as `number` of `cases`."""
    return lambda launch, role: _arms(launch, role).warmup_ns[number::cases]


def _timed_of(case: int) -> Callable[[Launch, Role], Sequence[int]]:
    def read(launch: Launch, role: Role) -> list[int]:
        return list(_timed(launch, role, case))

    return read


def _timed(launch: Launch, role: Role, case: int) -> Iterator[int]:
    for block in launch.blocks:
        if block.case == case:
            yield from (block.candidate if role == "candidate" else block.baseline).call_ns


def _arms(launch: Launch, role: Role) -> ArmRecord:
    return launch.candidate if role == "candidate" else launch.baseline


def _longest_prepare(record: ArmRecord) -> int:
    return max(arm.prepare_ns for arm in record.arms)


def _longest_start(record: ArmRecord) -> int:
    return max(arm.ready_ns - arm.start_ns for arm in record.arms)


def _saved(call_ns: int, calls: int, lower_ppm: int) -> int:
    """Return what a gain of `lower_ppm` on calls of `call_ns` saves within `calls` calls, in ns."""
    return calls * call_ns * (lower_ppm - EQUAL_PPM) // lower_ppm


def _proved(lost: Lost, allowed_ns: int, open_launches: int, alpha_ppm: int) -> bool:
    """Say whether most launches lose more than is allowed, and fair coins would hardly ever have it so.

    Launches that share a coin are one unit, with their mean.
    """
    pairs = zip(lost[open_launches::2], lost[open_launches + 1 :: 2], strict=False)
    units = lost[:open_launches] + [(one + other) // 2 for one, other in pairs]
    over = sum(ns > allowed_ns for ns in units)
    either = over + sum(-ns > allowed_ns for ns in units)
    chances = sum(math.comb(either, count) for count in range(over, either + 1))
    return 2 * over > len(units) and chances * EQUAL_PPM <= alpha_ppm * 2**either


def _too_slow(code: str, what: str, medians: Sequence[int], calls: int, lost: Sequence[int] = ()) -> Consequence:
    times = [f"{medians[1] / 1e6:.1f} ms and the incumbent's {medians[0] / 1e6:.1f} ms"] if medians else []
    times += [f"{_median(lost) / 1e6:.1f} ms more than allowed"] if lost else []
    reason = f"{what}: {', '.join(times)}; the gain that is proved does not earn that back within {calls} calls"
    return Consequence("FAIL", code, Blame.MINER, reason)


def _median(values: Sequence[int]) -> int:
    return statistics.median_low(values)
