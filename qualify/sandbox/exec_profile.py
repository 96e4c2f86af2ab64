"""Running a compiler, or any program that must start programs, under the same policy as everything else.

Invariants
1. The command sees the policy's read-only binds, the system, and one writable folder, /scratch, of bounded size.
2. No tool runs before the profile was proved on this host: a program of ours reads from inside what the kernel says.
3. What comes back is copied by us, from outside, after everything of the run is dead: regular files only, no links
   followed, and only from a tool that ended well.
4. Every ending is the same `Outcome` that other runs have. Bubblewrap writes a signal as 128 plus its number, so a tool
   that exits with such a status is reported as if it had been killed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from qualify.sandbox.client import SandboxRefused, Zygote
from qualify.sandbox.outcome import Outcome, OutcomeKind
from qualify.sandbox.policy import SandboxPolicy
from qualify.sandbox.root_filesystem import SCRATCH
from qualify.sandbox.tool_output import collect
from qualify.sandbox.tool_stage import OUTPUT

__all__ = ["OUTPUT", "ExecProfile", "run_tool"]

_PROOF = """
import json, os
status = dict(line.rstrip("\\n").split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
print(json.dumps({
    "capabilities": [int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
    "no_new_privs": status["NoNewPrivs"], "seccomp": status["Seccomp"], "pid": os.getpid(),
    "identity": [*os.getresuid(), *os.getresgid()], "read_only": bool(os.statvfs("/").f_flag & os.ST_RDONLY),
    "interfaces": [line.split(":")[0].strip() for line in open("/proc/self/net/dev").readlines()[2:]],
    "load": open("/proc/loadavg").read() if os.access("/proc/loadavg", os.R_OK) else "",
    "writable": sorted(place for _, _, _, _, place, options, *_ in map(str.split, open("/proc/self/mountinfo"))
                       if "rw" in options.split(",") and not place.startswith(("/proc", "/dev"))),
    "descriptors": [n for n in range(3, 64) if os.path.exists(f"/proc/self/fd/{n}")],
}))
"""
_PROOF_POLICY = SandboxPolicy(memory_bytes=1 << 30, cpu_seconds=20, wall_seconds=60.0, processes=4)


class ExecProfile:
    """Runs tools through one fork server, which needs no preload and stays the caller's."""

    def __init__(self, fork_server: Zygote) -> None:
        self._fork_server = fork_server
        self._proved: set[tuple[str, ...]] = set()

    def run(
        self,
        command: Sequence[str],
        policy: SandboxPolicy,
        *,
        inputs: Sequence[tuple[str, str]] = (),
        output: Path | None = None,
    ) -> Outcome:
        """Run `command` (an absolute path inside, then its arguments) and return how it ended.

        `inputs` are read-only binds (absolute host path, absolute inside path) on top of the policy's; a root node's
        tools read them as an ordinary user does. The working folder is /scratch; what a tool that ended well has left
        in `OUTPUT` is copied into the existing folder `output`. Blocks; belongs on no event loop.

        Raises `SandboxRefused` naming the missing layer ("bubblewrap" where the program is not installed), `HostError`
        SANDBOX_ZYGOTE_GONE or SANDBOX_OUTPUT_UNWRITABLE.
        """
        policy = replace(policy, readonly=(*policy.readonly, *inputs))
        self._prove(policy)
        return self._run(command, policy, output)

    def _run(self, command: Sequence[str], policy: SandboxPolicy, output: Path | None) -> Outcome:
        process, scratch = self._fork_server.start_tool(command, policy)
        try:
            with process:
                outcome = process.wait()
            if outcome.ok and output is not None:
                collect(scratch, output)
            return outcome
        finally:
            os.close(scratch)

    def _prove(self, policy: SandboxPolicy) -> None:
        """Run a program of our own once for each set of waivers and compare what it sees with what it must see."""
        if policy.waive in self._proved:
            return
        command = (sys.executable, "-I", "-S", "-c", _PROOF)
        outcome = self._run(command, replace(_PROOF_POLICY, waive=policy.waive), None)
        if not outcome.ok:
            raise _refused("setup", f"the program that proves the profile {outcome.describe()}: {_last_line(outcome)}")
        seen = json.loads(outcome.log)
        for layer, holds in _judge(seen).items():
            if not holds:
                raise _refused(layer, f"a program inside bubblewrap sees {seen}")
        self._proved.add(policy.waive)


def run_tool(
    fork_server: Zygote,
    command: Sequence[str],
    policy: SandboxPolicy,
    *,
    inputs: Sequence[tuple[str, str]] = (),
    output: Path | None = None,
) -> Outcome:
    """Prove the profile and run one tool; for several, keep an `ExecProfile`, which proves it once."""
    return ExecProfile(fork_server).run(command, policy, inputs=inputs, output=output)


def _judge(seen: dict[str, object]) -> dict[str, bool]:
    """Return {layer: whether it holds}."""
    return {
        "caps": seen["capabilities"] == [0] * 5,
        "no_new_privs": seen["no_new_privs"] == "1",
        "seccomp": seen["seccomp"] == "2",
        "pidns": isinstance(seen["pid"], int) and 1 < seen["pid"] < 8,
        "userns": len(set(_list(seen["identity"]))) == 1 and 0 not in _list(seen["identity"]),
        "mount": seen["read_only"] is True and _list(seen["writable"]) == [SCRATCH],
        "netns": set(_list(seen["interfaces"])) <= {"lo"},
        "proc": seen["load"] == "",
        "verify": _list(seen["descriptors"]) in ([], [3]),  # 3 is the listing's own
    }


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _last_line(outcome: Outcome) -> str:
    return outcome.log.decode("utf-8", "replace").strip().rpartition("\n")[2][:300]


def _refused(layer: str, detail: str) -> SandboxRefused:
    return SandboxRefused(Outcome(OutcomeKind.REFUSED, layer=layer, detail=detail))
