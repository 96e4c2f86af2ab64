"""How long `cacheon demo` takes from a fresh state folder to confirmed weights.

Run: `python benchmarks/demo_time.py`. Writes `benchmarks/results/demo_time.json`. Goal: below 180 s on 2 cores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GOAL_SECONDS = 180
RESULT = Path(__file__).parent / "results" / "demo_time.json"


def main() -> int:
    """Run the demo once, print and write how long it took, and how long doing it again on the same state takes."""
    command = [str(Path(sys.executable).with_name("cacheon")), "demo", "--json", "--state"]
    with tempfile.TemporaryDirectory(prefix="demo-time-") as folder:
        seconds = []
        for _ in range(2):
            start = time.perf_counter()
            done = subprocess.run([*command, folder], capture_output=True, text=True, check=False)
            seconds.append(round(time.perf_counter() - start, 1))
            if done.returncode:
                print(done.stdout)
                return done.returncode
    result = {
        "what": "whole-process wall time of the demo, seconds",
        "goal_seconds": GOAL_SECONDS,
        "fresh_seconds": seconds[0],
        "again_seconds": seconds[1],
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    print(f"fresh state {seconds[0]} s, finished state {seconds[1]} s (goal: below {GOAL_SECONDS} s)")
    return 0 if seconds[0] < GOAL_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
