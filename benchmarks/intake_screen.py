"""How fast and how large intake is, measured on one core, each number beside the floor it cannot fall below.

Run: `python benchmarks/intake_screen.py [SECTION ...] [--result PATH]`. Writes those sections, all by default, into
`benchmarks/results/intake_screen.json` or the given file; each says on which machine and under which load it was taken.
Needs msgspec and tomli beside the standard library; a section that cannot be measured on a machine is left as it was.

Goals: a valid bundle of 200 files and 6 MB screened 10 times per second within 64 MiB above the bare interpreter;
8 MiB of Python scanned in 1.5 s; the content hash within 1.3 times `sha256sum` on the same files; `cacheon scan` of a
small bundle in 0.25 s, whole process. `benchmarks/intake_archives.py` has hostile archives.

Samples of what is compared alternate, so that a busy machine slows both alike; rates are of processor time, since the
machine may be shared. The floor of a screening is inflating the archive, hashing its contents once and one `ast.parse`
of each Python file, which no correct intake can avoid. What several processes do is given in wall seconds, too.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import hashlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.intake_mixes import MIXES, example_source, mix, python_source  # noqa: E402 - the path comes first
from config.errors import IntakeError  # noqa: E402
from config.limits import INTAKE  # noqa: E402
from intake.archive import unpack  # noqa: E402
from intake.closure import LocalModules  # noqa: E402
from intake.content_hash import hash_files, hash_tree  # noqa: E402
from intake.package import package_bytes  # noqa: E402
from intake.quiet import quiet_module  # noqa: E402
from intake.screen import screen_files  # noqa: E402
from intake.syntax import parse_python  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "intake_screen.json"
COMMAND = Path(sys.executable).with_name("cacheon")
ROUNDS = 7
MIB = 1 << 20

Samples = dict[str, list[tuple[float, float]]]


class NotHere(Exception):  # noqa: N818 - says where
    """This machine lacks what a section needs."""


def alternate(work: Mapping[str, Callable[[], object]], rounds: int = ROUNDS, *, warm: bool = True) -> Samples:
    """Run each of `work` once per round; return wall and processor seconds of every run.

    A round that is not counted fills caches first, unless they are `warm` enough without.
    """
    samples: Samples = {name: [] for name in work}
    for number in range(rounds + warm):
        for name, run in work.items():
            gc.collect()
            wall, spent = time.perf_counter(), _processor_seconds()
            run()
            if number >= warm:
                samples[name].append((time.perf_counter() - wall, _processor_seconds() - spent))
    return samples


def _processor_seconds() -> float:
    spent = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)


def medians(samples: Samples) -> dict[str, dict[str, float]]:
    """Return the median of wall and processor seconds of each row, and the best of the latter."""
    return {
        name: {
            "wall_seconds": round(statistics.median(wall for wall, _ in runs), 4),
            "processor_seconds": round(statistics.median(spent for _, spent in runs), 4),
            "best_processor_seconds": round(min(spent for _, spent in runs), 4),
        }
        for name, runs in samples.items()
    }


def environment() -> dict[str, Any]:
    """Return what the numbers depend on."""
    model = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "")
    return {
        "cpu": model.partition(":")[2].strip(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "kernel": platform.release(),
    }


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """As intake itself does while it screens, so that floors are not slowed by what intake avoids."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def parse_all(sources: list[bytes]) -> None:
    """The floor of reading Python: one tree after the other, nothing else."""
    with collector_paused():
        for source in sources:
            ast.parse(source)


def screen(archive: bytes, digest: str) -> None:
    """All of `screen_archive`; CUDA is screened too, though no bundle that needs a build is served yet."""
    files = unpack(archive)
    assert hash_files(files) == digest
    screen_files(files, content_hash=digest, served=None)


