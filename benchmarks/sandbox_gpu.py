"""The GPU profile, bubblewrap and cgroup leaves beside an NVIDIA device: what works, how fast, and what is stopped.

Run there: `python benchmarks/sandbox_gpu.py`, as root, with nvcc, bubblewrap and a writable cgroup v2 tree. Writes
`benchmarks/results/sandbox_gpu.json`. On a machine without a device it says so, keeps the last result and exits with 0;
with a device it exits with 1 when an attack gets through, a run fails or something is left behind.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TESTS = HERE.parent / "tests" / "qualify" / "sandbox"
sys.path.append(str(TESTS))

import sandbox_attacks  # noqa: E402 - helpers of the tests are plain modules
import sandbox_battery  # noqa: E402
import sandbox_cuda  # noqa: E402

from qualify.sandbox.client import Zygote  # noqa: E402
from qualify.sandbox.outcome import OutcomeKind  # noqa: E402

RUNS = 20
FLOOR_RUNS = 5
BAD_RUNS = 100
RESULT = HERE / "results" / "sandbox_gpu.json"
ORDINARY_UID = 4242
_TORCH = "import torch; torch.zeros(1, device='cuda'); torch.cuda.synchronize()"
_DRIVER = """
import ctypes
driver, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
driver.cuInit(0)
driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
"""


def summary(values: list[float]) -> dict[str, float]:
    """Return best, median and worst."""
    chosen = {"best": min(values), "median": statistics.median(values), "worst": max(values)}
    return {name: round(value, 2) for name, value in chosen.items()}


def floors() -> dict[str, dict[str, float]]:
    """Return the milliseconds of whole unconfined processes."""

    def timed(program: str) -> float:
        begin = time.monotonic()
        subprocess.run([sys.executable, "-c", program], check=True)
        return (time.monotonic() - begin) * 1000

    programs = {"python -c pass": "pass", "python, driver and context": _DRIVER, "python, torch and context": _TORCH}
    return {name: summary([timed(program) for _ in range(FLOOR_RUNS)]) for name, program in programs.items()}


def spans(zygote: Zygote, entry: str, policy: Any, argument: bytes = b"") -> dict[str, dict[str, float]]:
    """Return the milliseconds from the request to each step of a CUDA child, over `RUNS` runs after a warm one."""
    rows: list[dict[str, float]] = []
    for _ in range(RUNS + 1):
        begin = time.monotonic_ns()
        report, outcome = sandbox_cuda.run(zygote, entry, policy, argument)
        end = time.monotonic_ns()
        if not (outcome.ok and report["correct"] and "cgroup" in outcome.layers):
            raise SystemExit(f"{entry}: {outcome.describe()}, {report}, {outcome.log!r}")
        steps = {**report["times"], "ended": end}
        rows.append({f"request to {name}": (at - begin) / 1e6 for name, at in steps.items()})
    return {name: summary([row[name] for row in rows[1:]]) for name in rows[0]}


def battery(zygote: Zygote, folder: Path) -> dict[str, Any]:
    """Run every attack in the GPU profile, and once more beside a live context; return what happened."""
    with sandbox_battery.targets(folder) as facts:
        alone = sandbox_battery.run_battery(zygote, facts, sandbox_cuda.policy(facts))
        names = [name for name in sandbox_attacks.BLOCKED if name != "use inherited descriptors"]
        beside, outcome = sandbox_cuda.attack_beside_cuda(zygote, facts, names)
    beside["(all of these survived)"] = outcome.describe()
    through = sorted({name for said in (alone, beside) for name, text in said.items() if text.startswith("allowed")})
    return {"alone": alone, "beside a live context": beside, "through": through, "attacks": len(alone) - 1}


def limits(zygote: Zygote, cubin: Path) -> dict[str, Any]:
    """Return how each breach ended and how many seconds passed from the start of the run."""
    cases: dict[str, tuple[str, dict[str, Any], bytes]] = {
        "host memory": ("touch_memory", {"memory_bytes": 1 << 30}, b""),
        "endless kernel, wall limit 2 s": ("endless_kernel", {"wall_seconds": 2.0}, b"/cubin/kernels.cubin"),
        "threads": ("thread_burst", {"processes": 8}, b""),
        "output": ("flood", {}, b""),
        "processor time, limit 1 s": ("spin", {"cpu_seconds": 1}, b"deaf"),
    }
    found = {}
    for name, (entry, fields, argument) in cases.items():
        begin = time.monotonic()
        _, outcome = sandbox_cuda.run(zygote, entry, sandbox_cuda.policy(cubin=cubin, **fields), argument)
        found[name] = {"kind": str(outcome.kind), "seconds": round(time.monotonic() - begin, 3)}
    return found


def bad_children(zygote: Zygote, cubin: Path) -> dict[str, Any]:
    """Run a hundred bad children; return what they left behind, and whether the next, correct one passed."""
    policy = sandbox_cuda.policy(cubin=cubin, wall_seconds=0.8, output_bytes=8192, processes=32)
    bad = [("misbehave", how) for how in (b"segfault", b"abort", b"kill", b"exit immediately")]
    bad += [("flood", b""), ("fork_bomb", b""), ("sleep", b""), ("thread_burst", b"quick"), ("spin", b"deaf")]
    bad += [("endless_kernel", b"/cubin/kernels.cubin")]
    sandbox_cuda.run(zygote, "misbehave", policy, b"exit")
    before, leaves = sandbox_battery.footprint(zygote), _leaves()
    endings: dict[str, int] = {}
    for index in range(BAD_RUNS):
        entry, argument = bad[index % len(bad)]
        _, outcome = sandbox_cuda.run(zygote, entry, policy, argument)
        endings[str(outcome.kind)] = endings.get(str(outcome.kind), 0) + 1
    sandbox_battery.wait_until(lambda: sandbox_battery.footprint(zygote) == before)
    report, outcome = sandbox_cuda.run(zygote, "matmul", sandbox_cuda.policy())
    clean = sandbox_battery.footprint(zygote) == before and _leaves() == leaves
    return {"runs": BAD_RUNS, "endings": endings, "clean": clean, "next one correct": outcome.ok and report["correct"]}


def delegated(*options: str) -> dict[str, Any]:
    """Run the bombs in real cgroup leaves."""
    command = [sys.executable, str(TESTS / "sandbox_delegated.py"), *options]
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parent), *map(os.path.abspath, _search_path())])}
    done = subprocess.run(command, env=settings, cwd="/", capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else {"failed": done.stderr[-2000:]}


def _search_path() -> list[str]:
    return [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]


def compilers(zygote: Zygote, folder: Path) -> dict[str, dict[str, float]]:
    """Return the milliseconds of `nvcc -cubin` bare and inside bubblewrap."""
    sandbox_cuda.compile_kernels(zygote, folder)
    source, target = str(folder / "in" / "kernels.cu"), str(folder / "bare.cubin")
    command = [sandbox_cuda.NVCC, "-cubin", f"-arch={sandbox_cuda.ARCHITECTURE}", source, "-o", target]
    bare = _milliseconds(lambda: subprocess.run(command, check=True))
    return {"bare": bare, "bubblewrap": _milliseconds(lambda: sandbox_cuda.compile_kernels(zygote, folder))}


def _milliseconds(action: Callable[[], object]) -> dict[str, float]:
    values = []
    for _ in range(FLOOR_RUNS):
        begin = time.monotonic()
        action()
        values.append((time.monotonic() - begin) * 1000)
    return summary(values)


def _leaves() -> int:
    return len([name for name in os.listdir("/sys/fs/cgroup") if name.startswith("cacheon-")])


def environment() -> dict[str, Any]:
    """Return what the numbers belong to."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    device = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    version = subprocess.run(["bwrap", "--version"], capture_output=True, text=True, check=False).stdout.strip()
    return {
        "device and driver": device,
        "kernel": os.uname().release,
        "cores": os.cpu_count(),
        "python": sys.version.split()[0],
        "bubblewrap": version,
        "as_root": os.geteuid() == 0,
        "load": round(os.getloadavg()[0], 2),
    }


