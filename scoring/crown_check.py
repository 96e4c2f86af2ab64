"""Does a crowned bundle still do what it was crowned for? Judged from a check: an attempt of the crown against what
stands beneath it, in which no challenger has a part. Pure.

Invariants
1. Only what the crowned bundle itself did counts: a failure of its own, being proved no faster than what it was crowned
   over, or being so slow or so unsteady that nothing can be compared with it, on a machine on which the other arm of
   the same launches is neither.
2. A gain that could merely not be proved again proves nothing. Nor does a rule about which calls reach the bundle, a
   slow start, or a fault of ours.
3. One check proves nothing either: a crown is revoked on two that are a pair of independent attempts.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from config.arena import Arena
from scoring.attempt import Attempt, Launch, Role
from scoring.grade import Verdict
from scoring.speed import EQUAL_PPM

CROWN_SLOW, CROWN_UNSTEADY = "CROWN_SLOW", "CROWN_UNSTEADY"
OWN_FAULTS = frozenset({
    "WRONG_OUTPUT", "LATE_WRITE", "INPUT_MUTATED", "OUT_OF_BOUNDS_WRITE", "ARM_CRASHED", "ARM_RAISED", "CALL_DEADLINE",
    "RESOURCE_LIMIT", "ARM_PROTOCOL", "FORBIDDEN_CALL", "LOAD_FAILED", "ENTRY_SIGNATURE", "PREPARE_FAILED",
    "NOT_EXECUTED", "CANDIDATE_TOO_SLOW",
})
SUSPECT_RETRIES = frozenset({"BASELINE_FAILED", "TIME_BUDGET_SHORT", "MACHINE_UNFIT"})  # an incumbent can cause these
DRIFT_PPM, SCATTER_PPM = 1_500_000, 1_250_000  # of launch times: thirds apart, and quartiles apart, of unsteady code
_TWICE = 2
_LAUNCHES = 2  # that a statement about every launch needs at least


def fault_of_crown(attempt: Attempt, verdict: Verdict, arena: Arena) -> str:
    """Return the code of what a check shows against the crowned bundle, its candidate; "" when it shows nothing."""
    if verdict.outcome == "FAIL" and verdict.code in OWN_FAULTS:
        return verdict.code
    if verdict.code == "NOT_FASTER" and verdict.upper_ppm < EQUAL_PPM + arena.margin_ppm:
        return verdict.code
    if attempt.ending == "incident" or verdict.code not in ("NOT_FASTER", "TIME_BUDGET_SHORT"):
        return ""
    if len(attempt.launches) >= _LAUNCHES and all(_is_slow(launch) for launch in attempt.launches):
        return CROWN_SLOW
    unsteady = _is_unsteady(_totals(attempt.launches, "candidate"))
    return CROWN_UNSTEADY if unsteady and not _is_unsteady(_totals(attempt.launches, "baseline")) else ""


def _is_slow(launch: Launch) -> bool:
    (candidate,), (baseline,) = _totals([launch], "candidate"), _totals([launch], "baseline")
    return candidate > _TWICE * baseline


def _totals(launches: Sequence[Launch], role: Role) -> list[int]:
    """Return the time of all calls of a role, per launch, in ns."""
    return [sum(sum(getattr(block, role).call_ns) for block in launch.blocks) for launch in launches]


def _is_unsteady(totals: Sequence[int]) -> bool:
    """Say whether times drift or scatter as those of a fit machine, and of steady code on it, do not."""
    third, quarter = len(totals) // 3, len(totals) // 4
    if third == 0:
        return False
    ordered = sorted(totals)
    drift = _apart(statistics.median_low(totals[:third]), statistics.median_low(totals[-third:]))
    scatter = _apart(ordered[quarter], ordered[-1 - quarter])
    return drift > DRIFT_PPM or scatter > SCATTER_PPM


def _apart(one: int, other: int) -> int:
    return max(one, other) * EQUAL_PPM // max(1, min(one, other))
