"""Whole attempts on targets of several ranks, as a miner runs them: `cacheon bench` on the examples of the collectives.

Run: `python benchmarks/attempt_groups.py`. Writes `benchmarks/results/attempt_groups.json`: for each example wall time,
verdict, launches and the median of its speed. There is no goal for the verdicts: on two cores shared by all ranks a
kernel that saves bytes on the wire saves little, and examples are written to be read.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from qualify import environment

ROOT = Path(__file__).parent.parent
RESULT = Path(__file__).parent / "results" / "attempt_groups.json"
EXAMPLES = ("moe_epilogue", "all_reduce_gather", "ar_residual_narrow", "finalize_narrow", "experts_reduce_sorted")


def measure(example: str) -> dict[str, Any]:
    """Run one whole attempt and return what came of it."""
    load, begin = environment.load_average(), time.monotonic()
    command = [str(Path(sys.executable).with_name("cacheon")), "bench", f"examples/{example}", "--json"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    wall = time.monotonic() - begin
    data = json.loads(ran.stdout)["data"]
    ratios = sorted(sample["ratio_ppm"] for sample in data["samples"])
    seconds = {one["screen"]: round(one["elapsed_ns"] / 1e9, 2) for one in data["screens"]}
    return {
        "target": data["target_id"],
        "verdict": data["code"],
        "launches": len(ratios),
        "median_ratio": round(ratios[len(ratios) // 2] / 1e6, 3) if ratios else None,
        "bounds": [data["lower_ppm"], data["upper_ppm"]],
        "wall_seconds": round(wall, 1),
        "screen_seconds": seconds,
        "warnings": data["warnings"],
        "load_before": load,
    }


def main() -> int:
    """Measure every example and write the result."""
    rows = {}
    for example in EXAMPLES:
        rows[example] = measure(example)
        print(example, json.dumps(rows[example]))
    document = {
        "environment": {"cores": os.cpu_count(), "python": sys.version.split()[0], "load": environment.load_average()},
        "attempts": rows,
    }
    RESULT.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
