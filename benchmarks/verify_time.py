"""How long `cacheon verify` of the silu example takes, whole process, against the floors of Python and of torch.

Run: `python benchmarks/verify_time.py`. Samples alternate, so that a busy machine slows all alike. Writes
`benchmarks/results/verify_time.json`. Goal: median below 4 s on two cores. On a machine that works for others at the
same time walls say little; then the processor time, of the command and all its children, over that of one import of
torch in the same run is what can be compared.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from pathlib import Path

from benchmarks.cli_help import whole_process_seconds

RUNS = 7
GOAL_SECONDS = 4.0
RESULT = Path(__file__).parent / "results" / "verify_time.json"
BUNDLE = Path(__file__).parents[1] / "examples" / "silu_fast"
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import torch": [sys.executable, "-c", "import torch"],
    "cacheon verify": [sys.executable, "-m", "node.cli.main", "verify", str(BUNDLE), "--json"],
}


def _spent(samples: dict[str, list[tuple[float, float]]], name: str) -> float:
    return statistics.median(spent for _, spent in samples[name])


def main() -> int:
    """Measure, print a table, write the result."""
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for command in COMMANDS.values():  # fills caches; not counted
        whole_process_seconds(command)
    for _ in range(RUNS):
        for name, command in COMMANDS.items():
            samples[name].append(whole_process_seconds(command))
    walls = {name: sorted(wall for wall, _ in runs) for name, runs in samples.items()}
    result = {
        "what": f"whole-process wall time and processor time, seconds, medians of {RUNS}",
        "goal_seconds": GOAL_SECONDS,
        "median_seconds": {name: round(statistics.median(values), 3) for name, values in walls.items()},
        "fastest_seconds": {name: round(values[0], 3) for name, values in walls.items()},
        "median_processor_seconds": {
            name: round(statistics.median(spent for _, spent in runs), 3) for name, runs in samples.items()
        },
        "processor_time_in_imports_of_torch": round(
            _spent(samples, "cacheon verify") / _spent(samples, "import torch"), 2
        ),
        "load": round(os.getloadavg()[0], 2),
        "cores": os.cpu_count(),
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(json.dumps(result, indent=1))
    return 0 if statistics.median(walls["cacheon verify"]) < GOAL_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
