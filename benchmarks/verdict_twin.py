"""The sequential test on thousands of attempts at once, checked against `scoring.speed`; and fixed-size designs."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.verdict_noise import Draw, Floats
from scoring.policy import BettingPolicy
from scoring.speed import Decision, SequentialTest

ALPHA = 0.005
BUDGET = 96
CHUNK = 1000


class Outcome(NamedTuple):
    """PASS flags and launches used, one entry per attempt."""

    passed: NDArray[np.bool_]
    launches: NDArray[np.int64]


def coins(chance: np.random.Generator, attempts: int, open_launches: int, launches: int = BUDGET) -> Floats:
    """Draw sides as sealed: +1 where the candidate sits in slot 0; a coin per launch, then one per exchanged pair."""
    sides = chance.choice([-1.0, 1.0], (attempts, launches))
    for launch in range(open_launches + 1, launches, 2):
        sides[:, launch] = -sides[:, launch - 1]
    return sides


def simulate(values: Floats, sides: Floats, betting: BettingPolicy) -> Outcome:
    """Run the test on many attempts at once. `values` count from the margin."""
    attempts, budget = values.shape
    scales, stakes = np.array(betting.scales), np.array(betting.stakes)[:, None, None]
    many = len(betting.stakes) > 1
    even = 1 / (2 * len(scales))
    spread = betting.share * even * np.array(betting.stake_shares)[:, None, None]
    weights = np.zeros((attempts, len(betting.stakes), 2, len(scales)))
    weights[:, 0] = even
    wealth, best = np.zeros(attempts), np.zeros(attempts)
    passed, used = np.zeros(attempts, bool), np.full(attempts, budget)
    live = np.arange(attempts)
    for launch in range(budget):
        opened = launch < betting.open_launches
        if opened or (launch - betting.open_launches) % 2:
            unit = values[live, launch] if opened else (values[live, launch - 1] + values[live, launch]) / 2
            adjusted = unit
            if opened:
                bias = predicted_bias(values[live, :launch], sides[live, :launch], betting)
                adjusted = unit - sides[live, launch] * bias
            exponent = np.minimum(-2 * np.stack([unit, adjusted], 1)[:, :, None] * scales, 700)
            factors = 2 / (1 + np.exp(exponent))
            grown = weights[live] * factors[:, None]
            if many:  # a stake of 1 takes the factor as it is: 1 + (factor - 1) would round the smallest ones to 0
                part = 1 + stakes * (factors[:, None] - 1)
                grown = weights[live] * np.where(stakes == 1.0, factors[:, None], part)
            total = grown.sum(axis=(1, 2, 3))
            wealth[live] += np.log(total)
            best[live] = np.maximum(best[live], wealth[live])
            weights[live] = grown * ((1 - betting.share) / total)[:, None, None, None] + spread
        if (launch + 1) % betting.look_every == 0:
            won = live[best[live] >= math.log(1 / ALPHA)]
            passed[won], used[won] = True, launch + 1
            live = live[~passed[live]]
            if not len(live):
                break
    return Outcome(passed, used)


def predicted_bias(values: Floats, sides: Floats, betting: BettingPolicy) -> Floats:
    """Vectorised twin of the slot-bias predictions: one value per attempt from the launches so far."""
    attempts, seen = values.shape
    if seen < 2:
        return np.zeros(attempts)
    if betting.bias_window:
        values, sides = values[:, -betting.bias_window :], sides[:, -betting.bias_window :]
    first, second = _median(values, sides > 0), _median(values, sides < 0)
    both = np.isfinite(first) & np.isfinite(second)
    if betting.bias_window:
        size = values.shape[1]
        return np.where(both, (np.where(both, first, 0) - np.where(both, second, 0)) / 2 * (size / (size + 1)), 0.0)
    gain = (np.where(both, first, 0) + np.where(both, second, 0)) / 2
    weights = betting.bias_memory ** np.arange(seen - 1, -1, -1)
    return np.where(both, (sides * (values - gain[:, None]) * weights).sum(axis=1) / (1 + weights.sum()), 0.0)


def _median(values: Floats, wanted: NDArray[np.bool_]) -> Floats:
    """Return the median of the wanted values of each row; infinite where none is wanted."""
    count = np.maximum(wanted.sum(axis=1), 1)
    ordered = np.sort(np.where(wanted, values, np.inf), axis=1)
    row = np.arange(len(values))
    return np.asarray((ordered[row, (count - 1) // 2] + ordered[row, count // 2]) / 2)


def run(draw: Draw, gain: float, attempts: int, betting: BettingPolicy, seed: int) -> Outcome:
    """Simulate `attempts` attempts in chunks."""
    chance = np.random.default_rng(seed)
    parts = []
    for start in range(0, attempts, CHUNK):
        sides = coins(chance, min(CHUNK, attempts - start), betting.open_launches)
        parts.append(simulate(gain + sides * draw(chance, sides), sides, betting))
    return Outcome(np.concatenate([p.passed for p in parts]), np.concatenate([p.launches for p in parts]))


def cross_check(draw: Draw, betting: BettingPolicy, attempts: int = 20) -> int:
    """Compare the vectorised twin with the real test; return how many attempts agreed (all, or it raises)."""
    chance = np.random.default_rng(99)
    sides = coins(chance, attempts, betting.open_launches)
    slots = draw(chance, sides)
    for gain in (0.0, 0.03):
        values = np.round(gain + sides * slots, 9)
        twin = simulate(values, sides, betting)
        for row in range(attempts):
            test = SequentialTest(margin_ppm=0, alpha_ppm=5000, launches_max=BUDGET, betting=betting)
            while test.decision is Decision.CONTINUE:
                at = test.launches
                test.add_launch(float(values[row, at]), 0 if sides[row, at] > 0 else 1)
            if test.decision is Decision.NOT_FASTER:
                continue  # the twin follows only the side that can pass
            if (test.decision is Decision.PASS, test.launches) != (bool(twin.passed[row]), int(twin.launches[row])):
                raise SystemExit(f"the simulation and the test disagree: {test.decision} after {test.launches}")
    return 2 * attempts


def bet_on_each_launch_of_a_pair(draw: Draw, gain: float, attempts: int, betting: BettingPolicy, seed: int) -> float:
    """Return how often a rule passes that bets on both launches of an exchanged pair as if each had its own coin."""
    chance = np.random.default_rng(seed)
    sides = coins(chance, attempts, 0)
    return float(simulate(gain + sides * draw(chance, sides), sides, betting).passed.mean())


def signed_rank_threshold(units: int) -> int:
    """Return the least signed-rank sum that `units` fair coins reach with probability at most alpha."""
    ways = np.zeros(units * (units + 1) // 2 + 1)
    ways[0] = 1.0
    for rank in range(1, units + 1):
        ways[rank:] += ways[:-rank].copy()
        ways /= 2
    tail = np.cumsum(ways[::-1])[::-1]
    return int(np.argmax(tail <= ALPHA)) if tail[-1] <= ALPHA else len(ways)


def fixed_size(
    draw: Draw, gain: float, power: float, paired: bool, attempts: int = 1000, most: int = 192
) -> int | None:
    """Return the launches that a fixed-size signed-rank test of the same alpha needs for `power`; None beyond `most`.

    It uses the same coins and samples, and is exact as well: one coin per launch, or one per exchanged pair.
    """
    chance = np.random.default_rng(3)
    sides = coins(chance, attempts, 0 if paired else most, most)
    values = gain + sides * draw(chance, sides)
    units = (values[:, ::2] + values[:, 1::2]) / 2 if paired else values
    per_unit = 2 if paired else 1

    def reaches(count: int) -> bool:
        taken = units[:, :count]
        ranks = np.abs(taken).argsort(axis=1).argsort(axis=1) + 1
        return bool(((ranks * (taken > 0)).sum(axis=1) >= signed_rank_threshold(count)).mean() >= power)

    low, high = 1, most // per_unit
    if not reaches(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if reaches(middle) else (middle + 1, high)
    return low * per_unit
