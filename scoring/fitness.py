"""Was the machine fit to measure? The baseline's own times say it, and nothing of the candidate's.

Invariants
1. Only an undecided attempt is asked about: the speed test is exact under any noise, so a decision stands.
2. A candidate cannot call the machine unfit. What shows only in the baseline's turns right after the candidate's own is
   of the candidate's making, and excuses nobody; it takes the turns that came right after one of its own as well.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from scoring.attempt import Block, Launch
from scoring.policy import MachinePolicy

EQUAL_PPM = 1_000_000
_LAUNCHES_MIN = 4  # with such turns; fewer show neither a drift nor a scatter


def unfit(launches: Sequence[Launch], policy: MachinePolicy, *, own_turns: bool) -> str:
    """Say what the baseline alone did that a fit machine does not let it do; empty when nothing.

    With `own_turns`, it has to show in the baseline's turns right after one of its own, too.
    """
    totals = [sum(sum(block.baseline.call_ns) for block in launch.blocks) for launch in launches]
    found = _unsteady(totals, policy)
    if found and own_turns:
        rested = _rested_turns(launches)
        if len(rested) >= _LAUNCHES_MIN and not _unsteady(rested, policy):
            return ""
    return found


def _unsteady(totals: Sequence[int], policy: MachinePolicy) -> str:
    third = len(totals) // 3
    if third == 0:
        return ""
    first, last = statistics.median_low(totals[:third]), statistics.median_low(totals[-third:])
    if _apart(first, last) > policy.drift_limit_ppm:
        return "drifted"
    ordered = sorted(totals)
    quarter = len(ordered) // 4
    if _apart(ordered[quarter], ordered[-1 - quarter]) > policy.scatter_limit_ppm:
        return "scattered"
    return ""


def _rested_turns(launches: Sequence[Launch]) -> list[int]:
    """Return for each launch with turns of the baseline right after its own their mean, in ppm of what the case takes.

    Before the first block comes a warm-up call of whoever sits in slot 1.
    """
    totals: dict[int, list[int]] = {}
    for launch in launches:
        for block in launch.blocks:
            totals.setdefault(block.case, []).append(_total(block))
    usual = {case: statistics.median_low(found) for case, found in totals.items()}
    means = []
    for launch in launches:
        before = "baseline" if launch.baseline.slot == 1 else "candidate"
        turns = []
        for block in launch.blocks:
            if block.first == before == "baseline":
                turns.append(_total(block) * EQUAL_PPM // max(1, usual[block.case]))
            before = "candidate" if block.first == "baseline" else "baseline"
        if turns:
            means.append(sum(turns) // len(turns))
    return means


def _total(block: Block) -> int:
    return sum(block.baseline.call_ns)


def _apart(one: int, other: int) -> int:
    """Return the larger over the smaller of two durations, in ppm."""
    return max(one, other) * EQUAL_PPM // max(1, min(one, other))
