"""The battery with one layer left out at a time: what gets through, and what another layer stops.

`PYTHONPATH=ROOT python sandbox_ablation.py [--as-user UID] --folder DIR` prints one JSON object
{configuration: {attack: what happened}}. A configuration is the layers left out, joined by "+", or "none".

Every layer is left out alone, and once more together with Landlock and seccomp, which stand in front of most others.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import sandbox_attacks
import sandbox_battery

from qualify.sandbox.client import SandboxRefused, Zygote
from qualify.sandbox.layers import ABLATABLE, LAYERS
from qualify.sandbox.outcome import OutcomeKind
from qualify.sandbox.policy import SandboxPolicy

FRONT = ("landlock", "seccomp")
# Without the filter these two would leave a second process in the interpreter that runs the attacks.
NOT_WITHOUT_SECCOMP = ("vfork", "clone a process")
WITH_BOMBS = {"rlimits", "mount", "seccomp", "cgroup"}
READING = ("read the wallet", "read root's own wallet", "read another bundle", "read /etc/shadow", "list the home")


def configurations(*, as_root: bool, cgroup: bool) -> list[tuple[str, ...]]:
    """Return the sets of layers to leave out, the empty one first."""
    left_out = set() if as_root else {"uid"}
    left_out |= set() if cgroup else {"cgroup"}
    names = [name for name in LAYERS if name in ABLATABLE - left_out]
    alone = [(name,) for name in names]
    together = [(name, *FRONT) for name in names if name not in FRONT]
    deep: list[tuple[str, ...]] = [("uid", "mount", *FRONT)] if as_root else []
    return [(), *alone, FRONT, *together, *deep]


def run_matrix(zygote: Zygote, facts: dict[str, Any], layers: Iterable[tuple[str, ...]]) -> dict[str, dict[str, str]]:
    """Return {configuration: {attack: what happened}}; signals are only asked for, never sent."""
    return {"+".join(names) or "none": _run(zygote, {**facts, "signal": 0}, names) for names in layers}


def through(result: str) -> bool:
    """Say whether an attack got through."""
    return result.startswith("allowed")


def _run(zygote: Zygote, facts: dict[str, Any], names: tuple[str, ...]) -> dict[str, str]:
    policy = sandbox_battery.policy_for(facts, ablate=names)
    try:
        if {"uid", "mount"} <= set(names):  # root of the node in the host's own files: read, and nothing else
            return sandbox_battery.attack(zygote, facts, READING, policy)[0]
        without = NOT_WITHOUT_SECCOMP if "seccomp" in names else ()
        bombs = sandbox_attacks.BOMBS if WITH_BOMBS & set(names) or not names else ()
        results = sandbox_battery.run_battery(zygote, facts, policy, without=without, bombs=bombs)
        if facts["cgroup"] and bombs:
            results["fill passed memory beyond the limit"] = _fill_passed_memory(zygote, policy)
        return results
    except SandboxRefused as refusal:
        return {"(does not start)": f"{refusal.outcome.layer}: {refusal.outcome.detail}"}


def _fill_passed_memory(zygote: Zygote, policy: SandboxPolicy) -> str:
    """Grow a memory file that was passed in, which the limits of one process do not count."""
    memory = os.memfd_create("passed")
    try:
        small = replace(policy, memory_bytes=256 << 20, scratch_bytes=1 << 20, file_bytes=1 << 30)
        with zygote.spawn("fill_memory_file", small, [memory]) as child:
            outcome = child.wait()
        limit = outcome.kind is OutcomeKind.MEMORY_LIMIT
        return f"limit: {outcome.kind}" if limit else f"allowed: {os.fstat(memory).st_size} bytes"
    finally:
        os.close(memory)


def main() -> None:
    """Run the matrix and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--as-user", type=int, default=-1)
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    with sandbox_battery.targets(options.folder, owner=options.as_user) as facts:
        child = os.fork()  # the targets stay ours to clear away
        if child == 0:
            try:
                _attack_as(options.as_user, facts)
                os._exit(0)
            finally:
                os._exit(1)
        status = os.waitpid(child, 0)[1]
    sys.exit(os.waitstatus_to_exitcode(status))


def _attack_as(uid: int, facts: dict[str, Any]) -> None:
    if uid >= 0:
        sandbox_battery.become(uid)
    with sandbox_battery.start_zygote() as zygote:
        cgroup = _has_cgroup(zygote)
        layers = configurations(as_root=os.geteuid() == 0, cgroup=cgroup)
        results = run_matrix(zygote, {**facts, "cgroup": cgroup}, layers)
    print(json.dumps({"uid": os.geteuid(), "cgroup": cgroup, "results": results}), flush=True)


def _has_cgroup(zygote: Zygote) -> bool:
    with zygote.spawn("misbehave", SandboxPolicy(), argument=b"print") as child:
        child.wait()
        return "cgroup" in child.layers


if __name__ == "__main__":
    main()
