"""What confinement costs a compiler: bubblewrap beside bare processes, and a warm compiler forked for each source.

Run: `python benchmarks/sandbox_compile.py`. Compilers that are not installed are left out and named. The warm compiler
is the CuTe DSL (the `gpu` extra), which needs no device and starts no program, so that
it runs in the ordinary profile. Writes `benchmarks/results/sandbox_compile.json`; parts that cannot be measured here
keep their last numbers, with the environment they belong to. Goal: a median of at most 250 ms for each source, warm.
"""

from __future__ import annotations

import hashlib
import importlib.util
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

from qualify.sandbox.client import Zygote
from qualify.sandbox.exec_profile import OUTPUT, ExecProfile
from qualify.sandbox.policy import SandboxPolicy

RUNS = 20
NVCC_RUNS = 7
GOAL_MS = 250.0
HERE = Path(__file__).parent
RESULT = HERE / "results" / "sandbox_compile.json"
ARCHITECTURE = "sm_90a"
NVCC = os.path.realpath("/usr/local/cuda/bin/nvcc")
POLICY = SandboxPolicy(memory_bytes=8 << 30, wall_seconds=60.0)
C_SOURCE = '#include <stdio.h>\nint twice(int x) { printf("%d", x); return 2 * x; }\n'
CUDA_SOURCE = 'extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2.0f; }\n'
_COLD = """
import sys
sys.path[:0] = [sys.argv[1]]
import sandbox_compile
sandbox_compile.compile_cute(sys.argv[2])
"""


