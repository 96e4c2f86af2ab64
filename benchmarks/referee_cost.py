"""What the referee costs: its share in a timed call, and its shares in the wall time of an attempt.

Run: `python benchmarks/referee_cost.py`. Writes `benchmarks/results/referee_cost.json`, or the file after `--result`,
as for a second kind of machine.

`overhead_us` is what the clock of `Arm.call` shows for an entry that does nothing, at the slot's smallest shape: all
of it is the referee's, from the word to run until every thread is seen stopped. `warm` calls follow each other; `cold`
ones come after the caches were emptied, as in an attempt. `floor_warm` and `floor_cold` are the least the method can
cost in Python: the same stop and go, with the same `pause` before it, of a plain process that only reads and writes one
byte and is confined by nothing.

`attempts` are whole attempts in the arena `cpu-small`, with no more launches than it takes at least: for every target
the stock form in a bundle of its own against stock. `shares` are parts of the wall time from the seed to the evidence.
`output_checks` is all that judges outputs and inputs afterwards, with the reference that they are judged by, which has
a line of its own; `emptying_caches` and `inputs` prepare calls. What is outside the arms' own running and starting,
all of these together, is `outside_arms`; it is not the cost of checking alone.
"""

from __future__ import annotations

import argparse
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
from intake.file_stream import encode_stream
from intake.publish import publish
from intake.screen import screen_files
from qualify import environment, measure
from qualify.arm_group import ArmGroup
from qualify.arm_handle import Arm
from qualify.arm_plan import ENGINE_MOUNT, ArmPlan, Implementation
from qualify.call_memory import CallMemory
from qualify.checked_call import Inquirer
from qualify.cold_caches import ColdCaches
from qualify.content import Content
from qualify.docket import open_docket
from qualify.group_memory import GroupMemory
from qualify.referee import PRELOAD, measure_docket
from qualify.request import AttemptRequest, BundleRef
from qualify.sandbox.client import Zygote
from qualify.sandbox.policy import SandboxPolicy
from qualify.slots.base import STOCK_ROOT, Slot
from qualify.slots.registry import find_slot
from scoring.attempt import Reservation

HERE = Path(__file__).parent
RESULT = HERE / "results" / "referee_cost.json"
SLOT, DTYPE = "activation.silu_and_mul", "bfloat16"
TINY = {"num_tokens": 1, "d": 32}
CALLS = 400
GOAL_OVERHEAD_US, GOAL_CHECKING = 60.0, 0.35


