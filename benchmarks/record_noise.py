"""Records launches of identical code by the real referee: the noise that verdicts have to live with on this machine.

Run: `python -m benchmarks.record_noise --name NAME [--launches 64] [--repeat 1] [--load LOAD ...]`. Every load is an
attempt process of its own, in which the stock form, dressed up as a bundle, is the candidate; the arena is `cpu-small`
with other shapes and with a launch count at which nothing is decided earlier. Writes
`benchmarks/data/noise/NAME.json` in the format described beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from benchmarks.attempt_cpu import EQUAL, MANIFEST, ROOT, measure_attempt, publish_files
from config.arena import load_arena
from qualify.request import AttemptRequest
from scoring.attempt import Attempt, Launch, Reservation

DATA = Path(__file__).parent / "data" / "noise"


class Load(NamedTuple):
    """One thing to measure."""

    target: str
    shape: dict[str, int]


LOADS = {
    "silu tiny": Load("activation.silu_and_mul", {"num_tokens": 8, "d": 4096}),
    "silu mid": Load("activation.silu_and_mul", {"num_tokens": 512, "d": 4096}),
    "rmsnorm tiny": Load("norm.rmsnorm", {"num_tokens": 8, "hidden_dim": 4096}),
    "rmsnorm mid": Load("norm.rmsnorm", {"num_tokens": 512, "hidden_dim": 4096}),
}


def write_arena(load: Load, launches: int, folder: Path) -> Path:
    """Write an arena that measures `load` with exactly `launches` launches; return its path."""
    arena = load_arena("cpu-small")
    plain = {
        name: value
        for name, value in msgspec.to_builtins(arena).items()
        if name != "workloads" and not isinstance(value, (list, dict))
    }
    plain |= {"id": "noise", "launches_min": launches, "launches_max": launches, "attempt_budget_seconds": 3600}
    lines = [f"{name} = {json.dumps(value)}" for name, value in plain.items()]
    shape = ", ".join(f"{name} = {extent}" for name, extent in load.shape.items())
    lines += ["[[workloads]]", f'target = "{load.target}"', 'dtype = "bfloat16"', f"shapes = [{{ {shape} }}]"]
    path = folder / "noise.toml"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def record(load: Load, launches: int, scratch: Path) -> Attempt:
    """Measure one load against itself and return the evidence."""
    files = {
        "manifest.toml": MANIFEST.format(target=load.target).encode(),
        "kernels/k.py": EQUAL[load.target].encode(),
    }
    request = AttemptRequest(
        attempt_id=uuid.uuid4().hex,
        role="primary",
        target_id=load.target,
        arena=str(write_arena(load, launches, scratch)),
        candidate=publish_files(files, scratch / "store"),
        reservation=Reservation(1, 0, "5Benchmark"),
    )
    return measure_attempt(request, scratch)


def rows_of(launch: Launch) -> dict[str, Any]:
    """Return one launch in the format of the recorded noise: per block the ns of both slots, and which ran first."""
    rows = []
    for block in launch.blocks:
        slots = {launch.candidate_slot: block.candidate, 1 - launch.candidate_slot: block.baseline}
        first = launch.candidate_slot if block.first == "candidate" else 1 - launch.candidate_slot
        rows.append([[sum(slots[0].call_ns), None, None], [sum(slots[1].call_ns), None, None], first])
    return {"flip": launch.candidate_slot == 0, "rows": rows}


def collect(names: Iterable[str], launches: int, repeat: int) -> Iterator[dict[str, Any]]:
    """Record every named load `repeat` times, in turn; yield all there is after each."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    environment: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for _ in range(repeat):
            for name, rows in found.items():
                attempt = record(LOADS[name], launches, Path(scratch))
                rows.extend(rows_of(launch) for launch in attempt.launches)
                environment = msgspec.to_builtins(attempt.environment)
                print(f"{name}: {len(rows)} launches, load {environment['load_after']}", flush=True)
                yield describe(environment, found)


def describe(environment: dict[str, Any], found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return the document of what was recorded so far."""
    return {
        "design": "A/A by the referee: per launch a fresh pair of arms on one core; a sealed coin gives the slot "
        "(fork order, memory order); calls per block summed; ns",
        "cores": os.cpu_count(),
        "environment": environment,
        "loads": [{"name": name, **LOADS[name]._asdict(), "launches": rows} for name, rows in found.items() if rows],
    }


def main() -> None:
    """Record and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--launches", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--load", action="append", choices=sorted(LOADS))
    parser.add_argument("--folder", type=Path, default=DATA)
    options = parser.parse_args()
    target: Path = options.folder / f"{options.name}.json"
    for result in collect(options.load or list(LOADS), options.launches, options.repeat):
        target.write_text(json.dumps(result, separators=(",", ":")) + "\n", "utf-8")
    print(f"written to {target.relative_to(ROOT) if target.is_relative_to(ROOT) else target.name}")


if __name__ == "__main__":
    main()
