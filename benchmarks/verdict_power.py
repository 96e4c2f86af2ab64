"""How often does the speed verdict err, and how many launches does a gain need? On recorded and invented noise.

Run: `python -m benchmarks.verdict_power --journal FILE [--attempts 4000] [--pairs 100000] [--workers 1]`. Writes
`benchmarks/results/verdict_power.json`; `python -m benchmarks.verdict_plot` draws it.

What is simulated: launches of identical code (the candidate's gain is added as a constant), drawn as consecutive
recorded pairs with replacement, coins as sealed, the registered bets. The false rate is measured where it is worst,
at a gain of exactly the margin; a pair of attempts errs when both pass. The simulation is vectorised
(`verdict_twin.py`); a sample of its decisions is compared with `scoring.speed.SequentialTest` on every run.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import multiprocessing
import os
import platform
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.verdict_noise import FILES, Floats, invented, recorded, sources
from benchmarks.verdict_twin import (
    ALPHA,
    BUDGET,
    Outcome,
    bet_on_each_launch_of_a_pair,
    cross_check,
    fixed_size,
    run,
)
from scoring.policy import EVERY_LAUNCH, POLICIES, BettingPolicy
from scoring.speed import SequentialTest

HERE = Path(__file__).parent
PIECE = 25_000  # pairs of one task
GAINS = (0.005, 0.01, 0.02, 0.05, 0.10)

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
FIXED_MIXTURE = BettingPolicy(open_launches=0, share=0.0)  # the first published design, bets on exchanged pairs
DESIGNS: dict[str, BettingPolicy] = {name: policy.betting for name, policy in POLICIES.items()} | {
    "fixed mixture, exchanged pairs": FIXED_MIXTURE
}
SAME_SLOTS, OTHER_SLOTS = "cacheon.speed.v2", "cacheon.speed.v2-exchanged"


class Task(NamedTuple):
    """One piece of work."""

    kind: str  # "false" or "power"
    noise: str
    design: str
    size: int  # pairs or attempts
    seed: int


def registered(noise: str) -> str:
    """Return the policy that suits where `noise` comes from: two cores exchange, one core or one device does not."""
    return OTHER_SLOTS if noise.startswith(("2-core", "16-core")) else SAME_SLOTS


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
    for prefix, file in FILES.items():
        for load, (ratio, level) in recorded(file).items():
            rates = {"identical code": bracket_rule(ratio, level, -math.log(1.05))}
            rates |= {str(gain): bracket_rule(ratio, level, gain) for gain in (0.0, *GAINS)}
            result[f"{prefix} {load}"] = {name: round(rate, 4) for name, rate in rates.items()}
    return result


def launches_to(outcome: Outcome, fraction: float) -> int:
    """Return the launches after which `fraction` of all attempts have passed; beyond the budget when they never do."""
    ordered = np.sort(np.where(outcome.passed, outcome.launches, BUDGET + 1))
    return int(ordered[min(len(ordered) - 1, math.ceil(fraction * len(ordered)))])


def cell(outcome: Outcome, published: tuple[float, int] | None) -> dict[str, Any]:
    """Return power and launches; beside a published cell, whether it is met, and whether it is beaten.

    The published median counts passing attempts only, so more power makes it larger at equal speed. Compared is
    therefore the launch by which half of the published power has passed, which for the published rule is its median;
    `median_met` says whether the plain medians compare as well.
    """
    power = float(outcome.passed.mean())
    median = float(np.median(outcome.launches[outcome.passed])) if power else None
    row: dict[str, Any] = {
        "power": round(power, 4), "median_launches": median,
        "mean_launches_of_all": round(float(outcome.launches.mean()), 1),
    }  # fmt: skip
    if published is not None:
        needed = published[0] - 0.005  # published powers are rounded to two digits
        at = launches_to(outcome, needed / 2)
        row |= {
            "published_power": published[0], "published_median": published[1], "launches_to_half_published_power": at,
            "met": power >= needed and at <= published[1],
            "better": power >= needed and at <= published[1] and (power > published[0] + 0.01 or at < published[1]),
            "median_met": median is not None and median <= published[1],
        }  # fmt: skip
    return row


def false_rates(noise: str, design: str, pairs: int, seed: int) -> dict[str, Any]:
    """Count attempts at the margin that pass, and pairs of which both do; second attempts follow passed ones only."""
    draw, betting = (sources() | invented())[noise], DESIGNS[design]
    first = int(run(draw, 0.0, pairs, betting, seed=seed).passed.sum())
    again = int(run(draw, 0.0, first, betting, seed=1000 + seed).passed.sum()) if first else 0
    return {"pairs": pairs, "false": first, "false_pairs": again}


def power_row(noise: str, design: str, attempts: int) -> dict[str, Any]:
    """Return power and launches of one noise row under one design."""
    draw, betting = (sources() | invented())[noise], DESIGNS[design]
    row: dict[str, Any] = {"cross_checked": cross_check(draw, betting), "gains": {}}
    for gain in GAINS:
        outcome = run(draw, gain, attempts, betting, seed=2)
        row["gains"][str(gain)] = cell(outcome, PUBLISHED.get(noise, {}).get(gain))
    return row


def fixed_row(noise: str, gains: dict[str, dict[str, Any]], paired: bool) -> dict[str, int | None]:
    """Return, per gain, the launches of the fixed-size design that has the same power on the same samples."""
    draw = sources()[noise]
    return {str(gain): fixed_size(draw, gain, gains[str(gain)]["power"], paired) for gain in (0.02, 0.05, 0.10)}


def cost_of_deciding(launches: int = 64, repeat: int = 20) -> dict[str, float]:
    """Return the processor microseconds of one launch in the test, bounds included, per policy."""
    chance = np.random.default_rng(5)
    result = {}
    for name, policy in POLICIES.items():
        values = [round(float(value), 9) for value in chance.normal(0.05, 0.05, launches)]
        before = time.process_time()
        for _ in range(repeat):
            test = SequentialTest(margin_ppm=50_000, alpha_ppm=1, betting=policy.betting)
            for index, value in enumerate(values):
                test.add_launch(value, index % 2)
                _ = (test.lower_ppm, test.upper_ppm)
        result[name] = round((time.process_time() - before) / (repeat * launches) * 1e6)
    return result


def do(task: Task) -> tuple[Task, dict[str, Any]]:
    """Do one piece of work; a worker's entry."""
    if task.kind == "false":
        return task, false_rates(task.noise, task.design, task.size, task.seed)
    return task, power_row(task.noise, task.design, task.size)


