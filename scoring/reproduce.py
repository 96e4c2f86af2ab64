"""Are two attempts a pair: the same question, asked twice independently?

Invariants
1. Equal: bundle, target, variants, arena, speed policy, incumbent, candidate tree, tier, reservation, timing method.
2. Different: seed, attempt id, every input, every process, the assignment of cores to slots (on one machine with two
   cores or more), and time: the reproduction starts after the primary has ended and names the primary's file by digest.
3. Process ids are unique on one machine only. They are compared as sets, process by process, however many one arm has.
4. Wall clocks can be set. An attempt whose wall clock ran less than its steady clock proves no order.
5. All is judged from the attempt files alone, whichever schemas they are of.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from scoring.attempt import Attempt, CallCheck, attempt_digest, encode_attempt

_CLOCK_SLACK_NS = 1_000_000_000  # between a wall clock and a steady one, within one attempt


class Graded(Protocol):
    """A verdict, or a stored row of one."""

    @property
    def outcome(self) -> str:
        """PASS, FAIL or RETRY."""

    @property
    def lower_ppm(self) -> int:
        """The lower bound of the speed-up; 1_000_000 means equal."""


def check_pair(primary: Attempt, reproduction: Attempt, *, primary_digest: str = "") -> str:
    """Return "" when `reproduction` independently repeats `primary`, else the code of the first rule it breaks.

    `primary_digest` is that of the primary's file, where the caller has the file. Codes: PAIR_ROLES, PAIR_NOT_LINKED,
    PAIR_IDENTITY, PAIR_POLICY, PAIR_TIMING_METHOD, PAIR_SAME_ATTEMPT, PAIR_SAME_SEED,
    PAIR_SAME_PROCESS, PAIR_SAME_CORES, PAIR_SAME_INPUTS, PAIR_CLOCK_SET_BACK, PAIR_NOT_LATER.
    Raises `GradeError` for a primary that has no file form.
    """
    same_machine = primary.environment.machine == reproduction.environment.machine
    named = primary_digest or attempt_digest(encode_attempt(primary))
    rules = (
        ("PAIR_ROLES", (primary.role, reproduction.role) == ("primary", "reproduction")),
        ("PAIR_NOT_LINKED", reproduction.previous_attempt == named),
        ("PAIR_IDENTITY", primary.identity == reproduction.identity),
        ("PAIR_POLICY", primary.speed_policy == reproduction.speed_policy),
        ("PAIR_TIMING_METHOD", primary.environment.timing_method == reproduction.environment.timing_method),
        ("PAIR_SAME_ATTEMPT", primary.attempt_id != reproduction.attempt_id),
        ("PAIR_SAME_SEED", primary.seed.revealed != reproduction.seed.revealed),
        ("PAIR_SAME_PROCESS", not (same_machine and set(_processes(primary)) & set(_processes(reproduction)))),
        ("PAIR_SAME_CORES", not same_machine or _cores_exchanged(primary, reproduction)),
        ("PAIR_SAME_INPUTS", set(_inputs(primary)).isdisjoint(_inputs(reproduction))),
        ("PAIR_CLOCK_SET_BACK", _kept_time(primary) and _kept_time(reproduction)),
        ("PAIR_NOT_LATER", reproduction.started_unix_ns >= primary.ended_unix_ns),
    )
    return next((code for code, holds in rules if not holds), "")


def credited_speedup_ppm(primary: Graded, reproduction: Graded) -> int:
    """Return the speed-up that a pair of PASS verdicts earns: the smaller lower bound; 0 unless both are PASS."""
    if primary.outcome != "PASS" or reproduction.outcome != "PASS":
        return 0
    return min(primary.lower_ppm, reproduction.lower_ppm)


def _processes(attempt: Attempt) -> Iterator[str]:
    for launch in attempt.launches:
        yield from launch.baseline.processes
        yield from launch.candidate.processes


def _inputs(attempt: Attempt) -> Iterator[str]:
    """Yield the fingerprints of all inputs; they are keyed from the seed, so two attempts never share one by chance."""
    checks: list[tuple[CallCheck, ...]] = [stage.checks for stage in attempt.stages]
    for launch in attempt.launches:
        checks += [launch.baseline.warmup, launch.candidate.warmup]
        checks += [part.checks for block in launch.blocks for part in (block.baseline, block.candidate)]
    for found in checks:
        yield from (check.input_digest for check in found)


def _cores_exchanged(primary: Attempt, reproduction: Attempt) -> bool:
    """A machine that lends one core only has nothing to exchange."""
    first, second = primary.environment.cores[:2], reproduction.environment.cores[:2]
    return len(set(first) | set(second)) == 1 or first != second


def _kept_time(attempt: Attempt) -> bool:
    """Say whether the wall clock went on for as long as the steady clock that the launches were timed with."""
    steady = max((launch.end_ns for launch in attempt.launches), default=0)
    return attempt.ended_unix_ns - attempt.started_unix_ns + _CLOCK_SLACK_NS >= steady
