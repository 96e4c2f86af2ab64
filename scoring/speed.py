"""The speed test: is the candidate faster than the margin, whatever the machine's noise does?

Invariants
1. The unit of evidence is a coin, not a timing. Within one unit (a launch, later an exchanged pair) the candidate's
   slot is decided by one fair sealed coin that is independent of everything before it; the noise of the unit may
   depend on anything but that coin.
2. One bet multiplies the wealth by `1 + stake * tanh(scale * (gain - m))`, where `gain` is the unit's log-ratio and the
   stake is at most 1. If the gain, averaged over the two sides of the coin, is at most `m`, the factor's expectation is
   at most 1. That stays true after subtracting a slot bias predicted from earlier launches only, and for any mixture of
   such bets whose weights follow from earlier launches only.
3. Hence the wealth is a non-negative supermartingale, and reaching `1/alpha` at any time has probability at most
   alpha (Ville). Looking after every launch costs nothing.
4. The wealth falls as `m` grows, so the lower bound is the largest `m` at which it ever reached `1/alpha`; the upper
   bound is the mirror image. Bounds are whole ppm of the speed ratio (1_000_000 = equal) and only ever tighten.
5. PASS means that `lower_ppm` has reached 1_000_000 + margin_ppm, NOT_FASTER that `upper_ppm` does not exceed it.
   Log-ratios are rounded to 1e-9 and bounds to whole ppm, so machines agree.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable
from enum import StrEnum

from config.arena import Arena
from config.errors import EvidenceError, GradeError
from scoring.attempt import Block, Launch
from scoring.policy import POLICY, BettingPolicy, find_policy

EQUAL_PPM = 1_000_000
_DECIMALS = 9  # of a log-ratio
_EXPONENT_MAX = 700.0  # exp() of more overflows a double
_SLACK = 1e-6  # of a log-wealth: far more than rounding adds up to
_FIRST_STEP, _STEPS_GROW = 1, 16  # ppm, from a bound that is known to the next


class Decision(StrEnum):
    """Where a sequential test stands."""

    CONTINUE = "CONTINUE"
    PASS = "PASS"
    NOT_FASTER = "NOT_FASTER"
    EXHAUSTED = "EXHAUSTED"  # launches_max reached without a decision


def block_value(block: Block) -> float:
    """Return log(baseline / candidate) of one block's total call time. Raises `GradeError` (TIMING_NOT_POSITIVE)."""
    for times in (block.baseline.call_ns, block.candidate.call_ns):
        if not times or min(times) <= 0:
            raise EvidenceError("TIMING_NOT_POSITIVE", "a timed call has a duration that is not positive")
    return math.log(sum(block.baseline.call_ns) / sum(block.candidate.call_ns))


def launch_value(launch: Launch, gaps: int = 0) -> float:
    """Return the launch's log-ratio: the mean over shapes of the median over blocks; positive = candidate faster.

    `gaps` more shapes, which stock serves whoever wins, have a gain of exactly 0 and weigh like any other.
    Raises `GradeError`: TIMING_NOT_POSITIVE, LAUNCH_INCOMPLETE (no blocks).
    """
    by_case: dict[int, list[float]] = {}
    for block in launch.blocks:
        by_case.setdefault(block.case, []).append(block_value(block))
    return _mean_over_shapes(launch, [statistics.median(by_case[case]) for case in sorted(by_case)], gaps)


def total_value(launch: Launch, gaps: int = 0) -> float:
    """Return the same with the ratio of all timed calls of a shape in place of the median over blocks.

    Of several blocks of a shape the first is left out, whoever gains by that: it may hold what is done once. Raises
    `GradeError` as `launch_value` does.
    """
    by_case: dict[int, list[Block]] = {}
    for block in launch.blocks:
        block_value(block)
        by_case.setdefault(block.case, []).append(block)
    values = []
    for case in sorted(by_case):
        blocks = by_case[case][1:] or by_case[case]
        baseline = sum(sum(block.baseline.call_ns) for block in blocks)
        values.append(math.log(baseline / sum(sum(block.candidate.call_ns) for block in blocks)))
    return _mean_over_shapes(launch, values, gaps)


def _mean_over_shapes(launch: Launch, values: list[float], gaps: int) -> float:
    if not values:
        raise EvidenceError("LAUNCH_INCOMPLETE", f"launch {launch.index} has no blocks")
    return round(math.fsum(values) / (len(values) + gaps), _DECIMALS)


