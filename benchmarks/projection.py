"""How long does it take to project 256 hotkeys x 20 targets, and is the result bit-identical? Goal: < 50 ms.

The floor is writing the same claims as JSON and hashing them, once, in the same run.
Processor time, so that other work on the machine does not count. Beside it a receipt of that vector is signed, read and
recomputed. Run: `python benchmarks/projection.py`. Writes `benchmarks/results/projection.json`.
"""

from __future__ import annotations

import json
import os
import platform
import random
import statistics
import time
from pathlib import Path

import msgspec

from config.canonical import sha256_hex
from scoring.claims import Claim
from scoring.dsse import public_key, sign, verify
from scoring.projection import WeightPolicy, project
from scoring.receipts import WeightsPredicate, read_predicate, recompute_weights, weights_statement

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
    present_now = tuple(sorted(present))
    times, digests, again, floor = [], set(), [], []
    for _ in range(RUNS):
        chance.shuffle(claims)
        started = time.process_time()
        made = project(claims, block=10**6, present=present, policy=policy)
        times.append((time.process_time() - started) * 1000)
        digests.add(made.vector.digest)
        started = time.process_time()
        sha256_hex(json.dumps([msgspec.to_builtins(claim) for claim in claims], sort_keys=True).encode())
        floor.append((time.process_time() - started) * 1000)
        predicate = WeightsPredicate(
            vector=made.vector, vector_digest=made.vector.digest, netuid=1, epoch=1, claims=tuple(claims),
            present=present_now, policy=policy, ledger_head="0" * 64, crown_receipts=(),
        )
        started = time.process_time()
        envelope = sign(weights_statement(predicate), bytes(32))
        recompute_weights(read_predicate(verify(envelope, [public_key(bytes(32))]), WeightsPredicate))
        again.append((time.process_time() - started) * 1000)
    result = {
        "claims": len(claims),
        "median_ms": round(statistics.median(times), 2),
        "max_ms": round(max(times), 2),
        "goal_ms": GOAL_MS,
        "floor_median_ms": round(statistics.median(floor), 2),
        "bit_identical": len(digests) == 1,
        "sign_read_and_recompute_median_ms": round(statistics.median(again), 2),
        "environment": {
            "python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count(),
            "clock": "processor time", "load_average": [round(load, 2) for load in os.getloadavg()],
        },
    }  # fmt: skip
    target = Path(__file__).parent / "results" / "projection.json"
    target.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n", "utf-8")
    print(result)


if __name__ == "__main__":
    main()
