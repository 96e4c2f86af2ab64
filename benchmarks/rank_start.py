"""From the request for a group of sandboxed ranks to the end of its first checked collective.

Run: `python benchmarks/rank_start.py`. A group is what the referee starts for every launch: ranks of their own, joined,
the stock form loaded, memory mapped, frozen; the first collective is one all_reduce, judged. The floor beside it does
nothing but fork as many processes from one that has torch loaded, join them with gloo and sum once: no sandbox, no
referee, no memory. All ranks of both share one core. Writes
`benchmarks/results/rank_start.json`. Goal: two ranks to their first collective within 3 s.
"""

from __future__ import annotations

import json
import os
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from qualify.arm_group import ArmGroup
from qualify.arm_plan import ArmPlan
from qualify.checked_call import Draws, Inquirer
from qualify.cold_caches import eviction_bytes
from qualify.content import NORMAL, Content
from qualify.group_memory import GroupMemory
from qualify.referee import PRELOAD
from qualify.routing import STOCK
from qualify.sandbox.client import Zygote
from qualify.sandbox.policy import SandboxPolicy
from qualify.slots.registry import find_slot

RUNS, FLOOR_RUNS, SIZES = 10, 10, (2, 4)
GOAL_MS = 3000.0
SLOT, DTYPE = "collective.all_reduce", "float32"
SHAPE = {"num_tokens": 8, "hidden": 4096}
RESULT = Path(__file__).parent / "results" / "rank_start.json"


def group(zygote: Zygote, ranks: int, core: int) -> dict[str, float]:
    """Return the milliseconds of one group."""
    slot = find_slot(SLOT)
    content = Content(secrets.token_bytes(32), "start", dtype=DTYPE, elements=1 << 16, words=1 << 15)
    inquirer = Inquirer(slot, DTYPE, content, call_deadline_ms=20_000, ranks=ranks)
    question = inquirer.question(SHAPE, NORMAL, content.generator("inputs"), torch.float64)
    policy = SandboxPolicy(ranks=ranks, processes=32 * ranks, cores=(core,))
    plan = ArmPlan(SLOT, DTYPE, 1, secrets.token_bytes(16).hex(), (STOCK,))
    begin = time.monotonic_ns()
    memory = GroupMemory(slot, DTYPE, (SHAPE,), ranks)
    with ArmGroup.start(zygote, plan, policy, memory, deadline_ms=20_000) as arm:
        started = time.monotonic_ns()
        first, _ = inquirer.ask(arm, 0, question, Draws(0, 0, 0, 0))
        answered = time.monotonic_ns()
        later = statistics.median(inquirer.ask(arm, 0, question, Draws(0, 0, 0, call))[0] for call in range(1, 10))
    spans = {
        "ready and frozen": started - begin,
        "first collective judged": answered - begin,
        "first call": first,
        "later calls": round(later),
    }
    return {name: nanoseconds / 1e6 for name, nanoseconds in spans.items()}


def floor(ranks: int, core: int) -> dict[str, float]:
    """Return the milliseconds until bare forks have summed once."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic_ns()
        children = []
        for rank in range(ranks):
            child = os.fork()
            if child == 0:
                os.sched_setaffinity(0, (core,))
                _sum_once(rank, ranks, folder + "/store")
            children.append(child)
        for child in children:
            _, status = os.waitpid(child, 0)
            assert status == 0
        return {"summed once": (time.monotonic_ns() - begin) / 1e6}


def _sum_once(rank: int, ranks: int, path: str) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", store=FileStore(path, ranks), rank=rank, world_size=ranks)
    total = torch.ones(SHAPE["num_tokens"], SHAPE["hidden"])
    dist.all_reduce(total)
    os._exit(0 if float(total[0, 0]) == ranks else 1)


def summary(measure: Callable[[], Mapping[str, float]], runs: int) -> dict[str, dict[str, float]]:
    """Return best, median and worst of every span after one run that does not count."""
    measure()
    samples = [measure() for _ in range(runs)]
    chosen: dict[str, Callable[[list[float]], float]] = {"best": min, "median": statistics.median, "worst": max}
    return {
        name: {label: round(pick([one[name] for one in samples]), 2) for label, pick in chosen.items()}
        for name in samples[0]
    }


def main() -> int:
    """Measure, print a table, write the result."""
    torch.set_num_threads(1)
    core = max(os.sched_getaffinity(0))
    floors = {str(ranks): summary(partial(floor, ranks, core), FLOOR_RUNS) for ranks in SIZES}
    with Zygote.start(preload=PRELOAD) as zygote:
        spans = {str(ranks): summary(partial(group, zygote, ranks, core), RUNS) for ranks in SIZES}
    result = {
        "what": f"milliseconds over {RUNS} groups on one core; the floor forks and joins as many ranks and no more",
        "goal_ms": {"2 ranks, first collective judged, median": GOAL_MS},
        "spans_ms": spans,
        "floors_ms": floors,
        "eviction_bytes": eviction_bytes(),
        "kernel": os.uname().release,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    for title, table in (("group", spans), ("floor", floors)):
        for ranks, rows in table.items():
            for name, values in rows.items():
                figures = "   ".join(f"{label} {value:9.2f}" for label, value in values.items())
                print(f"{title} of {ranks}  {name:26s} {figures} ms")
    return 1 if spans["2"]["first collective judged"]["median"] > GOAL_MS else 0


if __name__ == "__main__":
    sys.exit(main())
