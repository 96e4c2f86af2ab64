"""Is this attempt file valid evidence? Every way in which it is not has its own code.

Invariants
1. An attempt is judged only against the arena whose digest it names.
2. The seed opens the commitment, and every slot and block order follows from the seed.
3. A recorded launch is complete: all blocks, all calls, one check per call, one timing method, a clock that never
   goes back, and two processes that no other launch used.
4. What is measured is every slot that the attempt names; cases that both roles leave to stock are named and are asked
   of nobody, so that no time can be recorded for them.
5. Arms of one role are started one after the other. Every process of every arm is one that no other arm has.
6. What the second schema added is there when a file is of it, and agrees with the rest (`scoring.evidence_v2`).
7. Checks run in a fixed order, so the same file always gives the same code.
"""

from __future__ import annotations

from collections.abc import Iterator

from config.arena import Arena
from config.errors import EvidenceError, GradeError
from scoring import attempt_v1, sealing
from scoring.attempt import ArmRecord, Attempt, Block, Launch, LimitsInForce, RoleBlock
from scoring.evidence_v2 import check_additions
from scoring.policy import find_policy


def check_evidence(attempt: Attempt, arena: Arena) -> None:
    """Return when `attempt` is valid evidence under `arena`.

    Raises `GradeError`: ARENA_MISMATCH, SPEED_POLICY_MISMATCH, TARGET_NOT_IN_ARENA, SLOTS_INCONSISTENT,
    GAPS_INCONSISTENT, ROLE_INCONSISTENT, LIMITS_MISMATCH, TIMES_REVERSED, SEED_MALFORMED, SEED_NOT_OPENING,
    CHECKS_MISSING, WORK_INCONSISTENT, LAUNCH_SURPLUS, LAUNCH_MISSING and those of one launch:
    COIN_MISMATCH, SLOT_MISMATCH, ORDER_MISMATCH, TIMING_METHODS_MIXED, LAUNCH_INCOMPLETE, CASE_MISMATCH,
    CLOCK_BACKWARDS, TIMING_NOT_POSITIVE, INPUTS_DIFFER, PROCESS_REUSED, INPUT_REPEATED.
    """
    _check_identity(attempt, arena)
    cases = _cases(attempt, arena)
    seed = sealing.parse_seed(attempt.seed.revealed)
    if sealing.commitment(seed, attempt.attempt_id) != attempt.seed.commitment:
        raise EvidenceError("SEED_NOT_OPENING", "the revealed seed does not open the commitment")
    if attempt.launches and not any(stage.checks for stage in attempt.stages):
        raise EvidenceError("CHECKS_MISSING", "launches were made and no correctness check before them is recorded")
    if len(attempt.launches) > arena.launches_max:
        raise EvidenceError(
            "LAUNCH_SURPLUS", f"{len(attempt.launches)} launches are recorded and the arena allows {arena.launches_max}"
        )
    clock = 0
    for position, launch in enumerate(attempt.launches):
        if launch.index != position:
            raise EvidenceError(
                "LAUNCH_MISSING", f"launch {position} is missing: the next recorded one is {launch.index}"
            )
        _check_schedule(attempt, seed, launch)
        _check_complete(launch, cases, arena)
        clock = _check_clock(launch, clock)
    _check_fresh(attempt)
    if attempt.schema != attempt_v1.SCHEMA:
        check_additions(attempt, cases)


