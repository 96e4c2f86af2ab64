"""From the request for a sandboxed process to its first own line, and how fast one is frozen.

Run: `python benchmarks/sandbox_start.py`. The child reads the monotonic clock as its first act and sends the reading
back; the floors are a bare `python -c pass` and a fresh `import torch`, whole processes without any isolation. Writes
`benchmarks/results/sandbox_start.json`. Goals: medians of at most 12 ms without and 25 ms with torch preloaded; a busy
machine misses them together with the floors.
"""

from __future__ import annotations

import json
import os
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from qualify.sandbox.client import Zygote
from qualify.sandbox.policy import SandboxPolicy

RUNS = 40
FLOOR_RUNS = 20
TORCH_FLOOR_RUNS = 5
GOALS_MS = {"bare": 12.0, "torch": 25.0}
HERE = Path(__file__).parent
RESULT = HERE / "results" / "sandbox_start.json"
_CLOCK = struct.Struct("q")


def first_line(descriptors: tuple[int, ...], _: bytes) -> None:
    """The sandboxed entry: send the time of its first line, then wait to be frozen."""
    os.write(descriptors[0], _CLOCK.pack(time.monotonic_ns()))
    time.sleep(60)


def start(preload: tuple[str, ...]) -> Zygote:
    """Start a fork server that knows `first_line`."""
    entries = {"first_line": "sandbox_start:first_line"}
    return Zygote.start(("sandbox_start", *preload), extra_entries=entries, extra_python_path=[str(HERE)])


def sample(zygote: Zygote, policy: SandboxPolicy) -> dict[str, float]:
    """Return the milliseconds of one run."""
    source, sink = os.pipe()
    begin = time.monotonic_ns()
    with zygote.spawn("first_line", policy, [sink]) as child:
        spawned = time.monotonic_ns()
        first = _CLOCK.unpack(os.read(source, _CLOCK.size))[0]
        freezing = time.monotonic_ns()
        child.freeze()
        called = time.monotonic_ns()
        while not child.is_stopped():
            pass
        stopped = time.monotonic_ns()
        child.kill()
        child.wait()
        gone = time.monotonic_ns()
    os.close(source)
    os.close(sink)
    spans = {
        "request to first line": first - begin,
        "request to spawn returned": spawned - begin,
        "freeze call": called - freezing,
        "freeze until seen stopped": stopped - freezing,
        "kill to outcome": gone - stopped,
    }
    return {name: nanoseconds / 1e6 for name, nanoseconds in spans.items()}


def floor(program: str, runs: int) -> float:
    """Return the median milliseconds of a whole unconfined process."""

    def run() -> float:
        begin = time.monotonic_ns()
        subprocess.run([sys.executable, "-c", program], check=True)
        return (time.monotonic_ns() - begin) / 1e6

    return median(run, runs)


def median(measure: Callable[[], float], runs: int) -> float:
    """Return the median of `runs` measurements after one that does not count."""
    measure()
    return statistics.median(measure() for _ in range(runs))


def measure(preload: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Return best, median and 95th percentile of every span, in milliseconds."""
    with start(preload) as zygote:
        sample(zygote, SandboxPolicy())
        samples = [sample(zygote, SandboxPolicy()) for _ in range(RUNS)]
    summary = {}
    for name in samples[0]:
        values = sorted(each[name] for each in samples)
        chosen = {"best": values[0], "median": statistics.median(values), "p95": values[int(0.95 * RUNS)]}
        summary[name] = {label: round(value, 3) for label, value in chosen.items()}
    return summary


def main() -> int:
    """Measure, print a table, write the result."""
    spans = {"bare": measure(()), "torch": measure(("torch",))}
    floors = {
        "python -c pass": round(floor("pass", FLOOR_RUNS), 2),
        "python -c 'import torch'": round(floor("import torch", TORCH_FLOOR_RUNS), 1),
    }
    result = {
        "what": f"milliseconds over {RUNS} sandboxed processes; floors are medians of whole unconfined processes",
        "goal_ms": GOALS_MS,
        "spans_ms": spans,
        "floors_ms": floors,
        "as_root": os.geteuid() == 0,
        "kernel": os.uname().release,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "scheduling": "round robin" if os.sched_getscheduler(0) == os.SCHED_RR else "ordinary",
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    for kind, summary in spans.items():
        for name, values in summary.items():
            figures = "   ".join(f"{label} {value:8.3f}" for label, value in values.items())
            print(f"{kind:6s} {name:28s} {figures} ms")
    for name, value in floors.items():
        print(f"floor  {name:28s} {value:8.1f} ms")
    missed = [kind for kind, goal in GOALS_MS.items() if spans[kind]["request to first line"]["median"] > goal]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
