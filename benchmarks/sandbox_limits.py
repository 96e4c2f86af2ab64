"""How soon a broken limit has ended a run, and what a hundred bad runs leave behind.

Run: `python benchmarks/sandbox_limits.py`. For each limit the child reads the monotonic clock at the moment of the
breach; the span ends when the trusted side holds the typed outcome and no process of the run exists. Writes
`benchmarks/results/sandbox_limits.json`. Goals: one second for every limit, and nothing left behind.
"""

from __future__ import annotations

import json
import os
import statistics
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TESTS = HERE.parent / "tests" / "qualify" / "sandbox"
sys.path.append(str(TESTS))

import sandbox_attacks  # noqa: E402 - helpers of the tests are plain modules
import sandbox_battery  # noqa: E402

from qualify.sandbox.client import Zygote  # noqa: E402
from qualify.sandbox.exec_profile import ExecProfile  # noqa: E402
from qualify.sandbox.policy import SandboxPolicy  # noqa: E402

RUNS = 20
BAD_RUNS = 100
GOAL_SECONDS = 1.0
RESULT = HERE / "results" / "sandbox_limits.json"
MIB = 1 << 20
_CLOCK = struct.Struct("q")
LIMITS: dict[str, tuple[str, dict[str, Any]]] = {
    "wall": ("wall_limit", {"wall_seconds": 0.2}),
    "processor time": ("cpu_limit", {"cpu_seconds": 1}),
    "processor time, deaf to the signal": ("cpu_limit", {"cpu_seconds": 1}),
    "memory": ("memory_limit", {"memory_bytes": 256 * MIB}),
    "output": ("output_limit", {"output_bytes": 1 * MIB}),
    "processes": ("process_limit", {"processes": 4}),
    "disk, all files": ("disk_limit", {"scratch_bytes": 8 * MIB}),
    "disk, one file": ("disk_limit", {"file_bytes": 4 * MIB}),
}


def breach(descriptors: tuple[int, ...], argument: bytes) -> None:
    """The sandboxed entry: break the named limit, saying when; then stay."""

    def now() -> None:
        os.pwrite(descriptors[0], _CLOCK.pack(time.monotonic_ns()), 0)

    match argument.decode():
        case "wall":
            now()
        case "processor time" | "processor time, deaf to the signal" as kind:
            if kind != "processor time":
                sandbox_attacks.signal.signal(sandbox_attacks.signal.SIGXCPU, sandbox_attacks.signal.SIG_IGN)
            while time.process_time() < 0.98:  # the clock is read a little early: at the limit itself it ends
                pass
            now()
            while True:
                pass
        case "memory":
            now()
            bytearray(512 * MIB)
        case "output":
            os.write(1, bytes(1 * MIB))
            now()
            os.write(1, b"x")
        case "processes":
            for _ in range(4):
                threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
            now()
        case "disk, all files":
            with open("/scratch/file", "wb", buffering=0) as file:
                file.write(bytes(8 * MIB))
                now()
                file.write(bytes(MIB))
        case "disk, one file":
            with open("/scratch/file", "wb", buffering=0) as file:
                file.write(bytes(4 * MIB))
                now()
                file.write(b"x")
    time.sleep(60)


def start(preload: tuple[str, ...] = ()) -> Zygote:
    """Start a fork server that knows the attacks and `breach`."""
    entries = {**sandbox_attacks.ENTRIES, "breach": "sandbox_limits:breach"}
    path = [str(TESTS), str(HERE)]
    return Zygote.start(("sandbox_attacks", "sandbox_limits", *preload), extra_entries=entries, extra_python_path=path)


def seconds_to_end(zygote: Zygote, name: str) -> float:
    """Return the seconds from the breach to the outcome. A wall limit is broken when its time has passed."""
    kind, fields = LIMITS[name]
    memory = os.memfd_create("clock")
    try:
        with zygote.spawn("breach", SandboxPolicy(**fields), [memory], name.encode()) as child:
            outcome = child.wait()
            end = time.monotonic_ns()
            if str(outcome.kind) != kind or os.path.exists(f"/proc/{child.host_pid}"):
                raise SystemExit(f"{name}: {outcome.describe()}, {outcome.log!r}")
        broken = _CLOCK.unpack(os.pread(memory, _CLOCK.size, 0))[0]
    finally:
        os.close(memory)
    return (end - broken) / 1e9 - fields.get("wall_seconds", 0.0)


