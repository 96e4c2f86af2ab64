"""How long `cacheon verify` takes for the stock form of every slot, whole processes, one after the other.

Run: `python benchmarks/verify_cpu.py`. Every stock form is packed as a bundle and goes the way of one. Workloads are
those of arena cpu-small, and a public shape on two ranks for slots it does not judge. `import torch` and `python -c
pass` are measured between them, so that a busy machine slows all alike. Writes `benchmarks/results/verify_cpu.json`.
Goals on two cores: all eleven below 90 s together, the silu example below 4 s.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from importlib import resources
from pathlib import Path

from benchmarks.cli_help import whole_process_seconds
from config.arena import load_arena
from qualify.slots.admission import admit
from qualify.slots.base import STOCK_ROOT, Slot
from qualify.slots.registry import SLOTS
from qualify.slots.rehearsal import small

GOAL_SECONDS, GOAL_SILU_SECONDS = 90.0, 4.0
SILU_RUNS = 5
RESULT = Path(__file__).parent / "results" / "verify_cpu.json"
EXAMPLE = Path(__file__).parents[1] / "examples" / "silu_fast"
FLOORS = {"python -c pass": [sys.executable, "-c", "pass"], "import torch": [sys.executable, "-c", "import torch"]}
WORKLOAD = '[[workloads]]\ntarget = "{target}"\ndtype = "bfloat16"\nworld_size = 2\nshapes = [{{ {shape} }}]\n'
MANIFEST = """bundle_id = "stock"
abi_version = "cacheon-op-abi-v0"
[competition]
target = "{slot}"
mode = "slot"
[[ops]]
slot = "{slot}"
source = "kernels/stock.py"
entry = "{entry}"
{prepare}"""


def write_arena(folder: Path) -> Path:
    """Write arena cpu-small with a workload for every slot."""
    judged = {load.target for load in load_arena("cpu-small").workloads}
    text = (resources.files("config") / "arenas" / "cpu-small.toml").read_text("utf-8")
    for slot in SLOTS.values():
        if slot.id not in judged:
            shape = ", ".join(f"{name} = {extent}" for name, extent in small(slot).items())
            text += WORKLOAD.format(target=slot.id, shape=shape)
    path = folder / "all.toml"
    path.write_text(text, "utf-8")
    return path


def write_bundle(slot: Slot, folder: Path) -> Path:
    """Write the stock form of `slot` as a bundle."""
    (folder / slot.id / "kernels").mkdir(parents=True)
    prepare = f'prepare = "{slot.stock_prepare}"\n' if slot.stock_prepare else ""
    text = MANIFEST.format(slot=slot.id, entry=slot.stock[1], prepare=prepare)
    (folder / slot.id / "manifest.toml").write_text(text, "utf-8")
    (folder / slot.id / "kernels" / "stock.py").write_bytes((STOCK_ROOT / slot.stock[0]).read_bytes())
    return folder / slot.id


def verify(bundle: Path, *options: str) -> tuple[float, float]:
    """Return wall and processor seconds of one `cacheon verify`."""
    return whole_process_seconds([sys.executable, "-m", "node.cli.main", "verify", str(bundle), "--json", *options])


def admissions() -> dict[str, int]:
    """Return how many ms the admission of each slot takes."""
    took = {}
    for slot in SLOTS.values():
        begin = time.perf_counter()
        admit(slot, "bfloat16")
        took[slot.id] = round(1000 * (time.perf_counter() - begin))
    return took


def main() -> int:
    """Measure, print, write the result."""
    floors: dict[str, list[tuple[float, float]]] = {name: [] for name in FLOORS}
    slots: dict[str, tuple[float, float]] = {}
    silu: list[float] = []
    with tempfile.TemporaryDirectory() as scratch:
        arena = write_arena(Path(scratch))
        verify(EXAMPLE)  # fills caches; not counted
        for slot in SLOTS.values():
            slots[slot.id] = verify(write_bundle(slot, Path(scratch)), "--arena", str(arena))
            for name, command in FLOORS.items():
                floors[name].append(whole_process_seconds(command))
            if len(silu) < SILU_RUNS:
                silu.append(verify(EXAMPLE)[0])
    total = sum(wall for wall, _ in slots.values())
    result = {
        "what": "whole-process seconds of `cacheon verify`",
        "goal_seconds": {"all stock forms together": GOAL_SECONDS, "examples/silu_fast": GOAL_SILU_SECONDS},
        "all_stock_seconds": round(total, 2),
        "all_stock_processor_seconds": round(sum(spent for _, spent in slots.values()), 2),
        "stock_seconds": {name: round(wall, 2) for name, (wall, _) in slots.items()},
        "silu_example_seconds": [round(wall, 2) for wall in silu],
        "stock_processor_seconds": {name: round(spent, 2) for name, (_, spent) in slots.items()},
        "floor_seconds": {name: round(statistics.median(wall for wall, _ in runs), 3) for name, runs in floors.items()},
        "floor_processor_seconds": {
            name: round(statistics.median(spent for _, spent in runs), 3) for name, runs in floors.items()
        },
        "admission_ms": admissions(),
        "load": round(os.getloadavg()[0], 2),
        "cores": os.cpu_count(),
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(json.dumps(result, indent=1))
    return 0 if total < GOAL_SECONDS and statistics.median(silu) < GOAL_SILU_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