def valid_bundles(folder: Path) -> dict[str, Any]:
    """Screen a valid bundle of each mix: times, floors, memory above the bare interpreter."""
    bare = peak_mib("pass")
    rows = {}
    for name, description in MIXES.items():
        files = mix(name)
        archive, digest = package_bytes(files), hash_files(files)
        python = [data for path, data in files.items() if path.endswith(".py")]
        contents = b"".join(files.values())

        def floor(archive: bytes = archive, python: list[bytes] = python, contents: bytes = contents) -> None:
            zlib.decompress(archive, wbits=31)
            hashlib.sha256(contents).digest()
            parse_all(python)

        times = medians(
            alternate(
                {"floor": floor, "screen": lambda archive=archive, digest=digest: screen(archive, digest)},  # type: ignore[misc]
                ROUNDS if len(python) < 50 else 1,
                warm=len(python) < 50,
            )
        )
        path = folder / f"{name}.tar.gz"
        path.write_bytes(archive)
        code = "from pathlib import Path\nfrom benchmarks.intake_screen import screen\n"
        full = peak_mib(f"{code}screen(Path({str(path)!r}).read_bytes(), {digest!r})")
        rows[name] = {
            "content": description,
            "files": len(files),
            "bytes": len(contents),
            "python_bytes": sum(map(len, python)),
            **times,
            "per_second_of_processor": round(1 / times["screen"]["processor_seconds"], 1),
            "per_second_at_best": round(1 / times["screen"]["best_processor_seconds"], 1),
            "floor_per_second_at_best": round(1 / times["floor"]["best_processor_seconds"], 1),
            "ratio_to_floor": round(times["screen"]["processor_seconds"] / times["floor"]["processor_seconds"], 2),
            "peak_mib_above_bare": round(full - bare, 1),
            "load": round(os.getloadavg()[0], 2),
        }
    return {"goal_per_second": 10, "goal_peak_mib_above_bare": 64, "mixes": rows}


def peak_mib(code: str) -> float:
    """Return the peak resident MiB of a fresh interpreter that runs `code`."""
    # ru_maxrss would count this process's pages from before the exec.
    report = f"{code}\nprint(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True, cwd=ROOT)
    return int(done.stdout) / 1024