class SequentialTest:
    """An anytime-valid test of one candidate against one margin. Feed it launches in order; read `decision`."""

    def __init__(
        self,
        *,
        margin_ppm: int,
        alpha_ppm: int,
        launches_min: int = 0,
        launches_max: int = 1_000_000,
        betting: BettingPolicy = POLICY.betting,
    ) -> None:
        if not (0 < alpha_ppm < EQUAL_PPM and margin_ppm >= 0 and 0 <= launches_min <= launches_max):
            raise GradeError("SPEED_PARAMETERS", "alpha, margin or launch counts are outside their range")
        self.launches = 0
        self.decision = Decision.CONTINUE
        self._goal_ppm = EQUAL_PPM + margin_ppm
        self._threshold = math.log(EQUAL_PPM / alpha_ppm)
        self._launches_min = launches_min
        self._launches_max = launches_max
        self._betting = betting
        self._bias = _MedianBias(betting.bias_window) if betting.bias_window else _SlotBias(betting.bias_memory)
        self._units: list[tuple[float, float]] = []  # log-ratio as seen, and with the predicted slot bias removed
        self._half: float | None = None
        goal = math.log(self._goal_ppm / EQUAL_PPM)
        self._faster, self._slower = _Bets(betting, goal, 1.0), _Bets(betting, goal, -1.0)
        self._bounds = (0, betting.ratio_ppm_max)  # of the first `_bounded` units
        self._bounded = 0

    @classmethod
    def for_arena(cls, arena: Arena) -> SequentialTest:
        """Return the test that `arena` registers. Raises `GradeError` (SPEED_POLICY_UNKNOWN)."""
        return cls(
            betting=find_policy(arena.speed_policy).betting,
            margin_ppm=arena.margin_ppm,
            alpha_ppm=arena.alpha_ppm,
            launches_min=arena.launches_min,
            launches_max=arena.launches_max,
        )

    def add_launch(self, log_ratio: float, candidate_slot: int) -> Decision:
        """Take one launch's value and the slot its coin gave the candidate; return the decision so far.

        Raises `GradeError`: VALUE_NOT_FINITE, SLOT_UNKNOWN, TEST_DECIDED (the test had already ended).
        """
        if not math.isfinite(log_ratio):
            raise EvidenceError("VALUE_NOT_FINITE", "a launch value is not a finite number")
        if candidate_slot not in (0, 1):
            raise EvidenceError("SLOT_UNKNOWN", f"slot {candidate_slot!r} is neither 0 nor 1")
        if self.decision is not Decision.CONTINUE:
            raise EvidenceError("TEST_DECIDED", "a launch arrived after the test had been decided")
        if self.launches < self._betting.open_launches:
            side = 1 - 2 * candidate_slot
            self._add_unit(log_ratio, log_ratio - side * self._bias.predict())
            self._bias.observe(log_ratio, side)
        elif self._half is None:
            self._half = log_ratio
        else:
            mean = (self._half + log_ratio) / 2
            self._add_unit(mean, mean)
            self._half = None
        self.launches += 1
        self.decision = self._decide()
        return self.decision

    @property
    def log_wealth(self) -> float:
        """Log of what betting against "the gain is at most the margin" has made of 1 so far."""
        return self._faster.log_wealth

    @property
    def lower_ppm(self) -> int:
        """Largest ratio, in ppm, that the candidate is proved to reach; 0 while nothing is proved."""
        return self._compute_bounds()[0]

    @property
    def upper_ppm(self) -> int:
        """Smallest ratio, in ppm, that the candidate is proved not to exceed; the policy's maximum while unproved."""
        return self._compute_bounds()[1]

    def _add_unit(self, plain: float, adjusted: float) -> None:
        self._units.append((plain, adjusted))
        self._faster.place(plain, adjusted)
        self._slower.place(plain, adjusted)

    def _decide(self) -> Decision:
        if self.launches >= self._launches_min and self.launches % self._betting.look_every == 0:
            if self._faster.best >= self._threshold:
                return Decision.PASS
            if self._slower.best >= self._threshold:
                return Decision.NOT_FASTER
        return Decision.EXHAUSTED if self.launches >= self._launches_max else Decision.CONTINUE

    def _compute_bounds(self) -> tuple[int, int]:
        """Bounds only tighten, so each is looked for from where it stood; and no bet more than doubles."""
        units = len(self._units)
        if units > self._bounded and units * math.log(2) >= self._threshold - _SLACK:
            top, (lower, upper) = self._betting.ratio_ppm_max, self._bounds
            lower = _furthest(lower, top, lambda ppm: self._proves(ppm, 1.0))
            upper = top - _furthest(top - upper, top - 1, lambda below: self._proves(top - below, -1.0))
            self._bounds, self._bounded = (lower, upper), units
        return self._bounds

    def _proves(self, ratio_ppm: int, direction: float) -> bool:
        """Say whether betting against "the gain is at most (at least, when mirrored) this ratio" ever won 1/alpha."""
        if ratio_ppm <= 0:
            return False
        bets = _Bets(self._betting, math.log(ratio_ppm / EQUAL_PPM), direction)
        return any(bets.place(*unit) >= self._threshold for unit in self._units)


