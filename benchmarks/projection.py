"""How long does it take to project 256 hotkeys x 20 targets, and is the result bit-identical? Goal: < 50 ms.

Run: `python benchmarks/projection.py`. Writes `benchmarks/results/projection.json`.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from pathlib import Path

from scoring.claims import Claim
from scoring.projection import WeightPolicy, project

HOTKEYS, TARGETS, RUNS, GOAL_MS = 256, 20, 21, 50.0


def main() -> None:
    """Project the same claims in shuffled orders, time it and compare the digests."""
    chance = random.Random(1)
    claims = [
        Claim(f"{hotkey * TARGETS + target:064x}", f"target.{target}", f"5Hotkey{hotkey:03d}",
              1_000_001 + chance.randrange(2_000_000), chance.randrange(10**6))
        for hotkey in range(HOTKEYS) for target in range(TARGETS)
    ]  # fmt: skip
    present = {f"5Hotkey{hotkey:03d}" for hotkey in range(HOTKEYS) if hotkey % 7}
    policy = WeightPolicy(216_000, "burn", "5Burn", "5Validator")
    times, digests = [], set()
    for _ in range(RUNS):
        chance.shuffle(claims)
        started = time.perf_counter()
        digests.add(project(claims, block=10**6, present=present, policy=policy).vector.digest)
        times.append((time.perf_counter() - started) * 1000)
    result = {
        "claims": len(claims),
        "median_ms": round(statistics.median(times), 2),
        "max_ms": round(max(times), 2),
        "goal_ms": GOAL_MS,
        "bit_identical": len(digests) == 1,
    }
    target = Path(__file__).parent / "results" / "projection.json"
    target.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n", "utf-8")
    print(result)


if __name__ == "__main__":
    main()
