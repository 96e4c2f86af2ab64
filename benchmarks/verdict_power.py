"""How often does the speed verdict err, and how many launches does a gain need? On recorded and invented noise.

Run: `python -m benchmarks.verdict_power [--attempts 20000] [--false-attempts 200000]` (about ten minutes at the
defaults on one core). Writes `benchmarks/results/verdict_power.json` and prints the table beside the published one.

What is simulated: launches of identical code (the candidate's gain is added as a constant), drawn as consecutive
recorded pairs with replacement, coins as sealed, the registered bets. The false rate is measured where it is worst,
at a gain of exactly the margin. The simulation is vectorised; a sample of its decisions is compared with
`scoring.speed.SequentialTest` itself on every run.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scoring.policy import POLICY, BettingPolicy
from scoring.speed import Decision, SequentialTest

HERE = Path(__file__).parent
ALPHA = 0.005
BUDGET = 96
GAINS = (0.005, 0.01, 0.02, 0.05, 0.10)
CHUNK = 4000

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int, int], Floats]  # (generator, attempts, launches) -> slot log-ratios

# gain above the margin -> (power, median launches), as published with the design
PUBLISHED: dict[str, dict[float, tuple[float, int]]] = {
    "2-core mid": {0.02: (1.00, 20), 0.05: (1.00, 18), 0.10: (1.00, 18)},
    "2-core matmul": {0.02: (0.97, 20), 0.05: (1.00, 18), 0.10: (1.00, 18)},
    "2-core large": {0.02: (0.57, 32), 0.05: (1.00, 26), 0.10: (1.00, 18)},
    "2-core tiny": {0.02: (0.33, 22), 0.05: (0.72, 18), 0.10: (1.00, 26)},
    "16-core mid": {0.02: (0.25, 54), 0.05: (1.00, 36), 0.10: (1.00, 18)},
    "H200 graph mid, device events": {0.02: (1.00, 10), 0.05: (1.00, 9)},
    "H200 graph tiny, device events": {0.01: (1.00, 13), 0.02: (1.00, 10), 0.05: (1.00, 9)},
}
DESIGNS: dict[str, BettingPolicy] = {
    "registered": POLICY.betting,
    "exchanged pairs only": dataclasses.replace(POLICY.betting, open_launches=0),
    "one coin per launch": dataclasses.replace(POLICY.betting, open_launches=BUDGET, look_every=1),
}


class Outcome(NamedTuple):
    """PASS flags and launches used, one entry per attempt."""

    passed: NDArray[np.bool_]
    launches: NDArray[np.int64]


def recorded(name: str) -> dict[str, tuple[Floats, Floats]]:
    """Return load -> (log(t1 / t0), log t0) per recorded launch, medians over blocks of the host clock."""
    loads = json.loads((HERE / "data" / "noise" / f"{name}.json").read_text("utf-8"))["loads"]
    result = {}
    for load in loads:
        rows = [[(row[0][0], row[1][0]) for row in launch["rows"]] for launch in load["launches"]]
        ratio = [float(np.median([math.log(b / a) for a, b in launch])) for launch in rows]
        level = [float(np.median([math.log(a) for a, _ in launch])) for launch in rows]
        result[load["name"]] = (np.array(ratio), np.array(level))
    return result


def pairs_of(values: Floats) -> Draw:
    """Draw consecutive recorded pairs with replacement."""

    def draw(chance: np.random.Generator, attempts: int, launches: int) -> Floats:
        first = 2 * chance.integers(0, len(values) // 2, (attempts, launches // 2))
        return np.stack([values[first], values[first + 1]], axis=2).reshape(attempts, launches)

    return draw


def normal(deviation: float) -> Draw:
    """Independent normal launch values."""
    return lambda chance, attempts, launches: chance.normal(0, deviation, (attempts, launches))


def invented() -> dict[str, Draw]:
    """Noise made to break a test that assumes something."""

    def walk(chance: np.random.Generator, attempts: int, launches: int) -> Floats:
        return np.cumsum(chance.normal(0, 0.02, (attempts, launches)), axis=1)

    def drift(chance: np.random.Generator, attempts: int, launches: int) -> Floats:
        return np.linspace(-0.3, 0.3, launches) + chance.normal(0, 0.01, (attempts, launches))

    def spikes(chance: np.random.Generator, attempts: int, launches: int) -> Floats:
        spike = chance.random((attempts, launches)) < 0.1
        return chance.normal(0, 0.01, (attempts, launches)) + spike * chance.choice([-1.0, 1.0], (attempts, launches))

    def cauchy(chance: np.random.Generator, attempts: int, launches: int) -> Floats:
        return np.clip(0.02 * chance.standard_cauchy((attempts, launches)), -5, 5)

    def alternating(_: np.random.Generator, attempts: int, launches: int) -> Floats:
        return np.tile(0.1 * (-1.0) ** np.arange(launches), (attempts, 1))

    def constant(_: np.random.Generator, attempts: int, launches: int) -> Floats:
        return np.full((attempts, launches), 0.1)

    def switch(chance: np.random.Generator, attempts: int, launches: int) -> Floats:
        sign = np.where(np.arange(launches) < 12, 1.0, -1.0)
        return 0.08 * sign * chance.choice([-1.0, 1.0], (attempts, 1)) + chance.normal(0, 0.005, (attempts, launches))

    return {
        "random walk": walk, "linear drift": drift, "spikes": spikes, "heavy tails": cauchy,
        "alternating bias": alternating, "constant bias": constant, "bias that switches at launch 12": switch,
    }  # fmt: skip


def predicted_bias(values: Floats, sides: Floats, memory: float) -> Floats:
    """Vectorised twin of the slot-bias prediction: one value per attempt from the launches so far."""
    attempts, seen = values.shape
    if seen < 2:
        return np.zeros(attempts)
    both = (sides > 0).any(axis=1) & (sides < 0).any(axis=1)
    result = np.zeros(attempts)
    v, s = values[both], sides[both]
    gain = (np.nanmedian(np.where(s > 0, v, np.nan), axis=1) + np.nanmedian(np.where(s < 0, v, np.nan), axis=1)) / 2
    weights = memory ** np.arange(seen - 1, -1, -1)
    result[both] = (s * (v - gain[:, None]) * weights).sum(axis=1) / (1 + weights.sum())
    return result


def simulate(slots: Floats, sides: Floats, gain: float, betting: BettingPolicy) -> Outcome:
    """Run the test on many attempts at once. `gain` counts from the margin; `sides` is +1 for slot 0."""
    attempts, budget = slots.shape
    values = gain + sides * slots
    scales = np.array(betting.scales)
    even = 1 / (2 * len(scales))
    weights = np.full((attempts, 2, len(scales)), even)
    wealth, best = np.zeros(attempts), np.zeros(attempts)
    passed, used = np.zeros(attempts, bool), np.full(attempts, budget)
    live = np.arange(attempts)
    for launch in range(budget):
        opened = launch < betting.open_launches
        if opened or (launch - betting.open_launches) % 2:
            unit = values[live, launch] if opened else (values[live, launch - 1] + values[live, launch]) / 2
            adjusted = unit
            if opened:
                past = slice(0, launch)
                bias = predicted_bias(values[live, past], sides[live, past], betting.bias_memory)
                adjusted = unit - sides[live, launch] * bias
            exponent = np.minimum(-2 * np.stack([unit, adjusted], 1)[:, :, None] * scales, 700)
            grown = weights[live] * 2 / (1 + np.exp(exponent))
            total = grown.sum(axis=(1, 2))
            wealth[live] += np.log(total)
            best[live] = np.maximum(best[live], wealth[live])
            weights[live] = grown * ((1 - betting.share) / total)[:, None, None] + betting.share * even
        if (launch + 1) % betting.look_every == 0:
            won = live[best[live] >= math.log(1 / ALPHA)]
            passed[won], used[won] = True, launch + 1
            live = live[~passed[live]]
            if not len(live):
                break
    return Outcome(passed, used)


def coins(chance: np.random.Generator, attempts: int, betting: BettingPolicy) -> Floats:
    """Draw sides as sealed: a coin per launch, then one per exchanged pair."""
    sides = chance.choice([-1.0, 1.0], (attempts, BUDGET))
    for launch in range(betting.open_launches + 1, BUDGET, 2):
        sides[:, launch] = -sides[:, launch - 1]
    return sides


def run(draw: Draw, gain: float, attempts: int, betting: BettingPolicy, seed: int) -> Outcome:
    """Simulate `attempts` attempts in chunks."""
    chance = np.random.default_rng(seed)
    parts = []
    for start in range(0, attempts, CHUNK):
        size = min(CHUNK, attempts - start)
        parts.append(simulate(draw(chance, size, BUDGET), coins(chance, size, betting), gain, betting))
    return Outcome(np.concatenate([p.passed for p in parts]), np.concatenate([p.launches for p in parts]))


def cross_check(draw: Draw, betting: BettingPolicy, attempts: int = 40) -> int:
    """Compare the vectorised twin with the real test; return how many attempts agreed (all, or it raises)."""
    chance = np.random.default_rng(99)
    slots, sides = draw(chance, attempts, BUDGET), coins(chance, attempts, betting)
    for gain in (0.0, 0.03):
        twin = simulate(slots, sides, gain, betting)
        for row in range(attempts):
            test = SequentialTest(margin_ppm=0, alpha_ppm=5000, launches_max=BUDGET, betting=betting)
            while test.decision is Decision.CONTINUE:
                at = test.launches
                value = gain + float(sides[row, at] * slots[row, at])
                test.add_launch(value, 0 if sides[row, at] > 0 else 1)
            if test.decision is Decision.NOT_FASTER:
                continue  # the twin follows only the side that can pass
            if (test.decision is Decision.PASS, test.launches) != (bool(twin.passed[row]), int(twin.launches[row])):
                raise SystemExit(f"the simulation and the test disagree: {test.decision} after {test.launches}")
    return 2 * attempts


def bracket_rule(ratio: Floats, level: Floats, gain: float, margin: float = 0.05) -> float:
    """Return how often the reference's baseline, candidate, baseline rule passes on the same launches.

    The baseline runs in slot 0 of launch i, the candidate in slot 1 of launch i, the second baseline in slot 0 of
    launch i + 1. Two baselines further apart than 2 % drop the second one, as the reference does.
    """
    first, last = np.exp(-level[:-1]), np.exp(-level[1:])
    candidate = np.exp(-(level + ratio)[:-1]) * (1 + margin) * math.exp(gain)
    spread = np.abs(first - last) / ((first + last) / 2)
    steady = spread <= 0.02
    speedup = np.where(steady, candidate / ((first + last) / 2), candidate / first)
    required = np.where(steady, 1 + np.maximum(margin, 2 * spread), 1 + margin)
    return float((speedup >= required).mean())


def bracket_rates() -> dict[str, dict[str, float]]:
    """Return how often the bracket rule passes: identical code, then gains above the margin."""
    result = {}
    for cores, file in (("2", "cpu2core_launches"), ("16", "cpu16core_launches")):
        for load, (ratio, level) in recorded(file).items():
            rates = {"identical code": bracket_rule(ratio, level, -math.log(1.05))}
            rates |= {str(gain): bracket_rule(ratio, level, gain) for gain in (0.0, *GAINS)}
            result[f"{cores}-core {load}"] = {name: round(rate, 4) for name, rate in rates.items()}
            print(f"{cores}-core {load:27} bracket rule: identical code passes {rates['identical code']:.4f}")
    return result


def summary(outcome: Outcome, published: tuple[float, int] | None) -> dict[str, Any]:
    """Return power, median launches of passing attempts, and the launches after which the published power is met."""
    power = float(outcome.passed.mean())
    median = float(np.median(outcome.launches[outcome.passed])) if power else None
    row: dict[str, Any] = {"power": round(power, 4), "median_launches": median}
    if published is not None:
        needed = published[0] - 0.005  # published powers are rounded to two digits
        ordered = np.sort(np.where(outcome.passed, outcome.launches, BUDGET + 1))
        at = int(ordered[min(len(ordered) - 1, math.ceil(needed / 2 * len(ordered)))])
        row |= {
            "published_power": published[0],
            "published_median": published[1],
            "launches_to_half_published_power": at,
            "power_met": power >= needed,
            "launches_met": at <= published[1],
        }
    return row


def sources() -> dict[str, Draw]:
    """Return all recorded and modelled noise rows."""
    rows: dict[str, Draw] = {}
    for cores, name in (("2", "cpu2core_launches"), ("16", "cpu16core_launches")):
        for load, (ratio, _) in recorded(name).items():
            rows[f"{cores}-core {load}"] = pairs_of(ratio)
    rows["H200 graph mid, device events"] = normal(0.0037)
    rows["H200 graph tiny, device events"] = normal(0.0075)
    return rows


def main() -> None:
    """Run everything, print the tables, write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=20_000)
    parser.add_argument("--false-attempts", type=int, default=200_000)
    arguments = parser.parse_args()
    started = time.monotonic()
    results: dict[str, Any] = {
        "alpha": ALPHA, "budget_launches": BUDGET, "attempts": arguments.attempts,
        "false_attempts": arguments.false_attempts, "policy": dataclasses.asdict(POLICY.betting),
        "recorded": {}, "invented": {},
    }  # fmt: skip
    print(f"{'noise':34} {'design':22} {'false':>7}  " + "  ".join(f"+{gain:<12.1%}" for gain in GAINS))
    for name, draw in sources().items():
        designs = {"one coin per launch": DESIGNS["one coin per launch"]} if name.startswith("H200") else DESIGNS
        results["recorded"][name] = {
            design: power_row(name, design, draw, betting, arguments) for design, betting in designs.items()
        }
    for name, draw in invented().items():
        results["invented"][name] = power_row(name, "registered", draw, POLICY.betting, arguments)
    results["bracket_rule"] = bracket_rates()
    results["seconds"] = round(time.monotonic() - started)
    target = HERE / "results" / "verdict_power.json"
    target.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", "utf-8")
    print(f"written to {target} after {results['seconds']} s")


def power_row(name: str, design: str, draw: Draw, betting: BettingPolicy, arguments: argparse.Namespace) -> Any:
    """Measure one noise row under one design and print it."""
    checked = cross_check(draw, betting)
    registered = design == "registered" or name.startswith("H200")
    wrong = run(draw, 0.0, arguments.false_attempts if registered else arguments.attempts, betting, seed=1).passed
    half = len(wrong) // 2
    row: dict[str, Any] = {
        "false_rate": float(wrong.mean()),
        "false_pair_rate": float((wrong[:half] & wrong[half : 2 * half]).mean()),
        "cross_checked": checked,
        "gains": {},
    }
    cells = []
    for gain in GAINS:
        published = PUBLISHED.get(name, {}).get(gain)
        cell = summary(run(draw, gain, arguments.attempts, betting, seed=2), published)
        row["gains"][str(gain)] = cell
        mark = "" if published is None else ("*" if cell["power_met"] and cell["launches_met"] else "-")
        cells.append(f"{cell['power']:.2f},{cell['median_launches'] or 0:3.0f}{mark:1}      ")
    print(f"{name:34} {design:22} {row['false_rate']:7.4f}  " + "  ".join(cells), flush=True)
    return row


if __name__ == "__main__":
    main()