def overhead(zygote: Zygote, core: int, folder: Path, caches: ColdCaches) -> dict[str, float]:
    """Return medians in us of calls of an entry that does nothing, and of the pause before each."""
    (folder / "k.py").write_text("def entry(x, out):\n    pass\n")
    slot = find_slot(SLOT)
    policy = SandboxPolicy(cores=(core,), readonly=((str(folder), ENGINE_MOUNT),))
    plan = ArmPlan(SLOT, DTYPE, 1, secrets.token_bytes(16).hex(), (Implementation(ENGINE_MOUNT, "k.py", "entry"),))
    content = Content(bytes(32), "cost", dtype=DTYPE, elements=4096, words=4096)
    memory = CallMemory(slot, DTYPE, (TINY,))
    samples: dict[str, list[float]] = {"warm": [], "cold": [], "pause": []}
    with Arm.start(zygote, plan, policy, memory, deadline_ms=20_000) as arm:
        environment.favour(arm.process.host_pid)
        places = memory.place(TINY, 0, content.generator("places"))
        extents = [TINY[name] for name in slot.dimensions]
        for kind in ("warm",) * CALLS + ("cold",) * (CALLS // 4):  # apart: a cold call leaves the next one cold, too
            began = time.monotonic_ns()
            arm.place(0, extents, places.offsets, 5000)
            if kind == "cold":
                caches.empty(core)
            else:
                samples["pause"].append((time.monotonic_ns() - began) / 1e3)
            samples[kind].append(arm.call(5000) / 1e3)
    return {name: figure for kind, values in samples.items() for name, figure in figures(kind, values).items()}


def figures(kind: str, samples: list[float]) -> dict[str, float]:
    """Return the median and the twentieth part from below: what is left where the machine is busy otherwise."""
    return {
        kind: round(statistics.median(samples), 1),
        f"{kind}_p05": round(statistics.quantiles(samples, n=20)[0], 1),
    }


def floor(core: int, pause_us: float, caches: ColdCaches) -> dict[str, float]:
    """Return the us of stop and go with a child that only reads and writes one byte, as often and as rarely as calls.

    `pause_us` lies between two of them, since a core that others used meanwhile takes longer.
    """
    ours, theirs = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.sched_setaffinity(0, {core})
        while byte := os.read(ours[0], 1):
            os.write(theirs[1], byte)
        os._exit(0)
    environment.favour(pid)
    poll = select.poll()
    poll.register(theirs[0], select.POLLIN)
    state = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    samples: dict[str, list[float]] = {"floor_warm": [], "floor_cold": []}
    os.kill(pid, signal.SIGSTOP)
    for kind in ("floor_warm",) * CALLS + ("floor_cold",) * (CALLS // 4):
        resumed = time.monotonic_ns() + pause_us * 1e3
        if kind == "floor_cold":
            caches.empty(core)
        while time.monotonic_ns() < resumed:
            pass
        os.write(ours[1], b"x")
        begin = time.monotonic_ns()
        os.kill(pid, signal.SIGCONT)
        while not poll.poll(0):
            pass
        os.read(theirs[0], 1)
        os.kill(pid, signal.SIGSTOP)
        while b") T" not in os.pread(state, 512, 0):
            pass
        samples[kind].append((time.monotonic_ns() - begin) / 1e3)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    for descriptor in (*ours, *theirs, state):
        os.close(descriptor)
    return {name: figure for kind, values in samples.items() for name, figure in figures(kind, values).items()}


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
    "arms_running": tuple((kind, name) for kind in (Arm, ArmGroup) for name in ("call", "prepare")),
    "arms_placing": ((Arm, "place"), (ArmGroup, "place")),
    "arms_starting": ((measure.Rig, "start_arm"), (Arm, "close")),
    "inputs": (
        (Inquirer, "renew_weights"),
        (Inquirer, "question"),
        (Inquirer, "perturbed"),
        *((kind, name) for kind in (CallMemory, GroupMemory) for name in ("write_inputs", "write_filler", "place")),
    ),
    "emptying_caches": ((ColdCaches, "empty"),),
    "references": ((Inquirer, "_answered"),),
    "judging": (
        (Inquirer, "_judge"),
        (Inquirer, "look_again"),
        *(
            (kind, name)
            for kind in (CallMemory, GroupMemory)
            for name in ("fingerprint", "guards", "inputs_intact", "copy_outputs")
        ),
    ),
}
_ARMS = ("arms_running", "arms_placing", "arms_starting")


def stock_bundle(slot: Slot, store: Path) -> BundleRef:
    """Take the slot's stock form through the real intake, as a miner's bundle."""
    source, entry = slot.stock
    manifest = (
        'bundle_id = "stock"\nabi_version = "cacheon-op-abi-v0"\n\n'
        f'[competition]\ntarget = "{slot.id}"\nmode = "slot"\n\n[[ops]]\n'
        f'slot = "{slot.id}"\nsource = "kernels/{source}"\nentry = "{entry}"\n'
    )
    if slot.stock_prepare:
        manifest += f'prepare = "{slot.stock_prepare}"\n'
    files = {"manifest.toml": manifest.encode(), f"kernels/{source}": (STOCK_ROOT / source).read_bytes()}
    screened = screen_files(files)
    published = publish(b"".join(encode_stream(screened.files)), screened.report, store)
    return BundleRef(published.content_hash, str(published.tree), str(published.report_path))


def attempt(zygote: Zygote, arena: str, target: str, candidate: BundleRef, scratch: Path) -> dict[str, Any]:
    """Measure one attempt of stock against stock and return the parts of its wall time."""
    request = AttemptRequest(
        attempt_id=secrets.token_hex(16),
        role="primary",
        target_id=target,
        arena=arena,
        candidate=candidate,
        reservation=Reservation(1, 0, "5Benchmark"),
    )
    docket = open_docket(request)
    spent: dict[str, int] = defaultdict(int)
    begin, cpu = time.monotonic_ns(), time.process_time_ns()
    with timed(spent, PARTS):
        made = measure_docket(docket, lambda _: None, zygote, scratch / request.attempt_id).attempt
    wall = time.monotonic_ns() - begin
    shares = {part: round(spent[part] / wall, 3) for part in PARTS}
    shares["other"] = round(1 - sum(shares.values()), 3)
    return {
        "launches": len(made.launches),
        "incidents": [one.kind for one in made.incidents],
        "seconds": round(wall / 1e9, 2),
        "referee_cpu_seconds": round((time.process_time_ns() - cpu) / 1e9, 2),
        "shares": shares,
        "output_checks": round(shares["references"] + shares["judging"], 3),
        "outside_arms": round(1 - sum(shares[part] for part in _ARMS), 3),
        "load_before": made.environment.load_before,
    }


def short_arena(folder: Path) -> str:
    """Write `cpu-small` with as few launches as decide, and return the path."""
    text = (HERE.parent / "config" / "arenas" / "cpu-small.toml").read_text(encoding="utf-8")
    path = folder / "cpu-small-short.toml"
    path.write_text(text.replace("launches_max = 64", "launches_max = 10"), encoding="utf-8")
    return str(path)


def all_attempts(zygote: Zygote, folder: Path) -> dict[str, Any]:
    """Measure every target of the arena that is one slot."""
    arena, found = short_arena(folder), {}
    for load in load_arena(arena).workloads:
        if load.members:
            continue
        candidate = stock_bundle(find_slot(load.target, load.profile), folder / "store")
        found[load.target] = attempt(zygote, arena, load.target, candidate, folder / "work")
        sys.stderr.write(f"{load.target} {found[load.target]}\n")
    return found


def main() -> int:
    """Measure, print and write; return 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", action="store_true", help="measure the calls only, and keep the attempts' figures")
    parser.add_argument("--result", type=Path, default=RESULT, help="write here (default: %(default)s)")
    options = parser.parse_args()
    core = environment.choose_core(())
    with Zygote.start(preload=PRELOAD) as zygote, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chmod(folder, 0o755)
        with environment.exclusive(core), environment.measuring(core):
            (folder / "idle").mkdir()
            caches = ColdCaches()
            over: dict[str, Any] = overhead(zygote, core, folder / "idle", caches)
            over |= floor(core, over["pause"], caches)
        over["load"] = environment.load_average()
        kept = json.loads(options.result.read_text(encoding="utf-8")) if options.calls else {}
        attempts = kept.get("attempts") or all_attempts(zygote, folder)
        described = environment.describe(core, environment.load_average(), (), (), "outside-monotonic-per-call")
    result = {
        "what": __doc__.partition("\n")[0],
        "goals": {"overhead_us": GOAL_OVERHEAD_US, "output_checks": GOAL_CHECKING},
        "overhead_us": over,
        "attempts": attempts,
        "environment": msgspec.to_builtins(described),
    }
    options.result.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))
    return int(
        over["warm"] > GOAL_OVERHEAD_US or any(one["output_checks"] > GOAL_CHECKING for one in attempts.values())
    )


if __name__ == "__main__":
    sys.exit(main())