def measure(folder: Path) -> dict[str, Any]:
    """Run everything."""
    result: dict[str, Any] = {
        "what": f"milliseconds from the request over {RUNS} sandboxed CUDA children; floors are whole bare processes",
        "environment": environment(),
        "floors_ms": floors(),
    }
    with sandbox_cuda.start_zygote(()) as light:
        cubin = sandbox_cuda.compile_kernels(light, folder)
        policy = sandbox_cuda.policy(cubin=cubin)
        result["driver_ms"] = spans(light, "cubin", policy, b"/cubin/kernels.cubin")
        result["nvcc_ms"] = compilers(light, folder)
    with sandbox_cuda.start_zygote() as warm:
        result["torch_ms"] = spans(warm, "matmul", sandbox_cuda.policy())
        result["battery"] = battery(warm, folder)
        result["limits"] = limits(warm, cubin)
        result["bad_children"] = bad_children(warm, cubin)
    result["cgroup"] = {"root": delegated(), "user": delegated("--as-user", str(ORDINARY_UID))}
    return result


def holds(result: dict[str, Any]) -> bool:
    """Say whether everything is as it must be. A Unix socket may be made in this profile; it leads nowhere."""
    bad = result["bad_children"]
    expected = {OutcomeKind.MEMORY_LIMIT, OutcomeKind.WALL_LIMIT, OutcomeKind.PROCESS_LIMIT, OutcomeKind.OUTPUT_LIMIT}
    kinds = {said["kind"] for said in result["limits"].values()}
    return (
        set(result["battery"]["through"]) <= {"make a Unix socket"}
        and kinds == {*map(str, expected), str(OutcomeKind.CPU_LIMIT)}
        and bad["clean"]
        and bad["next one correct"]
        and not any("failed" in said for said in result["cgroup"].values())
    )


def main() -> int:
    """Measure, write the result, print it."""
    if not os.path.exists("/dev/nvidia0"):
        print("no /dev/nvidia0 here: nothing is measured, the last result stays")
        return 0
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        result = measure(Path(name))
    RESULT.write_text(sandbox_battery.without_host_paths(json.dumps(result, indent=1)) + "\n", "utf-8")
    print(json.dumps({name: value for name, value in result.items() if name != "battery"}, indent=1))
    print("through:", result["battery"]["through"], "of", result["battery"]["attacks"])
    return 0 if holds(result) else 1


if __name__ == "__main__":
    sys.exit(main())