def _cases(attempt: Attempt, arena: Arena) -> tuple[int, ...]:
    """Return the numbers of the cases that blocks go through.

    Raises `GradeError`: TARGET_NOT_IN_ARENA, SLOTS_INCONSISTENT, GAPS_INCONSISTENT.
    """
    identity = attempt.identity
    own = {part.target for part in arena.parts(identity.target_id)}
    if not own:
        raise GradeError("TARGET_NOT_IN_ARENA", f"arena {arena.id} has no workload for target {identity.target_id}")
    loads = arena.measured(identity.target_id, identity.slots)
    if identity.slots and not (own < set(identity.slots) and list(identity.slots) == sorted({*identity.slots})):
        raise EvidenceError(
            "SLOTS_INCONSISTENT", "the slots that were measured are not the target's and others, in order"
        )
    if not loads:
        raise GradeError("TARGET_NOT_IN_ARENA", f"arena {arena.id} lacks a workload for one of the slots measured")
    if not 0 < sum(len(load.shapes) for load in loads) <= arena.blocks_per_launch:
        raise GradeError("TARGET_NOT_IN_ARENA", f"a launch of arena {arena.id} has not a block for every case")
    count = sum(len(load.shapes) for load in loads)
    gaps = set(identity.gaps)
    if list(identity.gaps) != sorted(gaps) or not gaps <= set(range(count)):
        raise EvidenceError("GAPS_INCONSISTENT", f"the cases left to stock are not some of {count}, in order")
    if attempt.launches and len(gaps) == count:
        raise EvidenceError("GAPS_INCONSISTENT", "all cases are left to stock, and launches were made all the same")
    return tuple(case for case in range(count) if case not in gaps)


def _check_identity(attempt: Attempt, arena: Arena) -> None:
    identity = attempt.identity
    if (identity.arena_id, identity.arena_digest) != (arena.id, arena.digest):
        raise GradeError(
            "ARENA_MISMATCH",
            f"the attempt was measured under arena {identity.arena_id} {identity.arena_digest[:12]}, "
            f"not under {arena.id} {arena.digest[:12]}",
            hint="grade it with the arena document that it names",
        )
    if attempt.speed_policy != arena.speed_policy:
        raise EvidenceError(
            "SPEED_POLICY_MISMATCH",
            f"the attempt follows {attempt.speed_policy[:60]!r} and its arena {arena.speed_policy!r}",
        )
    if (attempt.role == "primary") != (attempt.previous_attempt == ""):
        raise EvidenceError("ROLE_INCONSISTENT", "a reproduction names the attempt before it, and a primary names none")
    in_force = LimitsInForce(
        arena.arm_memory_bytes, arena.arm_threads, arena.call_deadline_ms, arena.attempt_budget_seconds
    )
    if attempt.limits != in_force:
        raise EvidenceError("LIMITS_MISMATCH", "the limits in force were not those of the arena")
    if attempt.environment.timing_method != arena.timing_method:
        raise EvidenceError("TIMING_METHODS_MIXED", "the attempt was timed by another method than the arena registers")
    if attempt.ended_unix_ns < attempt.started_unix_ns:
        raise EvidenceError("TIMES_REVERSED", "the attempt ended before it started")


def _check_schedule(attempt: Attempt, seed: bytes, launch: Launch) -> None:
    if launch.timing_method != attempt.environment.timing_method:
        raise EvidenceError(
            "TIMING_METHODS_MIXED", f"launch {launch.index} was timed by another method than the attempt"
        )
    coins = find_policy(attempt.speed_policy).betting.open_launches
    slot = sealing.candidate_slot(seed, attempt.attempt_id, launch.index, open_launches=coins)
    if launch.candidate_slot != slot:
        raise EvidenceError("COIN_MISMATCH", f"the slots of launch {launch.index} do not follow from the seed")
    if (launch.candidate.slot, launch.baseline.slot) != (slot, 1 - slot):
        raise EvidenceError("SLOT_MISMATCH", f"an arm of launch {launch.index} did not sit in its slot")
    cores = attempt.environment.cores
    if len(cores) <= 1 or any(arm.core != cores[arm.slot] for arm in (launch.baseline, launch.candidate)):
        raise EvidenceError("SLOT_MISMATCH", f"an arm of launch {launch.index} did not run on the core of its slot")
    for number, block in enumerate(launch.blocks):
        sealed = "candidate" if sealing.candidate_first(seed, attempt.attempt_id, launch.index, number) else "baseline"
        if block.first != sealed:
            raise EvidenceError(
                "ORDER_MISMATCH", f"the order in block {number} of launch {launch.index} does not follow from the seed"
            )


