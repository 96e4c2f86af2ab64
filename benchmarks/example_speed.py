"""How the example kernels compare with stock, call by call in this process: which READMEs say what they gain.

Run: `python benchmarks/example_speed.py`. Workloads are those of arena cpu-small, on one thread, with caches emptied
before every call and the two called in turn. It is a hint, not a verdict: `cacheon bench` measures in sandboxes and
proves a bound. Collectives are left out, because their ranks need processes. Writes
`benchmarks/results/example_speed.json`.
"""

from __future__ import annotations

import json
import os
import runpy
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tomli
import torch

from config.arena import load_arena
from qualify.comparison import passes
from qualify.content import NORMAL
from qualify.slots.base import STOCK_ROOT
from qualify.slots.registry import find_slot
from qualify.slots.rehearsal import Rehearsal, worst

ROUNDS = 60
ARENA = "cpu-small"
RESULT = Path(__file__).parent / "results" / "example_speed.json"
EXAMPLES = Path(__file__).parents[1] / "examples"
NAMES = (
    "silu_fast",
    "silu_two_sizes",
    "rmsnorm_fast",
    "rmsnorm_narrow",
    "attention_blocks",
    "decode_ragged",
    "block_score_lengths",
    "prefill_score_prefix",
    "experts_sorted",
)


def bound(call: Rehearsal, source: Path, entry: str, prepare: str) -> Callable[[], Any]:
    """Return one call of a kernel with everything it is given."""
    module = runpy.run_path(str(source))
    known = {**call.inputs, **call.outputs[0], **call.scalars}
    if call.weights:
        weights = tuple(call.weights.values())
        known["prepared"] = module[prepare](*weights) if prepare else weights
    arguments = [known[one.name] for one in call.slot.arguments]
    return lambda: module[entry](*arguments)


def compare(name: str) -> dict[str, object]:
    """Return the medians of one example and of stock."""
    row = tomli.loads((EXAMPLES / name / "manifest.toml").read_text("utf-8"))["ops"][-1]
    slot = find_slot(row["slot"])
    workload = load_arena(ARENA).workload(slot.id)
    assert workload is not None
    call = Rehearsal(slot, workload.dtype, NORMAL, dimensions=workload.shapes[0])
    example = bound(call, EXAMPLES / name / row["source"], row["entry"], row.get("prepare", ""))
    stock = bound(call, STOCK_ROOT / slot.stock[0], slot.stock[1], slot.stock_prepare)
    evict = torch.zeros(1 << 24, dtype=torch.int64)
    samples: dict[str, list[int]] = {"stock": [], "example": []}
    for _ in range(ROUNDS):
        for label, kernel in (("stock", stock), ("example", example)):
            evict.sum()
            begin = time.perf_counter_ns()
            kernel()
            samples[label].append(time.perf_counter_ns() - begin)
    right = passes(worst(call.figures(call.expected())))  # the example was called last
    medians = {label: round(statistics.median(values) / 1000) for label, values in samples.items()}
    ratio = statistics.median(a / b for a, b in zip(samples["stock"], samples["example"], strict=True))
    return {"slot": slot.id, "right": right, "median_us": medians, "median_ratio": round(ratio, 2)}


def main() -> int:
    """Measure, print, write the result."""
    torch.set_num_threads(1)
    result = {
        "what": "median microseconds of one call, caches empty, one thread; ratio above 1 is faster than stock",
        "arena": ARENA,
        "rounds": ROUNDS,
        "examples": {name: compare(name) for name in NAMES},
        "load": round(os.getloadavg()[0], 2),
        "cores": os.cpu_count(),
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
