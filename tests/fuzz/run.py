"""Fuzz every parser for a bounded time: `python -m tests.fuzz.run`, or `make fuzz`.

The seed is printed and can be given again. An input that fails is written to `--out`; read it again with
`--target NAME --replay FILE`, mend the fault, and put the input into `tests/fuzz/test_found.py`.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from pathlib import Path

from tests.fuzz.engine import Report, Target, digest, fuzz, run_one
from tests.fuzz.targets import TARGETS


def main(arguments: list[str] | None = None) -> int:
    """Run all targets, or one, and say what happened; 1 when an input failed."""
    options = _options(arguments)
    chosen = [target for target in TARGETS if options.target in ("", target.name)]
    if not chosen:
        print(f"there is no target {options.target!r}; there are: {', '.join(target.name for target in TARGETS)}")
        return 2
    if options.replay:
        return _replay(chosen[0], options.replay)
    print(f"seed {options.seed}, {options.seconds:.0f} s for {len(chosen)} targets", flush=True)
    failures = 0
    for target in chosen:
        report = fuzz(target, options.seed, seconds=options.seconds / len(chosen))
        failures += len(report.failures)
        print(_line(report), flush=True)
        for data, what in report.failures.items():
            path = options.out / f"{target.name}-{digest(data)}"
            options.out.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            print(f"  FAILED {what}\n    python -m tests.fuzz.run --target {target.name} --replay {path}", flush=True)
    print("nothing but refusals came out" if not failures else f"{failures} inputs failed")
    return 1 if failures else 0


def _line(report: Report) -> str:
    return (
        f"{report.target:10} {report.executions:8} inputs, {report.accepted:7} accepted, "
        f"{len(report.shapes):4} different answers, slowest {report.slowest * 1e3:6.0f} ms"
    )


def _replay(target: Target, path: Path) -> int:
    shape, failure = run_one(target, path.read_bytes())
    print(f"{target.name}: {failure or shape or 'accepted'}")
    return 1 if failure else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Fuzz every parser of hostile bytes for a bounded time.")
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("FUZZ_SECONDS", "60")), help="in all")
    parser.add_argument("--seed", default=secrets.token_hex(4), help="any text; printed, so that a run can be repeated")
    parser.add_argument("--target", default="", help="only this parser")
    parser.add_argument("--out", type=Path, default=Path(".fuzz"), help="folder for inputs that fail")
    parser.add_argument("--replay", type=Path, help="read this one input again")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
