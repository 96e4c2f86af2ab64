"""Run the hostile corpus and print it as a table: `python -m tests.hostile.run [--row ID ...] [--json]`.

Every line is one folder: `cheat succeeded`, `detected`, `too slow` (all checks held, and nothing was gained) or
`incomplete` (it ended in another way than expected). Exit status 1 when a cheat succeeded, a row is incomplete or a
control is wrong. Progress goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from qualify.arm_server import start_arm_server
from qualify.intake_runner import IntakeRunner
from tests.hostile.corpus import NAMES, Result, Stand, expected_of, run_row


@contextmanager
def stand() -> Iterator[Stand]:
    """Start what a run of the corpus needs."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        IntakeRunner() as intake,
        start_arm_server() as fork_server,
    ):
        yield Stand(Path(scratch), intake, fork_server)


def main(arguments: Sequence[str]) -> int:
    """Run the chosen rows, or all, and return the exit status."""
    parser = argparse.ArgumentParser(prog="tests.hostile.run", description="Run the hostile corpus.")
    parser.add_argument("--row", action="append", default=[], help="a row of the catalogue, or a folder; repeatable")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of the table")
    options = parser.parse_args(arguments)
    names = [name for name in NAMES if not options.row or chosen(name, options.row)]
    if not names:
        parser.error(f"no folder covers {' '.join(options.row)}")
    results = []
    with stand() as made:
        for number, name in enumerate(names, 1):
            sys.stderr.write(f"[{number}/{len(names)}] {name}\n")
            results.append(run_row(name, made))
            if not options.json:
                sys.stdout.write(line_of(results[-1]) + "\n")
                sys.stdout.flush()
    sys.stdout.write(document_of(results) if options.json else summary_of(results) + "\n")
    return 0 if all(result.ok for result in results) else 1


def chosen(name: str, wanted: Sequence[str]) -> bool:
    """Say whether folder `name` is asked for, by its name, its number or a row it covers."""
    return any(one in (name, name.partition("_")[0], *expected_of(name).rows) for one in wanted)


def line_of(result: Result) -> str:
    """Return the table line of one folder."""
    rows = ",".join(result.expected.rows)
    scan = "scan refuses" if result.intake else "scan passes"
    return f"{result.name:32} {rows:12} {scan:13} {result.status:16} {result.code:22} {result.detail[:70]}"


def summary_of(results: Sequence[Result]) -> str:
    """Return the last line of the table."""
    counts = Counter(result.status for result in results)
    return ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))


def document_of(results: Sequence[Result]) -> str:
    """Return all results as JSON."""
    rows = [
        {
            "name": result.name,
            "rows": list(result.expected.rows),
            "status": result.status,
            "ok": result.ok,
            "intake": list(result.intake),
            "code": result.code,
            "detail": result.detail,
        }
        for result in results
    ]
    counts = Counter(result.status for result in results)
    return json.dumps({"counts": dict(sorted(counts.items())), "rows": rows}, indent=1) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
