"""Whether the local chain stays fast and small over many blocks: 10,000 of them, made as fast as they can be.

Run: `python benchmarks/devnet_blocks.py`. One subnet with an epoch every 10 blocks, a state file, no extrinsics, in
three forms, each in a process of its own: everything kept, the newest 100 states kept, and a fork of depth 2 in every
20 blocks. For each thousand blocks it notes processor time and resident memory: what grows quadratically shows in the
last thousand against the second (the first warms caches up), what leaks in the megabytes. Writes
`benchmarks/results/devnet_blocks.json`. Goal: the last thousand costs at most 1.5 times the second.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

THOUSANDS = 10
GOAL_RATIO = 1.5
RESULT = Path(__file__).parent / "results" / "devnet_blocks.json"
FORMS: dict[str, dict[str, int]] = {
    "all states": {"keep_state": 0, "finality_lag": 0, "fork_every": 0},
    "100 states": {"keep_state": 100, "finality_lag": 3, "fork_every": 0},
    "with forks": {"keep_state": 100, "finality_lag": 3, "fork_every": 20},
}


def resident_mb() -> float:
    """Return this process's resident memory in megabytes."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def run(state: Path, keep_state: int, finality_lag: int, fork_every: int) -> dict[str, Any]:
    """Make the blocks and return what they cost; blocks that forks take back count too."""
    from chain.devnet.config import DevnetConfig
    from chain.devnet.genesis_document import Genesis
    from chain.devnet.startup import open_chain

    config = DevnetConfig(state=state, genesis=Genesis(tempo=10), keep_state=keep_state, finality_lag=finality_lag)
    cpu, memory = [], []
    with open_chain(config) as chain:
        for _ in range(THOUSANDS):
            start, made = time.process_time(), 0
            while made < 1_000:
                if fork_every and made % fork_every == fork_every - 3:
                    made += len(chain.fork(2).enacted)
                else:
                    chain.build()
                    made += 1
            cpu.append(round(time.process_time() - start, 3))
            gc.collect()
            memory.append(round(resident_mb(), 1))
    size = state.stat().st_size
    start = time.process_time()
    with open_chain(config):
        load = time.process_time() - start
    return {
        "cpu_seconds_per_thousand": cpu,
        "resident_mb": memory,
        "last_over_second": round(cpu[-1] / cpu[1], 2),
        "kilobytes_of_memory_per_block": round((memory[-1] - memory[1]) / (THOUSANDS - 2), 2),
        "file_bytes_per_block": round(size / (THOUSANDS * 1_000)),
        "load_cpu_seconds": round(load, 3),
    }


def main() -> int:
    """Measure, print a table, write the result."""
    forms = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, settings) in enumerate(FORMS.items()):
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
                row = pool.submit(run, Path(folder) / f"{number}.state", **settings).result()
            forms[name] = row
            seconds, ratio = row["cpu_seconds_per_thousand"][-1], row["last_over_second"]
            memory = row["kilobytes_of_memory_per_block"]
            print(f"{name:12} {seconds:6.3f} s/1000  last/second {ratio:5.2f}  {memory:5.2f} kB/block")
    result = {
        "what": f"{THOUSANDS * 1_000} empty blocks with an epoch every 10, a state file, processor time",
        "goal_last_over_second": GOAL_RATIO,
        "forms": forms,
        "environment": {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 2),
            "bittensor": version("bittensor"),
        },
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    return int(any(form["last_over_second"] > GOAL_RATIO for form in forms.values()))


if __name__ == "__main__":
    sys.exit(main())
