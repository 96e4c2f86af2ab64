"""What the referee costs: its share in a timed call, and its share in the wall time of a launch.

Run: `python benchmarks/referee_cost.py`. Writes `benchmarks/results/referee_cost.json`.

`overhead_us` is what the clock of `Arm.call` shows for an entry that does nothing, at the slot's smallest shape: all
of it is the referee's, from the word to run until every thread is seen stopped. `warm` calls follow each other; `cold`
ones come after the caches were emptied, as in an attempt. `floor` is the least the method can cost in Python: the same
stop and go of a plain process that only reads and writes one byte, unwatched (the referee sleeps until the answer).

`shares` are parts of the wall time of whole launches of the arena `cpu-small`, stock against stock. `output_checks` is
all that judges outputs, including the reference they are judged by; `emptying_caches` and `inputs` prepare calls.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import secrets
import select
import signal
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from config.arena import load_arena
from qualify import checked_call, environment, measure
from qualify.arm_handle import Arm
from qualify.arm_plan import ENGINE_MOUNT, ArmPlan, Implementation
from qualify.call_memory import CallMemory, words_needed
from qualify.checked_call import Inquirer
from qualify.content import Content
from qualify.referee import PRELOAD
from qualify.sandbox.client import Zygote
from qualify.sandbox.policy import SandboxPolicy
from qualify.slots.registry import find_slot

HERE = Path(__file__).parent
RESULT = HERE / "results" / "referee_cost.json"
SLOT, DTYPE = "activation.silu_and_mul", "bfloat16"
TINY = {"num_tokens": 1, "d": 32}
CALLS = 400
LAUNCHES = 6
GOAL_OVERHEAD_US, GOAL_CHECKING = 60.0, 0.35


def overhead(zygote: Zygote, core: int, folder: Path) -> dict[str, float]:
    """Return medians in us of calls of an entry that does nothing."""
    (folder / "k.py").write_text("def entry(x, out):\n    pass\n")
    slot = find_slot(SLOT)
    policy = SandboxPolicy(cores=(core,), readonly=((str(folder), ENGINE_MOUNT),))
    plan = ArmPlan(SLOT, DTYPE, 1, secrets.token_bytes(16).hex(), (Implementation(ENGINE_MOUNT, "k.py", "entry"),))
    evict = checked_call.torch.zeros(checked_call.eviction_bytes() // 8, dtype=checked_call.torch.int64)
    content = Content(bytes(32), "cost", dtype=DTYPE, elements=4096, words=4096)
    memory = CallMemory(slot, DTYPE, (TINY,))
    samples: dict[str, list[float]] = {"warm": [], "cold": []}
    with Arm.start(zygote, plan, policy, memory, deadline_ms=20_000) as arm:
        environment.favour(arm.process.host_pid)
        places = memory.place(TINY, 0, content.generator("places"))
        extents = [TINY[name] for name in slot.dimensions]
        for index in range(CALLS):
            kind = "cold" if index % 4 == 3 else "warm"
            arm.place(0, extents, places.offsets, 5000)
            if kind == "cold":
                evict.sum()
            samples[kind].append(arm.call(5000) / 1e3)
    return {kind: round(statistics.median(values), 1) for kind, values in samples.items()}


def floor(core: int) -> float:
    """Return the median us of stop and go with a child that only reads and writes one byte."""
    ours, theirs = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.sched_setaffinity(0, {core})
        while byte := os.read(ours[0], 1):
            os.write(theirs[1], byte)
        os._exit(0)
    environment.favour(pid)
    poll, samples = select.poll(), []
    poll.register(theirs[0], select.POLLIN)
    state = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    os.kill(pid, signal.SIGSTOP)
    for _ in range(CALLS):
        os.write(ours[1], b"x")
        begin = time.monotonic_ns()
        os.kill(pid, signal.SIGCONT)
        poll.poll()
        os.read(theirs[0], 1)
        os.kill(pid, signal.SIGSTOP)
        while b") T" not in os.pread(state, 512, 0):
            pass
        samples.append((time.monotonic_ns() - begin) / 1e3)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    for descriptor in (*ours, *theirs, state):
        os.close(descriptor)
    return round(statistics.median(samples), 1)


@contextlib.contextmanager
def timed(spent: dict[str, int], parts: dict[str, tuple[tuple[type, str], ...]]) -> Iterator[None]:
    """Add up the exclusive ns that are spent in methods, by part."""
    stack: list[int] = []
    originals: list[tuple[type, str, Callable[..., Any]]] = []

    def wrap(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            stack.append(0)
            begin = time.monotonic_ns()
            try:
                return function(*args, **kwargs)
            finally:
                whole = time.monotonic_ns() - begin
                spent[part] += whole - stack.pop()
                if stack:
                    stack[-1] += whole

        return inner

    for part, methods in parts.items():
        for owner, name in methods:
            function = getattr(owner, name)
            originals.append((owner, name, function))
            setattr(owner, name, wrap(part, function))
    try:
        yield
    finally:
        for owner, name, function in originals:
            setattr(owner, name, function)


PARTS: dict[str, tuple[tuple[type, str], ...]] = {
    "arms_running": ((Arm, "call"),),
    "arms_placing": ((Arm, "place"),),
    "arms_starting": ((measure.Rig, "start_arm"), (Arm, "close")),
    "inputs": (
        (Inquirer, "question"),
        (CallMemory, "write_inputs"),
        (CallMemory, "write_filler"),
        (CallMemory, "place"),
    ),
    "emptying_caches": ((Inquirer, "empty_caches"),),
    "output_checks": (
        (Inquirer, "_answered"),
        (Inquirer, "_judge"),
        (Inquirer, "look_again"),
        (CallMemory, "fingerprint"),
        (CallMemory, "guards"),
        (CallMemory, "inputs_intact"),
    ),
}


def shares(zygote: Zygote, core: int, target: str, dimensions: dict[str, int]) -> dict[str, Any]:
    """Return the parts of the wall time of launches of stock against stock."""
    arena, slot = load_arena("cpu-small"), find_slot(target)
    elements, words = words_needed(slot, DTYPE, (dimensions,))
    content = Content(secrets.token_bytes(32), "cost", dtype=DTYPE, elements=elements, words=words)
    inquirer = Inquirer(slot, DTYPE, content, call_deadline_ms=arena.call_deadline_ms)
    rig = measure.Rig(arena, slot, DTYPE, (dimensions,), zygote, content, inquirer, core, time.monotonic_ns())
    policy = SandboxPolicy(memory_bytes=arena.arm_memory_bytes, cores=(core,))
    setup = measure.RoleSetup((Implementation(),), (0,), policy, (0,))
    bouts = (measure.Bout(rig, {"baseline": (setup,), "candidate": (setup,)}),)
    spent: dict[str, int] = defaultdict(int)
    order = [block % 2 == 0 for block in range(arena.blocks_per_launch)]
    measure.run_launch(bouts, 0, 0, order)
    begin = time.monotonic_ns()
    with timed(spent, PARTS):
        for index in range(1, LAUNCHES + 1):
            measure.run_launch(bouts, index, index % 2, order)
    wall = time.monotonic_ns() - begin
    result = {part: round(spent[part] / wall, 3) for part in PARTS}
    result["other"] = round(1 - sum(result.values()), 3)
    return {"launch_ms": round(wall / LAUNCHES / 1e6), "shares": result}


def main() -> int:
    """Measure, print and write; return 1 when a goal is missed."""
    core = environment.choose_core(())
    with environment.exclusive(core), environment.measuring(core), Zygote.start(preload=PRELOAD) as zygote:
        with tempfile.TemporaryDirectory() as name:
            os.chmod(name, 0o755)
            over = overhead(zygote, core, Path(name))
        over["floor"] = floor(core)
        arena = load_arena("cpu-small")
        launches = {work.target: shares(zygote, core, work.target, dict(work.shapes[0])) for work in arena.workloads}
        described = environment.describe(core, environment.load_average(), (), (), arena.timing_method)
    result = {
        "what": __doc__.partition("\n")[0],
        "goals": {"overhead_us": GOAL_OVERHEAD_US, "output_checks": GOAL_CHECKING},
        "overhead_us": over,
        "launches": launches,
        "environment": msgspec.to_builtins(described),
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))
    return int(
        over["warm"] > GOAL_OVERHEAD_US
        or any(one["shares"]["output_checks"] > GOAL_CHECKING for one in launches.values())
    )


if __name__ == "__main__":
    sys.exit(main())
