"""Are two attempts a pair: the same question, asked twice independently?

Invariants
1. Equal: bundle, target, variants, arena, incumbent, candidate tree, tier, reservation, timing method.
2. Different: seed, attempt id, every process, the assignment of cores to slots (on one machine with two cores or
   more), and time: the reproduction starts after the primary has ended and names the primary's file by digest.
3. Both are judged from the attempt files alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from scoring.attempt import Attempt, attempt_digest, encode_attempt


class Graded(Protocol):
    """A verdict, or a stored row of one."""

    @property
    def outcome(self) -> str:
        """PASS, FAIL or RETRY."""

    @property
    def lower_ppm(self) -> int:
        """The lower bound of the speed-up; 1_000_000 means equal."""


def check_pair(primary: Attempt, reproduction: Attempt) -> str:
    """Return "" when `reproduction` independently repeats `primary`, else the code of the first rule it breaks.

    Codes: PAIR_ROLES, PAIR_NOT_LINKED, PAIR_IDENTITY, PAIR_TIMING_METHOD, PAIR_SAME_ATTEMPT, PAIR_SAME_SEED,
    PAIR_SAME_PROCESS, PAIR_SAME_CORES, PAIR_NOT_LATER.
    """
    same_machine = primary.environment.machine == reproduction.environment.machine
    rules = (
        ("PAIR_ROLES", (primary.role, reproduction.role) == ("primary", "reproduction")),
        ("PAIR_NOT_LINKED", reproduction.previous_attempt == attempt_digest(encode_attempt(primary))),
        ("PAIR_IDENTITY", primary.identity == reproduction.identity),
        ("PAIR_TIMING_METHOD", primary.environment.timing_method == reproduction.environment.timing_method),
        ("PAIR_SAME_ATTEMPT", primary.attempt_id != reproduction.attempt_id),
        ("PAIR_SAME_SEED", primary.seed.revealed != reproduction.seed.revealed),
        ("PAIR_SAME_PROCESS", not (same_machine and set(_processes(primary)) & set(_processes(reproduction)))),
        ("PAIR_SAME_CORES", not same_machine or _cores_exchanged(primary, reproduction)),
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
        yield launch.baseline.process
        yield launch.candidate.process


def _cores_exchanged(primary: Attempt, reproduction: Attempt) -> bool:
    """A machine that lends one core only has nothing to exchange."""
    first, second = primary.environment.cores[:2], reproduction.environment.cores[:2]
    return len(set(first) | set(second)) == 1 or first != second
