"""How long hostile archives are looked at, and how much memory they get.

Run: `python benchmarks/intake_archives.py`. Every archive of `tests/intake/hostile_archives.py` is unpacked again and
again in this process; times are those of its thread on the processor, so that other work on the machine does not count
(wall-clock medians stand beside them). Peak memory is that of a fresh interpreter that unpacks them all. Goals: each
refused within 50 ms at the 99th percentile and within 64 MiB above a bare interpreter. What has the largest legal size,
or number of headers, costs what a legal archive costs, and stands apart. Writes
`benchmarks/results/intake_archives.json`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from config.errors import IntakeError  # noqa: E402 - the path comes first
from intake.archive import unpack  # noqa: E402
from qualify.intake_runner import IntakeRunner  # noqa: E402
from tests.intake.hostile_archives import HOSTILE, LARGEST, Row  # noqa: E402

RUNS = 100
LARGEST_RUNS = 5
SANDBOXED_RUNS = 40
GOAL_MS = 50
GOAL_MIB = 64
RESULT = ROOT / "benchmarks" / "results" / "intake_archives.json"
_READ = """
import sys
from pathlib import Path
from config.errors import IntakeError
from intake.archive import unpack
for path in sorted(Path(sys.argv[1]).iterdir()):
    try:
        unpack(path.read_bytes())
    except IntakeError:
        continue
"""
_REPORT = "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])"


def spans(archive: bytes, code: str, runs: int) -> tuple[list[float], list[float]]:
    """Return the milliseconds on the processor and by the clock that `runs` refusals took, each sorted."""
    worked, waited = [], []
    for _ in range(runs):
        clock, start = time.perf_counter(), time.thread_time()
        try:
            unpack(archive)
        except IntakeError as error:
            assert error.code == code  # noqa: PT017 - not a test
        worked.append((time.thread_time() - start) * 1e3)
        waited.append((time.perf_counter() - clock) * 1e3)
    return sorted(worked), sorted(waited)


def share(values: list[float], part: float) -> float:
    """Return the value below which `part` of the sorted `values` lie."""
    return round(values[min(len(values) - 1, int(len(values) * part))], 3)


def measured(rows: dict[str, Row], runs: int) -> dict[str, dict[str, float]]:
    """Return the times of each archive, the slowest first."""
    table = {}
    for name, (build, code) in rows.items():
        worked, waited = spans(build(), code, runs)
        table[name] = {
            "p50": share(worked, 0.5),
            "p99": share(worked, 0.99),
            "max": round(worked[-1], 3),
            "wall_p50": share(waited, 0.5),
        }
    return dict(sorted(table.items(), key=lambda item: -item[1]["p99"]))


def peak_mib(code: str, *arguments: str) -> float:
    """Return the peak resident MiB of a fresh interpreter that runs `code`."""
    command = [sys.executable, "-c", f"{code}\n{_REPORT}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return int(done.stdout) / 1024


def memory(rows: dict[str, Row]) -> float:
    """Return the MiB above a bare interpreter, imports and the largest archive itself included, of unpacking `rows`."""
    with tempfile.TemporaryDirectory() as folder:
        for index, (build, _) in enumerate(rows.values()):
            (Path(folder) / str(index)).write_bytes(build())
        return round(peak_mib(_READ, folder) - peak_mib("pass"), 1)


def sandboxed() -> dict[str, float]:
    """Return the milliseconds of refusing in the sandboxed child what takes no time in process."""
    archive = HOSTILE["wrong checksum"][0]()
    found = []
    with IntakeRunner() as runner:
        for _ in range(SANDBOXED_RUNS + 1):
            start = time.perf_counter()
            try:
                runner.run(archive, "0" * 64)
            except IntakeError as error:
                assert error.code == "ARCHIVE_MALFORMED"  # noqa: PT017 - not a test
            found.append((time.perf_counter() - start) * 1e3)
    values = sorted(found[1:])  # the first one starts the fork server
    return {"p50": share(values, 0.5), "p99": share(values, 0.99), "first": round(found[0], 1)}


def main() -> None:
    """Measure, print a table and write the result."""
    with tempfile.TemporaryDirectory() as empty:
        imports = round(peak_mib(_READ, empty) - peak_mib("pass"), 1)
    times, largest = measured(HOSTILE, RUNS), measured(LARGEST, LARGEST_RUNS)
    result = {
        "what": f"milliseconds to refuse each of {len(HOSTILE)} hostile archives, {RUNS} runs; MiB above bare Python",
        "goal": {"p99_ms": GOAL_MS, "mib": GOAL_MIB},
        "slowest_p99_ms": next(iter(times.values()))["p99"],
        "median_of_p50_ms": share(sorted(row["p50"] for row in times.values()), 0.5),
        "over_goal": [name for name, row in times.items() if row["p99"] > GOAL_MS],
        "peak_mib": {"imports": imports, "hostile": memory(HOSTILE), "largest legal size": memory(LARGEST)},
        "sandboxed_child_ms": sandboxed(),
        "largest_legal_size_ms": largest,
        "archives_ms": times,
    }
    for name, row in [*largest.items(), *list(times.items())[:12]]:
        print(f"{name:32}" + "  ".join(f"{key} {value:8.2f}" for key, value in row.items()) + " ms")
    print(f"{len(times)} archives: slowest p99 {result['slowest_p99_ms']} ms; memory {result['peak_mib']} MiB")
    print(f"in the sandboxed child: {result['sandboxed_child_ms']} ms")
    RESULT.write_text(json.dumps(result, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
