"""`make soak`: the whole soak, its table, and `benchmarks/results/soak.json`."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import msgspec

from tests.soak.driver import Soak
from tests.soak.plan import FULL, SHORT, SoakPlan
from tests.soak.verdict import SoakReport, table

_RESULT = Path(__file__).parents[2] / "benchmarks" / "results" / "soak.json"


def chosen_plan(arguments: argparse.Namespace) -> SoakPlan:
    """Return the plan of the command line; shorter runs keep the proportions."""
    plan = SHORT if arguments.short else FULL
    if arguments.blocks:
        share = arguments.blocks / plan.blocks
        plan = msgspec.structs.replace(
            plan, blocks=arguments.blocks, reveals=int(plan.reveals * share),
            node_kills=round(plan.node_kills * share), chain_restarts=round(plan.chain_restarts * share),
        )
    return msgspec.structs.replace(plan, seed=arguments.seed)


async def soak(plan: SoakPlan, folder: Path) -> SoakReport:
    """Run one soak in `folder`."""
    return await Soak(plan, folder).run()


def environment() -> dict[str, object]:
    """Return what the numbers depend on."""
    return {
        "python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1), "bittensor": version("bittensor"),
    }


def main() -> int:
    """Run, print, write; exit code 1 when something was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=0, help="length; 0 = 10,000")
    parser.add_argument("--short", action="store_true", help="the length that `make test` runs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder for chain, store and logs instead of a temporary one")
    arguments = parser.parse_args()
    plan, started = chosen_plan(arguments), time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        report = asyncio.run(soak(plan, folder))
    seconds = round(time.monotonic() - started, 1)
    sys.stdout.write(f"{table(report)}\nseconds             {seconds}\n")
    if not arguments.short:
        document = {
            "plan": msgspec.to_builtins(plan), "report": msgspec.to_builtins(report), "seconds": seconds,
            "environment": environment(),
        }
        _RESULT.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
    return 1 if report.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