def python_scan() -> dict[str, Any]:
    """Scan 8 MiB of Python as screening does (parse, bounds, policy), by one process and by all; and parse it alone."""
    kinds = {
        "the kernels of examples/, 30 KB each": (example_source(30_000), 280),
        "documented kernels, 30 KB each": (python_source(30_000), 280),
        "dense code, 30 KB each": (python_source(30_000, documented=False), 280),
        "dense code, 400 KB each": (python_source(400_000, documented=False), 21),
        "dense code, every file read node by node": (python_source(30_000, documented=False, loud=True), 280),
    }
    rows = {}
    for name, (source, count) in kinds.items():
        files = {"manifest.toml": b""} | {f"part{index}.py": source for index in range(count)}
        fewer = dict(list(files.items())[: 1 + count // 4])  # one core takes long enough over a quarter
        sources = [source] * (len(fewer) - 1)
        refused_files(dict(list(files.items())[:2]))  # fills caches
        one = alternate(
            {"parse": lambda s=sources: parse_all(s), "scan": lambda f=fewer: refused_files(f)},  # type: ignore[misc]
            3,
            warm=False,
        )
        every = alternate({"scan by all": lambda f=files: refused_files(f, may_fork=True)}, 2, warm=False)  # type: ignore[misc]
        times = medians(one | every)
        scale = 8 * MIB / (len(source) * len(sources))
        parsed = parse_python("part0.py", source)
        whole = 8 * MIB / (len(source) * count)
        walls = {row: round(times[row]["wall_seconds"] * scale, 2) for row in one}
        walls |= {row: round(times[row]["wall_seconds"] * whole, 2) for row in every}
        rows[name] = {
            "quiet": quiet_module("part0.py", parsed, LocalModules(["part0.py"]), INTAKE) is not None,
            "parse_seconds_8_mib": round(times["parse"]["processor_seconds"] * scale, 2),
            "scan_seconds_8_mib": round(times["scan"]["processor_seconds"] * scale, 2),
            "wall_seconds_8_mib": walls,
            "ratio_to_parse": round(times["scan"]["processor_seconds"] / times["parse"]["processor_seconds"], 2),
            "wall_ratio_to_parse_by_all": round(walls["scan by all"] / walls["parse"], 2),
            "load": round(os.getloadavg()[0], 2),
        }
    return {"goal_seconds_8_mib": 1.5, "processes_by_all": min(len(os.sched_getaffinity(0)), 8), "kinds": rows}


def refused_files(files: dict[str, bytes], *, may_fork: bool = False) -> None:
    """Screen a file table that has to be refused after everything in it was read."""
    with contextlib.suppress(IntakeError):
        screen_files(files, may_fork=may_fork)


def content_hash(folder: Path) -> dict[str, Any]:
    """Hash the same files in memory, from disk, with hashlib alone, and with one `sha256sum` process."""
    files = mix("tables")
    tree = folder / "tree"
    for name, content in files.items():
        target = tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    names = [str(tree / name) for name in files]
    joined = folder / "joined"
    joined.write_bytes(b"".join(files.values()))

    def command(paths: list[str]) -> None:
        subprocess.run(["sha256sum", *paths], check=True, stdout=subprocess.DEVNULL)

    contents = joined.read_bytes()
    times = medians(
        alternate(
            {
                "hash_files": lambda: hash_files(files),
                "hash_tree": lambda: hash_tree(tree),
                "hashlib over the joined bytes": lambda: hashlib.sha256(contents).hexdigest(),
                "sha256sum of the files": lambda: command(names),
                "sha256sum of one joined file": lambda: command([str(joined)]),
            },
            25,
        )
    )
    floor = times["sha256sum of the files"]["wall_seconds"]
    ratios = {name: round(times[name]["wall_seconds"] / floor, 2) for name in ("hash_files", "hash_tree")}
    plain = times["hashlib over the joined bytes"]["wall_seconds"]
    to_hashlib = {name: round(times[name]["wall_seconds"] / plain, 2) for name in ratios}
    return {
        "goal_ratio_to_sha256sum": 1.3,
        "bytes": len(contents),
        **times,
        "ratio_to_sha256sum": ratios,
        "ratio_to_hashlib": to_hashlib,
    }


def scan_command(folder: Path) -> dict[str, Any]:
    """Run `cacheon scan` on a small bundle as a whole process, beside starting Python alone."""
    if not COMMAND.exists():
        raise NotHere(f"there is no {COMMAND.name} beside this interpreter")
    settings = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "pycache")}
    settings.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed command has its byte code at hand
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "cacheon scan": [str(COMMAND), "scan", "examples/silu_fast"],
    }

    def run(command: list[str]) -> None:
        subprocess.run(command, check=True, cwd=ROOT, env=settings, capture_output=True)

    times = medians(alternate({name: lambda c=command: run(c) for name, command in commands.items()}, 15))  # type: ignore[misc]
    return {"goal_seconds": 0.25, **times}


SECTIONS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "valid_bundle": valid_bundles,
    "python_scan": lambda _: python_scan(),
    "content_hash": content_hash,
    "scan_command": scan_command,
}


def main(wanted: list[str], result: Path) -> int:
    """Measure what is `wanted` and write it beside what was known of the rest; return 1 when something failed."""
    known = json.loads(result.read_text("utf-8")) if result.exists() else {}
    known["what"] = "medians of processor time on one core; floors alternate with what they stand beside"
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        for section in wanted:
            start = environment()
            try:
                row = SECTIONS[section](Path(name))
            except NotHere as reason:
                print(f"{section}: not measured, {reason}", file=sys.stderr)
                continue
            except Exception:  # noqa: BLE001 - the other sections can be measured all the same
                traceback.print_exc()
                failed = 1
                continue
            known[section] = {**row, "environment": start}
            print(json.dumps({section: known[section]}, indent=2), flush=True)
            result.write_text(json.dumps(known, indent=2) + "\n", "utf-8")
    return failed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--result", type=Path, default=RESULT, help="the file to write")
    arguments = parser.parse_args()
    if unknown := set(arguments.sections) - SECTIONS.keys():
        parser.error(f"there is no section {', '.join(sorted(unknown))}")
    sys.exit(main(arguments.sections or list(SECTIONS), arguments.result))
