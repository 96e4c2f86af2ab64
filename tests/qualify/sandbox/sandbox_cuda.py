"""Helpers for tests and measurements of the GPU profile."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import sandbox_attacks
import sandbox_gpu_entries

from qualify.sandbox.client import Zygote
from qualify.sandbox.exec_profile import OUTPUT, run_tool
from qualify.sandbox.outcome import Outcome
from qualify.sandbox.policy import SandboxPolicy, nvidia_devices

HERE = Path(__file__).parent
NVCC = os.path.realpath("/usr/local/cuda/bin/nvcc")  # the links on the way may lie outside the sandbox
ARCHITECTURE = "sm_90"
GIB = 1 << 30


def start_zygote(preload: tuple[str, ...] = ("torch",)) -> Zygote:
    """Start a fork server that knows the attacks and the CUDA entries."""
    return Zygote.start(
        (*preload, "sandbox_attacks", "sandbox_gpu_entries"),
        extra_entries={**sandbox_attacks.ENTRIES, **sandbox_gpu_entries.ENTRIES},
        extra_python_path=[str(HERE)],
        ablation=True,
    )


def policy(facts: dict[str, Any] | None = None, cubin: Path | None = None, **fields: Any) -> SandboxPolicy:
    """Return a policy for one device: 16 GiB of host memory, a cgroup where there is one."""
    binds = [(facts["tools"] + "/id", "/tools/id")] if facts else []
    binds += [(str(cubin), "/cubin")] if cubin else []
    chosen: dict[str, Any] = {
        "devices": nvidia_devices(0),
        "memory_bytes": 16 * GIB,
        "processes": 64,
        "cpu_seconds": 120,
        "wall_seconds": 90.0,
        "open_files": 512,
        "scratch_bytes": 256 << 20,
        "readonly": tuple(binds),
        **fields,
    }
    return SandboxPolicy(**chosen)


def run(zygote: Zygote, entry: str, chosen: SandboxPolicy, argument: bytes = b"") -> tuple[dict[str, Any], Outcome]:
    """Run one entry; return what it reported and how it ended."""
    source, sink = os.pipe()
    with zygote.spawn(entry, chosen, [sink], argument) as child:
        os.close(sink)
        outcome = child.wait()
    with os.fdopen(source, "rb") as report:
        data = report.read()
    return (json.loads(data) if data else {}), outcome


def attack_beside_cuda(zygote: Zygote, facts: dict[str, Any], names: Iterable[str]) -> tuple[dict[str, str], Outcome]:
    """Run attacks in a child that has used the device before."""
    request = json.dumps({**facts, "attacks": list(names)}).encode()
    return run(zygote, "attack_beside_cuda", policy(facts), request)


def compile_kernels(zygote: Zygote, folder: Path) -> Path:
    """Compile the kernels inside bubblewrap; return the folder that holds `kernels.cubin`."""
    places = {name: folder / name for name in ("in", "cubin")}
    for place in places.values():
        place.mkdir(mode=0o755, exist_ok=True)
    (places["in"] / "kernels.cu").write_text(sandbox_gpu_entries.KERNELS)
    command = (NVCC, "-cubin", f"-arch={ARCHITECTURE}", "/in/kernels.cu", "-o", f"{OUTPUT}/kernels.cubin")
    limits = SandboxPolicy(memory_bytes=8 * GIB, wall_seconds=60.0)
    outcome = run_tool(zygote, command, limits, inputs=((str(places["in"]), "/in"),), output=places["cubin"])
    if not outcome.ok:
        raise AssertionError(f"{outcome.describe()}: {outcome.log!r}")
    return places["cubin"]
