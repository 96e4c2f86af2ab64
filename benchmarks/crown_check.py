"""How often would a check of its own speak against an honest crown? `python -m benchmarks.crown_check`.

On every recorded noise (stretches of consecutive launches, roles dealt by a fair coin):

* `unsteady`: the chance of CROWN_UNSTEADY in one check that is undecided, beside that of the plain limits on drift and
  scatter without the sign test; and its power against a crown that is slower by a factor in half of its launches.
* `not_faster`: the chance of an upper bound below the margin for a crown whose true gain is this much above the margin.
  At the margin itself it is that of a false crown, because the test is its own mirror image.

A crown is revoked on two checks, so the chances are to be squared. Results go to benchmarks/results/crown_check.json.
"""

from __future__ import annotations

import json
import math
import platform
from pathlib import Path

import numpy as np

from benchmarks.verdict_noise import FILES, Floats, recorded, sources
from benchmarks.verdict_twin import BUDGET, CHUNK, coins, simulate
from scoring.crown_check import unsteady_alone
from scoring.policy import CONDITIONED_SPEED_POLICY, CrownPolicy, find_policy

CHECKS, SLOW_CHECKS = 40_000, 4_000
LAUNCHES = (16, 24, 40, 64)
FACTORS = (1.3, 1.5, 2.0)
GAINS = (0.0, 0.02)
RESULT = Path(__file__).parent / "results" / "crown_check.json"
POLICY = CrownPolicy()


def main() -> None:
    """Measure and write."""
    chance = np.random.default_rng(20)
    rows = {}
    for prefix, file in FILES.items():
        for load, (ratio, level) in recorded(file).items():
            rows[f"{prefix} {load}"] = {
                "launches": {str(count): false_unsteady(chance, ratio, level, count) for count in LAUNCHES},
                "power": {str(factor): power(chance, ratio, level, factor) for factor in FACTORS},
            }
    result = {
        "environment": {"python": platform.python_version(), "numpy": np.__version__, "machine": platform.machine()},
        "checks": CHECKS, "policy": {name: getattr(POLICY, name) for name in CrownPolicy.__dataclass_fields__},
        "unsteady": rows, "not_faster": not_faster(chance),
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


def stretches(
    chance: np.random.Generator, ratio: Floats, level: Floats, launches: int, checks: int
) -> tuple[Floats, Floats]:
    """Return log times of the crown's arm and of the other: consecutive recorded launches, roles by a fair coin."""
    at = (chance.integers(0, len(level), (checks, 1)) + np.arange(launches)) % len(level)
    first, second = level[at], (level + ratio)[at]
    exchanged = chance.integers(0, 2, (checks, launches)) == 1
    return np.where(exchanged, second, first), np.where(exchanged, first, second)


def false_unsteady(chance: np.random.Generator, ratio: Floats, level: Floats, launches: int) -> dict[str, float]:
    """Return the chances for a crown that is exactly as steady as the other arm."""
    ours, theirs = stretches(chance, ratio, level, launches, CHECKS)
    plain, tested = judge(ours, theirs)
    return {"limits_alone": float(plain.mean()), "rule": float(tested.mean()), "pair": float(tested.mean() ** 2)}


def power(chance: np.random.Generator, ratio: Floats, level: Floats, factor: float) -> float:
    """Return how often a crown is found out that is slower by `factor` in a random half of 64 launches."""
    ours, theirs = stretches(chance, ratio, level, LAUNCHES[-1], SLOW_CHECKS)
    ours = ours + math.log(factor) * chance.integers(0, 2, ours.shape)
    return float(judge(ours, theirs)[1].mean())


def judge(ours: Floats, theirs: Floats) -> tuple[np.ndarray, np.ndarray]:
    """Return for every check whether the limits alone, and the whole rule, call the crown unsteady."""
    launches = ours.shape[1]
    plain = unsteady(ours) & ~unsteady(theirs)
    dominates = distances(ours) > POLICY.dominance_ppm / 1e6 * distances(theirs)
    tail = np.cumsum([float(math.comb(launches, count)) for count in range(launches, -1, -1)])[::-1] / 2**launches
    tested = plain & (tail[dominates.sum(axis=1)] <= POLICY.unsteady_alpha_ppm / 1e6)
    for check in range(0, len(ours), len(ours) // 50):  # the twin is checked against the rule itself
        times = [[round(1e9 * math.exp(value - ours[check, 0])) for value in row[check]] for row in (ours, theirs)]
        assert unsteady_alone(times[0], times[1], POLICY) == tested[check]
    return plain, tested


def unsteady(times: Floats) -> np.ndarray:
    """The limits on drift and scatter."""
    third = times.shape[1] // 3
    lower, upper = quartiles(times)
    drift = np.abs(middle(times[:, :third]) - middle(times[:, -third:]))
    return (drift > math.log(POLICY.drift_limit_ppm / 1e6)) | (upper - lower > math.log(POLICY.scatter_limit_ppm / 1e6))


def distances(times: Floats) -> Floats:
    """How far each launch is from halfway between the quartiles, as a ratio above 1."""
    lower, upper = quartiles(times)
    return np.expm1(np.abs(times - ((lower + upper) / 2)[:, None]))


def quartiles(times: Floats) -> tuple[Floats, Floats]:
    """Both, by order statistics."""
    ordered, quarter = np.sort(times, axis=1), times.shape[1] // 4
    return ordered[:, quarter], ordered[:, -1 - quarter]


def middle(times: Floats) -> Floats:
    """The lower median."""
    return np.sort(times, axis=1)[:, (times.shape[1] - 1) // 2]


def not_faster(chance: np.random.Generator) -> dict[str, dict[str, float]]:
    """Return the chance of an upper bound below the margin, by noise and by true gain above the margin."""
    betting = find_policy(CONDITIONED_SPEED_POLICY).betting
    rows: dict[str, dict[str, float]] = {}
    for name, draw in sources().items():
        rows[name] = {}
        for gain in GAINS:
            found = 0
            for _ in range(SLOW_CHECKS // CHUNK):
                sides = coins(chance, CHUNK, betting.open_launches, BUDGET)
                values = sides * draw(chance, sides) + math.log1p(gain)
                found += int(simulate(-values, sides, betting).passed.sum())
            rows[name][str(gain)] = found / SLOW_CHECKS
    return rows


if __name__ == "__main__":
    main()