def compile_cute(path: str) -> bytes:
    """Load a CuTe source and return its device code."""
    from cutlass import cute

    specification = importlib.util.spec_from_file_location("foreign_source", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["foreign_source"] = module
    specification.loader.exec_module(module)
    function, arguments = module.factory()
    compiled = cute.compile(function, *arguments, options=f"--gpu-arch {ARCHITECTURE} --keep-cubin")
    code: bytes = compiled.__cubin__
    return code


def warm_entry(descriptors: tuple[int, ...], argument: bytes) -> None:
    """The sandboxed entry: compile the bound source and send the digest of its device code."""
    os.write(descriptors[0], hashlib.sha256(compile_cute(argument.decode())).hexdigest().encode())


def summary(action: Callable[[], object], runs: int) -> dict[str, float]:
    """Return best, median and worst milliseconds after one run that does not count."""
    action()
    values = []
    for _ in range(runs):
        begin = time.monotonic()
        action()
        values.append((time.monotonic() - begin) * 1000)
    chosen = {"best": min(values), "median": statistics.median(values), "worst": max(values)}
    return {name: round(value, 2) for name, value in chosen.items()}


def programs(folder: Path) -> dict[str, dict[str, dict[str, float]]]:
    """Return the milliseconds of whole programs, bare and inside bubblewrap."""
    for name in ("in", "out"):
        (folder / name).mkdir(mode=0o755)
    (folder / "in" / "unit.c").write_text(C_SOURCE)
    (folder / "in" / "unit.cu").write_text(CUDA_SOURCE)
    commands = {
        "true": (["/bin/true"], RUNS),
        "gcc -c": (["/usr/bin/gcc", "-O1", "-c", "{in}/unit.c", "-o", "{out}/unit.o"], RUNS),
        "nvcc -cubin": ([NVCC, "-cubin", f"-arch={ARCHITECTURE}", "{in}/unit.cu", "-o", "{out}/unit.cubin"], NVCC_RUNS),
    }
    found = {}
    with Zygote.start() as fork_server:
        profile = ExecProfile(fork_server)
        for name, (words, runs) in commands.items():
            if os.access(words[0], os.X_OK):
                found[name] = _both(profile, words, folder, runs)
    return found


def _both(profile: ExecProfile, words: list[str], folder: Path, runs: int) -> dict[str, dict[str, float]]:
    bare = [word.format(**{"in": folder / "in", "out": folder}) for word in words]
    confined = [word.format(**{"in": "/in", "out": OUTPUT}) for word in words]

    def run_confined() -> None:
        outcome = profile.run(confined, POLICY, inputs=((str(folder / "in"), "/in"),), output=folder / "out")
        if not outcome.ok:
            raise SystemExit(f"{confined}: {outcome.describe()}: {outcome.log!r}")

    return {
        "bare": summary(lambda: subprocess.run(bare, check=True), runs),
        "bubblewrap": summary(run_confined, runs),
    }


def warm_compiler(folder: Path) -> dict[str, Any]:
    """Return the milliseconds of the CuTe compiler: a fresh bare process, and a fork of a warm one for each source."""
    source = folder / "bundle"
    source.mkdir(mode=0o755)
    (source / "kernel.py").write_bytes((HERE / "data" / "cute_scale.py").read_bytes())
    settings = {"CUTE_DSL_ARCH": ARCHITECTURE, "CUTE_DSL_NO_CACHE": "1", "CUTE_DSL_DISABLE_FILE_CACHING": "1"}
    (folder / "cute_settings.py").write_text(
        f"import os\nos.environ.update({settings!r}, CUTE_DSL_DUMP_DIR='/scratch')\n"
    )
    command = [sys.executable, "-c", _COLD, str(HERE), str(source / "kernel.py")]
    environment = {**os.environ, **settings, "CUTE_DSL_DUMP_DIR": str(folder)}
    cold = summary(lambda: subprocess.run(command, env=environment, check=True), 5)
    begin = time.monotonic()
    policy = SandboxPolicy(
        memory_bytes=8 << 30,
        readonly=((str(source), "/bundle"),),
        environment=(*settings.items(), ("CUTE_DSL_DUMP_DIR", "/scratch")),
    )
    with Zygote.start(
        ("cute_settings", "cutlass", "cutlass.cute", "cutlass.cute.runtime", "sandbox_compile"),
        extra_entries={"compile": "sandbox_compile:warm_entry"},
        extra_python_path=[str(folder), str(HERE)],
    ) as fork_server:
        started = time.monotonic() - begin
        digests: set[bytes] = set()
        warm = summary(lambda: digests.add(_compile_in_fork(fork_server, policy)), RUNS)
    if len(digests) != 1:
        raise SystemExit(f"the compiler is not deterministic: {digests}")
    return {"fresh bare process": cold, "warm fork": warm, "start of the fork server": round(started * 1000)}


def _compile_in_fork(fork_server: Zygote, policy: SandboxPolicy) -> bytes:
    source, sink = os.pipe()
    try:
        with fork_server.spawn("compile", policy, [sink], b"/bundle/kernel.py") as child:
            outcome = child.wait()
        if not outcome.ok:
            raise SystemExit(f"{outcome.describe()}: {outcome.log!r}")
        return os.read(source, 64)
    finally:
        os.close(source)
        os.close(sink)


def environment() -> dict[str, Any]:
    """Return what the numbers belong to."""
    return {
        "kernel": os.uname().release,
        "cores": os.cpu_count(),
        "python": sys.version.split()[0],
        "as_root": os.geteuid() == 0,
        "load": round(os.getloadavg()[0], 2),
        "scheduling": "round robin" if os.sched_getscheduler(0) == os.SCHED_RR else "ordinary",
    }


def main() -> int:
    """Measure what is installed, keep the rest, print a table."""
    result: dict[str, Any] = json.loads(RESULT.read_text("utf-8")) if RESULT.exists() else {}
    result["what"] = "milliseconds from request to outcome; a bare process is the floor"
    result["goal_ms"] = GOAL_MS
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        if os.access("/usr/bin/bwrap", os.X_OK):
            result["programs"] = {"ms": programs(Path(name)), "environment": environment()}
        if importlib.util.find_spec("cutlass"):
            result["warm compiler"] = {"ms": warm_compiler(Path(name)), "environment": environment()}
        else:
            print("the CuTe DSL is not installed here: its last numbers stay")
    RESULT.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(json.dumps(result, indent=1))
    warm = result.get("warm compiler", {}).get("ms", {}).get("warm fork", {}).get("median", 0.0)
    return 1 if warm > GOAL_MS else 0


if __name__ == "__main__":
    sys.exit(main())