def _check_complete(launch: Launch, cases: tuple[int, ...], arena: Arena) -> None:
    """Raises `GradeError`: LAUNCH_INCOMPLETE, CASE_MISMATCH."""
    if len(launch.blocks) != arena.blocks_per_launch:
        raise EvidenceError(
            "LAUNCH_INCOMPLETE",
            f"launch {launch.index} has {len(launch.blocks)} blocks and the arena asks for {arena.blocks_per_launch}",
        )
    warmups = {len(arm.warmup) for arm in (launch.baseline, launch.candidate)}
    if len(warmups) > 1 or not warmups <= {arena.warmup_calls, max(arena.warmup_calls, len(cases))}:
        raise EvidenceError("LAUNCH_INCOMPLETE", f"an arm of launch {launch.index} lacks checks of warm-up calls")
    for number, block in enumerate(launch.blocks):
        if block.case != cases[number % len(cases)]:
            raise EvidenceError("CASE_MISMATCH", f"block {number} of launch {launch.index} measured another shape")
        for part in (block.baseline, block.candidate):
            if not len(part.call_ns) == len(part.checks) == arena.calls_per_block:
                raise EvidenceError(
                    "LAUNCH_INCOMPLETE", f"block {number} of launch {launch.index} lacks calls or checks"
                )


def _check_clock(launch: Launch, clock: int) -> int:
    """Return the launch's end. Raises `GradeError`: CLOCK_BACKWARDS, TIMING_NOT_POSITIVE."""
    if launch.start_ns < clock:
        raise EvidenceError("CLOCK_BACKWARDS", f"launch {launch.index} starts before the one before it had ended")
    clock = launch.start_ns
    for role in (launch.baseline, launch.candidate):
        free = launch.start_ns
        for arm in role.arms:
            if not free <= arm.start_ns <= arm.ready_ns <= launch.end_ns:
                raise EvidenceError("CLOCK_BACKWARDS", f"an arm of launch {launch.index} was ready before its start")
            free = arm.ready_ns
        clock = max(clock, free)
    for part in _in_order(launch.blocks):
        if min(part.call_ns) <= 0:
            raise EvidenceError(
                "TIMING_NOT_POSITIVE", f"a timed call of launch {launch.index} has no positive duration"
            )
        if part.start_ns < clock:
            raise EvidenceError(
                "CLOCK_BACKWARDS", f"a block of launch {launch.index} starts before an earlier one ended"
            )
        clock = part.start_ns + sum(part.call_ns)
    if launch.end_ns < clock:
        raise EvidenceError("CLOCK_BACKWARDS", f"launch {launch.index} ends before its last block")
    return launch.end_ns


def _in_order(blocks: tuple[Block, ...]) -> Iterator[RoleBlock]:
    for block in blocks:
        yield from (block.baseline, block.candidate) if block.first == "baseline" else (block.candidate, block.baseline)


def _check_fresh(attempt: Attempt) -> None:
    """Every arm is a process of its own, and the candidate never sees the same input twice."""
    processes: set[str] = set()
    inputs: set[str] = set()
    for launch in attempt.launches:
        for process in (*launch.baseline.processes, *launch.candidate.processes):
            if not process or process in processes:
                raise EvidenceError("PROCESS_REUSED", f"launch {launch.index} reuses the process of another arm")
            processes.add(process)
        for digest in _candidate_inputs(launch.candidate, launch.blocks):
            if digest in inputs:
                raise EvidenceError(
                    "INPUT_REPEATED", f"the candidate saw one input twice, last in launch {launch.index}"
                )
            inputs.add(digest)


def _candidate_inputs(arm: ArmRecord, blocks: tuple[Block, ...]) -> Iterator[str]:
    yield from (check.input_digest for check in arm.warmup)
    for block in blocks:
        yield from (check.input_digest for check in block.candidate.checks)
