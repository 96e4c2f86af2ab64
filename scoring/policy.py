"""Registered constants of the verdict: fixed before any attempt, the same for every submission.

Invariants
1. Nothing here depends on a candidate or on what was measured.
2. A policy is identified by its id, and never changes: another value is another id. Arenas and attempts name the id, so
   that an attempt is graded for ever under the policy that it was measured for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from config.arena import FIRST_SPEED_POLICY
from config.errors import GradeError

SPEED_POLICY = FIRST_SPEED_POLICY  # of arenas and attempts that name none
CONDITIONED_SPEED_POLICY = "cacheon.speed.v2"
EXCHANGED_SPEED_POLICY = "cacheon.speed.v2-exchanged"
EVERY_LAUNCH = 1_000_000  # open launches of a policy in which every launch has a coin of its own


@dataclass(frozen=True)
class BettingPolicy:
    """How the sequential test spreads its bets. See docs/adr for why each value is what it is.

    With `bias_window` the slot bias is predicted from the medians of the last launches in each slot; without it from
    a mean over all launches, weighed by `bias_memory`.
    """

    open_launches: int = 12  # launches with a coin each; after them one coin serves an exchanged pair
    scales: tuple[float, ...] = (4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)  # lambda, per unit of log-ratio
    look_every: int = 2  # decisions fall at multiples of this many launches
    share: float = 0.05  # part of the wealth that is spread evenly again after every bet
    bias_memory: float = 0.8  # weight of one launch relative to the next when the slot bias is predicted
    bias_window: int = 0  # launches that the median prediction of the slot bias looks back; 0 = the weighed mean
    stakes: tuple[float, ...] = (1.0,)  # most that one bet risks, of what lies on it; all lies on the first to begin
    stake_shares: tuple[float, ...] = (1.0,)  # of each stake in what is spread evenly again; their sum is 1
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
class ConditioningPolicy:
    """How much slower than the incumbent a candidate may start, and meet a shape for the first time.

    What a launch loses beyond `ratio_ppm` of the incumbent's usual time is added up within the launch, and has to be
    earned back by the gain that is proved: a start within `start_calls` calls, the calls of one shape within
    `shape_calls` calls of that shape (`scoring.conditioning`).
    """

    ratio_ppm: int = 1_500_000  # of the incumbent's usual time; what takes longer is lost
    start_calls: int = 10_000  # a few seconds of serving: an engine makes thousands of calls of a slot each second
    shape_calls: int = 100  # a serving process meets new shapes all the time, and whoever waits for one notices


@dataclass(frozen=True)
class CrownPolicy:
    """When a check of a crown shows that nothing can be compared with its bundle (`scoring.crown_check`).

    Each rule compares the two arms of the same launches, whose roles a sealed coin deals out, so that its error is
    bounded under any noise of the machine: 2 ** -`slow_launches`, and `unsteady_alpha_ppm`. Two checks have to show it.
    """

    slow_ratio_ppm: int = 2_000_000  # own time over the other arm's, in every launch
    slow_launches: int = 9  # that it takes; 2 ** -9 is below alpha
    far_ratio_ppm: int = 8_000_000  # the same for fewer launches: far beyond any noise that was ever recorded
    far_launches: int = 2
    usual_ratio_ppm: int = 2_000_000  # the other arm's longest launch over its shortest, where so few are to show it
    drift_limit_ppm: int = 1_500_000  # thirds of the launch times apart, as `MachinePolicy` has it of the baseline
    scatter_limit_ppm: int = 1_250_000  # quartiles apart
    unsteady_launches: int = 16  # fewer show neither
    dominance_ppm: int = 1_500_000  # a launch counts when it is so many times as far from the usual as the other arm's
    unsteady_alpha_ppm: int = 2_500  # chance that fair coins make as many launches count


@dataclass(frozen=True)
class VerdictPolicy:
    """All registered constants of one verdict.

    With `conditioning`, start and first calls are judged by that instead of `start`, and a candidate that spends the
    time of an attempt itself fails by it.
    """

    betting: BettingPolicy = field(default_factory=BettingPolicy)
    machine: MachinePolicy = field(default_factory=MachinePolicy)
    start: StartPolicy = field(default_factory=StartPolicy)
    conditioning: ConditioningPolicy | None = None
    crown: CrownPolicy = field(default_factory=CrownPolicy)


COIN_PER_LAUNCH = BettingPolicy(
    open_launches=EVERY_LAUNCH, look_every=1, share=0.06, bias_window=20, stakes=(1.0, 0.8), stake_shares=(0.5, 0.5)
)
COIN_PER_PAIR = BettingPolicy(open_launches=0, stakes=(1.0, 0.8), stake_shares=(0.8, 0.2))

POLICIES: Mapping[str, VerdictPolicy] = MappingProxyType({
    SPEED_POLICY: VerdictPolicy(),
    CONDITIONED_SPEED_POLICY: VerdictPolicy(betting=COIN_PER_LAUNCH, conditioning=ConditioningPolicy()),
    EXCHANGED_SPEED_POLICY: VerdictPolicy(betting=COIN_PER_PAIR, conditioning=ConditioningPolicy()),
})
POLICY = POLICIES[SPEED_POLICY]


def find_policy(name: str) -> VerdictPolicy:
    """Return the policy called `name`. Raises `GradeError` (SPEED_POLICY_UNKNOWN)."""
    policy = POLICIES.get(name)
    if policy is None:
        raise GradeError(
            "SPEED_POLICY_UNKNOWN", f"speed policy {name[:60]!r} is not one this grader knows",
            hint=f"known policies: {', '.join(sorted(POLICIES))}; a newer release may know it",
        )
    return policy
