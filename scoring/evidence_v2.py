"""Do the facts that the second schema of attempt files added agree with each other, and with the rest of the file?

Invariants
1. Every call has a duration, and every duration is positive: checked calls of the stages, warm-up calls, timed calls.
2. Whatever happened one after the other has room for it on the one clock: stages before the first launch, `prepare`
   within a start, the starts of slot 0 before those of slot 1, warm-up calls before the first block.
3. Both roles answer the same questions at the same places.
4. Every case that was measured has its least work, and no right answer takes none.
"""

from __future__ import annotations

from config.errors import EvidenceError
from scoring.attempt import Attempt, CallCheck, Launch


def check_additions(attempt: Attempt, cases: tuple[int, ...]) -> None:
    """Raises `GradeError`: CHECKS_MISSING, LAUNCH_INCOMPLETE, TIMING_NOT_POSITIVE, CLOCK_BACKWARDS, INPUTS_DIFFER,
    WORK_INCONSISTENT.
    """
    for stage in attempt.stages:
        if len(stage.call_ns) != len(stage.checks):
            raise EvidenceError("CHECKS_MISSING", "a stage has not as many durations as checks")
        if min(stage.call_ns, default=1) <= 0:
            raise EvidenceError("TIMING_NOT_POSITIVE", "a checked call of a stage has no positive duration")
    if attempt.launches and sum(sum(stage.call_ns) for stage in attempt.stages) > attempt.launches[0].start_ns:
        raise EvidenceError("CLOCK_BACKWARDS", "the first launch starts before the stages before it had ended")
    for launch in attempt.launches:
        for role in (launch.baseline, launch.candidate):
            if len(role.warmup_ns) != len(role.warmup) or len(role.warmup) < len(cases):
                raise EvidenceError("LAUNCH_INCOMPLETE", f"launch {launch.index} lacks durations of warm-up calls")
        _check_room(launch)
        _check_questions(launch)
    if attempt.launches and tuple(work.case for work in attempt.work) != cases:
        raise EvidenceError("WORK_INCONSISTENT", "the least work is not given for each case that was measured")
    if any(work.least_bytes <= 0 for work in attempt.work):
        raise EvidenceError("WORK_INCONSISTENT", "a right answer is said to move no byte, not even its outputs")


def _check_room(launch: Launch) -> None:
    """Raises `GradeError`: TIMING_NOT_POSITIVE, CLOCK_BACKWARDS."""
    first, second = sorted((launch.baseline, launch.candidate), key=lambda role: role.slot)
    if second.start_ns < first.ready_ns:
        raise EvidenceError("CLOCK_BACKWARDS", f"slot 1 of launch {launch.index} starts before slot 0 was ready")
    for role in (first, second):
        if any(arm.prepare_ns > arm.ready_ns - arm.start_ns for arm in role.arms):
            raise EvidenceError("CLOCK_BACKWARDS", f"`prepare` in launch {launch.index} took longer than its start")
        if min(role.warmup_ns) <= 0:
            raise EvidenceError("TIMING_NOT_POSITIVE", f"a warm-up call of launch {launch.index} has no duration")
    begin = min(part.start_ns for block in launch.blocks for part in (block.baseline, block.candidate))
    if begin < second.ready_ns + first.first_call_ns + second.first_call_ns:
        raise EvidenceError("CLOCK_BACKWARDS", f"launch {launch.index} has no room for its warm-up calls")


def _check_questions(launch: Launch) -> None:
    """Raises `GradeError` (INPUTS_DIFFER)."""
    pairs = [(launch.baseline.warmup, launch.candidate.warmup)]
    pairs += [(block.baseline.checks, block.candidate.checks) for block in launch.blocks]
    for baseline, candidate in pairs:
        if _inputs(baseline) != _inputs(candidate):
            raise EvidenceError("INPUTS_DIFFER", f"the roles of launch {launch.index} were asked different questions")


def _inputs(checks: tuple[CallCheck, ...]) -> list[str]:
    return [check.input_digest for check in checks]
