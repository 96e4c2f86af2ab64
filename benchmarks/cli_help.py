"""How long `cacheon --help` takes, whole process, against the floor of starting Python at all.

Run: `python benchmarks/cli_help.py`. Samples of both alternate, so that a busy machine slows both. Writes
`benchmarks/results/cli_help.json`. Goal: median below 0.3 s.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

RUNS = 20
GOAL_SECONDS = 0.3
RESULT = Path(__file__).parent / "results" / "cli_help.json"


def whole_process_seconds(command: list[str]) -> tuple[float, float]:
    """Return the wall time and the processor time (user and system) of one run."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Measure, print a table, write the result."""
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "cacheon --help": [str(Path(sys.executable).with_name("cacheon")), "--help"],
        "cacheon chain-submit --help": [str(Path(sys.executable).with_name("cacheon")), "chain-submit", "--help"],
    }
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for command in commands.values():  # fills caches; not counted
        whole_process_seconds(command)
    for _ in range(RUNS):
        for name, command in commands.items():
            samples[name].append(whole_process_seconds(command))
    medians = {name: round(statistics.median(wall for wall, _ in runs), 4) for name, runs in samples.items()}
    processor = {name: round(statistics.median(spent for _, spent in runs), 4) for name, runs in samples.items()}
    floor = medians["python -c pass"]
    result = {
        "what": "whole-process wall time, median of 20, seconds",
        "goal_seconds": GOAL_SECONDS,
        "median_seconds": medians,
        "median_processor_seconds": processor,
        "ratio_to_floor": {name: round(value / floor, 1) for name, value in medians.items()},
        "load": round(os.getloadavg()[0], 2),
        "cores": os.cpu_count(),
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    for name, value in medians.items():
        cost = processor[name] * 1000
        print(f"{name:30s} {value * 1000:5.0f} ms, processor {cost:5.0f} ms, {value / floor:.1f} x floor")
    return 0 if medians["cacheon --help"] < GOAL_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
