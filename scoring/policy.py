"""Registered constants of the verdict: fixed before any attempt, the same for every submission.

Invariants
1. Nothing here depends on a candidate or on what was measured.
2. Changing a value changes what a crown promises, so it changes `SPEED_POLICY` with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SPEED_POLICY = "cacheon.speed.v1"


@dataclass(frozen=True)
class BettingPolicy:
    """How the sequential test spreads its bets. See docs/adr for why each value is what it is."""

    open_launches: int = 12  # launches with a coin each; after them one coin serves an exchanged pair
    scales: tuple[float, ...] = (4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)  # lambda, per unit of log-ratio
    look_every: int = 2  # decisions fall at multiples of this many launches
    share: float = 0.05  # part of the wealth that is spread evenly again after every bet
    bias_memory: float = 0.8  # weight of one launch relative to the next when the slot bias is predicted
    ratio_ppm_max: int = 1_000_000_000  # bounds are looked for between 1 ppm and this (1000 times faster)


@dataclass(frozen=True)
class MachinePolicy:
    """When an undecided attempt is the machine's fault."""

    drift_limit_ppm: int = 1_500_000  # slower third over faster third of the baseline's launch times
    scatter_limit_ppm: int = 1_250_000  # upper over lower quartile of the baseline's launch times


@dataclass(frozen=True)
class StartPolicy:
    """How slow a candidate may start (prepare plus warm-up calls), judged apart from its steady speed."""

    ratio_ppm: int = 20_000_000  # candidate's median start over the baseline's
    floor_ns: int = 250_000_000  # a start below this is never too slow


@dataclass(frozen=True)
class VerdictPolicy:
    """All registered constants of one verdict."""

    betting: BettingPolicy = field(default_factory=BettingPolicy)
    machine: MachinePolicy = field(default_factory=MachinePolicy)
    start: StartPolicy = field(default_factory=StartPolicy)


POLICY = VerdictPolicy()