class _Bets:
    """A portfolio over stakes x (bias removed or not) x scales, rebalanced a little after every bet."""

    def __init__(self, betting: BettingPolicy, log_ratio: float, direction: float) -> None:
        self._slopes = [-2.0 * direction * scale for scale in betting.scales]
        self._stakes = betting.stakes
        self._centre = log_ratio
        self._keep = 1.0 - betting.share
        per_stake = 2 * len(betting.scales)
        even = 1.0 / per_stake
        self._spread = [betting.share * even * part for part in betting.stake_shares for _ in range(per_stake)]
        self._weights = [even] * per_stake + [0.0] * (per_stake * (len(betting.stakes) - 1))
        self.log_wealth = 0.0
        self.best = 0.0  # log of the largest wealth so far

    def place(self, plain: float, adjusted: float) -> float:
        """Settle one unit and return the log of the wealth."""
        full = self._factors(plain)
        full += full if adjusted == plain else self._factors(adjusted)
        factors: list[float] = []
        for stake in self._stakes:
            factors += full if stake == 1.0 else [1.0 + stake * (factor - 1.0) for factor in full]
        grown = [weight * factor for weight, factor in zip(self._weights, factors, strict=True)]
        total = math.fsum(grown)
        self.log_wealth += math.log(total)
        self.best = max(self.best, self.log_wealth)
        scale = self._keep / total
        self._weights = [weight * scale + spread for weight, spread in zip(grown, self._spread, strict=True)]
        return self.log_wealth

    def _factors(self, value: float) -> list[float]:
        distance = value - self._centre
        return [2.0 / (1.0 + math.exp(min(slope * distance, _EXPONENT_MAX))) for slope in self._slopes]


class _SlotBias:
    """Predicts, from earlier launches alone, how much slot 0 favours whoever sits there (in log-ratio)."""

    def __init__(self, memory: float) -> None:
        self._memory = memory
        self._seen: list[tuple[float, int]] = []

    def observe(self, log_ratio: float, side: int) -> None:
        self._seen.append((log_ratio, side))

    def predict(self) -> float:
        """Return the prediction; 0 until the candidate has sat in both slots. Shrunk towards 0 by one launch."""
        by_side = {side: [value for value, seen in self._seen if seen == side] for side in (1, -1)}
        if not (by_side[1] and by_side[-1]):
            return 0.0
        gain = (statistics.median(by_side[1]) + statistics.median(by_side[-1])) / 2
        total, weight_sum, weight = 0.0, 1.0, 1.0
        for value, side in reversed(self._seen):
            total += weight * side * (value - gain)
            weight_sum += weight
            weight *= self._memory
        return total / weight_sum


class _MedianBias:
    """The same prediction from medians, which a few bad launches do not move.

    Half of what the candidate's median log-ratio in slot 0 exceeds that in slot 1, over the last `window` launches:
    the gain is in both and cancels.
    """

    def __init__(self, window: int) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=window)

    def observe(self, log_ratio: float, side: int) -> None:
        self._seen.append((log_ratio, side))

    def predict(self) -> float:
        """Return the prediction; 0 until the candidate has sat in both slots. Shrunk towards 0 by one launch."""
        first = [value for value, side in self._seen if side == 1]
        second = [value for value, side in self._seen if side == -1]
        if not (first and second):
            return 0.0
        seen = len(first) + len(second)
        return (statistics.median(first) - statistics.median(second)) / 2 * (seen / (seen + 1))


def _furthest(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the largest integer in [low, high] for which `holds`, given that it holds at `low` and up to some point.

    Steps grow from `low` on until one fails: a bound that has not moved costs one look.
    """
    step = _FIRST_STEP if low else high
    while low < high:
        if not holds(min(low + step, high)):
            high = min(low + step, high) - 1
            break
        low, step = min(low + step, high), _STEPS_GROW * step
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low