def bad_children(zygote: Zygote) -> dict[str, Any]:
    """Run a hundred bad children; return how they ended, what is left, and whether the next, correct one passed."""
    policy = SandboxPolicy(wall_seconds=0.3, memory_bytes=256 * MIB, output_bytes=8192, processes=4)
    bad = [("misbehave", how) for how in (b"segfault", b"abort", b"kill", b"raise", b"exit immediately")]
    bad += [("eat_memory", b""), ("flood", b""), ("fork_bomb", b""), ("sleep", b""), ("spin", b"deaf")]
    bad += [("thread_burst", b"")]
    _end(zygote, policy, "misbehave", b"exit")
    before = _left(zygote)
    endings: dict[str, int] = {}
    for index in range(BAD_RUNS):
        ending = _end(zygote, policy, *bad[index % len(bad)])
        endings[ending] = endings.get(ending, 0) + 1
    sandbox_battery.wait_until(lambda: _left(zygote) == before)
    last = _end(zygote, SandboxPolicy(), "misbehave", b"print")
    return {"runs": BAD_RUNS, "endings": endings, "left behind": _left(zygote) != before, "the next, correct one": last}


def bad_tools(zygote: Zygote) -> dict[str, Any]:
    """Run a hundred tools in bubblewrap, most of them bad; return the same."""
    profile = ExecProfile(zygote)
    policy = SandboxPolicy(wall_seconds=0.3, memory_bytes=256 * MIB, output_bytes=8192, processes=4)
    scripts = ("exit 0", "kill -SEGV $$", "setsid sleep 60 & exit 0", "while :; do echo x; done", "sleep 60")
    scripts += ("sleep 60 & sleep 60 & sleep 60 & sleep 60 & wait", "while :; do :; done", "exec dd if=/dev/zero of=x")

    def run(script: str) -> str:
        outcome = profile.run(("/bin/sh", "-c", script), policy)
        return "exited well" if outcome.ok else str(outcome.kind)

    run("exit 0")
    before = _left(zygote)
    endings: dict[str, int] = {}
    for index in range(BAD_RUNS):
        ending = run(scripts[index % len(scripts)])
        endings[ending] = endings.get(ending, 0) + 1
    sandbox_battery.wait_until(lambda: _left(zygote) == before)
    last = run("exit 0")
    return {"runs": BAD_RUNS, "endings": endings, "left behind": _left(zygote) != before, "the next, correct one": last}


def _end(zygote: Zygote, policy: SandboxPolicy, entry: str, argument: bytes) -> str:
    with zygote.spawn(entry, policy, argument=argument) as child:
        outcome = child.wait()
    return "exited well" if outcome.ok else str(outcome.kind)


def _left(zygote: Zygote) -> tuple[object, ...]:
    """Return processes, descriptors, mounts, System V segments and the names in the places for temporary files."""
    segments = len(Path("/proc/sysvipc/shm").read_text("ascii").splitlines())
    names = tuple(name for name in os.listdir("/dev/shm") if "cacheon" in name)
    return (*sandbox_battery.footprint(zygote), segments, names)


def main() -> int:
    """Measure, write the result, print it."""
    with start() as zygote:
        spans = {name: [seconds_to_end(zygote, name) for _ in range(RUNS)] for name in LIMITS}
    with start(("torch",)) as zygote:
        bad = {"children": bad_children(zygote)}
        if os.access("/usr/bin/bwrap", os.X_OK):
            bad["tools"] = bad_tools(zygote)
    result = {
        "what": f"seconds from the breach of a limit to its typed outcome, whole tree dead, over {RUNS} runs",
        "goal_seconds": GOAL_SECONDS,
        "seconds": {
            name: {
                "best": round(min(values), 4),
                "median": round(statistics.median(values), 4),
                "worst": round(max(values), 4),
            }
            for name, values in spans.items()
        },
        "bad_runs": bad,
        "kernel": os.uname().release,
        "cores": os.cpu_count(),
        "as_root": os.geteuid() == 0,
        "load": round(os.getloadavg()[0], 2),
        "scheduling": "round robin" if os.sched_getscheduler(0) == os.SCHED_RR else "ordinary",
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(json.dumps(result, indent=1))
    slow = any(max(values) > GOAL_SECONDS for values in spans.values())
    clean = all(not said["left behind"] and said["the next, correct one"] == "exited well" for said in bad.values())
    return 1 if slow or not clean else 0


if __name__ == "__main__":
    sys.exit(main())