def tasks_of(attempts: int, pairs: int) -> list[Task]:
    """Return all pieces of work."""
    every = list(sources())
    both = (SAME_SLOTS, OTHER_SLOTS)
    tasks = [
        Task("false", noise, design, min(PIECE, pairs - start), 1 + start // PIECE)
        for start in range(0, pairs, PIECE) for design in both for noise in (*every, *invented())
    ]  # fmt: skip
    return [Task("power", noise, design, attempts, 2) for design in DESIGNS for noise in every] + tasks


def work(tasks: list[Task], workers: int, journal: Path) -> dict[Task, dict[str, Any]]:
    """Do what is not in the journal yet; keep each piece there when it is done."""
    done = {Task(*entry[0]): entry[1] for entry in _entries(journal)}
    left = [task for task in tasks if task not in done]
    started = time.monotonic()
    if not left:
        return {task: done[task] for task in tasks} or done
    with multiprocessing.get_context("spawn").Pool(workers) as pool, journal.open("a", encoding="utf-8") as file:
        for number, (task, found) in enumerate(pool.imap_unordered(do, left), 1):
            done[task] = found
            file.write(json.dumps([task, found]) + "\n")
            file.flush()
            print(f"{time.monotonic() - started:6.0f} s {number:4}/{len(left)} {task}", flush=True)
    return {task: done[task] for task in tasks} or done


def _entries(journal: Path) -> list[Any]:
    lines = journal.read_text("utf-8").splitlines() if journal.exists() else []
    return [json.loads(line) for line in lines]


def merge(done: dict[Task, dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return noise -> design -> what was found, with the false rates of all pieces added up."""
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    for task, found in done.items():
        row = rows.setdefault(task.noise, {}).setdefault(task.design, {})
        if task.kind == "power":
            row.update(found)
            continue
        for name, count in found.items():
            row[name] = row.get(name, 0) + count
        row["false_rate"] = row["false"] / row["pairs"]
        row["false_pair_rate"] = row["false_pairs"] / row["pairs"]
    return rows


def main() -> None:
    """Run everything, print the tables, write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=4000)
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--journal", type=Path, required=True, help="file of finished pieces, to go on from later")
    parser.add_argument("--finished-only", action="store_true", help="do no more; write what the journal holds")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "verdict_power.json")
    arguments = parser.parse_args()
    tasks = [] if arguments.finished_only else tasks_of(arguments.attempts, arguments.pairs)
    rows = merge(work(tasks, arguments.workers, arguments.journal))
    alternating = invented()["alternating bias"]
    twice = dataclasses.replace(FIXED_MIXTURE, open_launches=EVERY_LAUNCH)
    result: dict[str, Any] = {
        "alpha": ALPHA, "budget_launches": BUDGET, "attempts": arguments.attempts, "pairs": arguments.pairs,
        "environment": {"python": platform.python_version(), "numpy": np.__version__, "cores": os.cpu_count()},
        "policies": {name: dataclasses.asdict(betting) for name, betting in DESIGNS.items()},
        "registered": {noise: registered(noise) for noise in sources()},
        "recorded": {noise: rows[noise] for noise in sources()},
        "invented": {noise: rows[noise] for noise in invented()},
        "fixed_size_launches": {
            noise: fixed_row(noise, rows[noise][design]["gains"], design == OTHER_SLOTS)
            for noise in sources() for design in [registered(noise)]
        },
        "betting_twice_on_one_coin": bet_on_each_launch_of_a_pair(alternating, 0.0, 5000, twice, 7),
        "bracket_rule": bracket_rates(),
        "microseconds_per_launch": cost_of_deciding(),
    }  # fmt: skip
    arguments.out.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n", "utf-8")
    print_table(result)


def print_table(result: dict[str, Any]) -> None:
    """Print every row under the policy registered for it."""
    for noise, design in result["registered"].items():
        row = result["recorded"][noise][design]
        cells = [f"{at['power']:.2f},{at['median_launches'] or 0:3.0f}{_mark(at)}" for at in row["gains"].values()]
        print(f"{noise:32} {design:28} {_rate(row)}  " + "  ".join(cells))
    for noise, rows in result["invented"].items():
        print(f"{noise:32} " + "  ".join(f"{name} {_rate(row)}" for name, row in rows.items()))


def _rate(row: dict[str, Any]) -> str:
    return f"{row['false_rate']:.4f} of {row['pairs']}" if "pairs" in row else "not measured"


def _mark(at: dict[str, Any]) -> str:
    if "met" not in at:
        return " "
    return "+" if at["better"] else "=" if at["met"] else "-"


if __name__ == "__main__":
    main()
