"""Are the calls of an attempt long enough for what lies around them not to count?

Invariant: this is a remark about an arena on a machine, never part of a verdict. A timed call holds, beside the entry,
the waking of an arm and its way there, some fifteen microseconds that a bundle can shorten (row 202 of the hostile
corpus: 7 % at 0.2 ms a call, nothing at 2 ms). Above `CALL_FLOOR_NS` that is below any margin an arena registers.
"""

from __future__ import annotations

import statistics

from config.arena import Arena
from scoring.attempt import Attempt

CALL_FLOOR_NS = 500_000
ARENA_CALLS_SHORT = "ARENA_CALLS_SHORT"


def short_calls(attempt: Attempt) -> dict[int, int]:
    """Return the cases whose baseline call is shorter than the floor, each with its median duration in ns."""
    times: dict[int, list[int]] = {}
    for launch in attempt.launches:
        for block in launch.blocks:
            times.setdefault(block.case, []).extend(block.baseline.call_ns)
    medians = {case: statistics.median_low(found) for case, found in sorted(times.items())}
    return {case: median for case, median in medians.items() if median < CALL_FLOOR_NS}


def short_call_notes(attempt: Attempt, arena: Arena) -> list[str]:
    """Return one sentence for each case with short calls."""
    loads = arena.measured(attempt.identity.target_id, attempt.identity.slots)
    shapes = [(load.target, shape) for load in loads for shape in load.shapes]
    notes = []
    for case, median in short_calls(attempt).items():
        slot, shape = shapes[case]
        text = " ".join(f"{name}={extent}" for name, extent in shape.items())
        notes.append(
            f"the incumbent's calls of {slot} at {text} take {median / 1e6:.2f} ms here; below "
            f"{CALL_FLOOR_NS / 1e6:.1f} ms the way to an entry counts as well, so give the arena larger shapes "
            f"[{ARENA_CALLS_SHORT}]"
        )
    return notes
