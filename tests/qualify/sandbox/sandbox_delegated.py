"""Runs bombs in real cgroup v2 leaves and says how they ended, as root or as an ordinary user with a delegated subtree.

`PYTHONPATH=ROOT python sandbox_delegated.py [--as-user UID]` prints one JSON object. Started by root with --as-user it
makes a subtree, hands it to that user, moves into a folder of it and becomes the user, as a service manager would.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import sandbox_battery

from qualify.sandbox import cgroup
from qualify.sandbox.client import Zygote
from qualify.sandbox.policy import SandboxPolicy

MIB = 1 << 20
SMALL = SandboxPolicy(
    memory_bytes=256 * MIB, scratch_bytes=8 * MIB, processes=8, file_bytes=2048 * MIB, wall_seconds=60.0
)

ROOMY = replace(SMALL, memory_bytes=2048 * MIB)  # each thread reserves 72 MiB of address space


@contextmanager
def delegated(uid: int) -> Iterator[None]:
    """Give `uid` a subtree of its own and live in it; remove it afterwards. Does nothing for a negative uid."""
    parent = cgroup.find_parent()
    if uid < 0 or parent is None:
        yield
        return
    folder = Path(parent) / f"delegated-{os.getpid()}"
    (folder / "service").mkdir(parents=True)
    for place in (folder, folder / "service"):
        for path in (place, *(place / name for name in ("cgroup.procs", "cgroup.subtree_control", "cgroup.threads"))):
            os.chown(path, uid, uid)
    child = os.fork()
    if child == 0:
        (folder / "service" / "cgroup.procs").write_text("0")
        yield
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    (folder / "service").rmdir()
    folder.rmdir()  # fails when a leaf was left behind
    raise SystemExit(os.waitstatus_to_exitcode(status))


def run(zygote: Zygote, entry: str, policy: SandboxPolicy, argument: bytes = b"") -> dict[str, Any]:
    """Run one entry, with a growing memory file as its first descriptor; return how it ended."""
    memory = os.memfd_create("passed")
    try:
        started = time.monotonic()
        with zygote.spawn(entry, policy, [memory], argument) as child:
            outcome = child.wait()
            seconds = time.monotonic() - started
        return {
            "kind": str(outcome.kind),
            "detail": outcome.detail,
            "seconds": round(seconds, 3),
            "cgroup": "cgroup" in outcome.layers,
        }
    finally:
        os.close(memory)


def leaves() -> list[str]:
    """Return the leaves that exist now."""
    parent = cgroup.find_parent()
    return sorted(name for name in os.listdir(parent) if name.startswith("cacheon-")) if parent else []


def main() -> None:
    """Run everything and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--as-user", type=int, default=-1)
    options = parser.parse_args()
    with delegated(options.as_user):
        if options.as_user >= 0:
            sandbox_battery.become(options.as_user)
        with sandbox_battery.start_zygote() as zygote:
            said = {
                "honest": run(zygote, "misbehave", SMALL, b"print"),
                "memory of a passed file": run(zygote, "fill_memory_file", SMALL),
                "threads": run(zygote, "thread_burst", ROOMY),
                "threads without the look": run(zygote, "thread_burst", ROOMY, b"quick"),
                "left behind": leaves(),
            }
        print(json.dumps({"uid": os.geteuid(), "parent": cgroup.find_parent(), "results": said}), flush=True)


if __name__ == "__main__":
    main()
