"""What a compiler, an honest and a hostile one, does inside bubblewrap.

Importable by the tests, and a program: `PYTHONPATH=ROOT python sandbox_tools.py [--as-user UID] --folder DIR` prints
{"uid": ..., "compiled": outcome, "attacks": {attack: what happened}}. The hostile compiler is `sandbox_attacks` itself,
run by an interpreter that bubblewrap starts.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import sandbox_attacks
import sandbox_battery

from qualify.sandbox.exec_profile import OUTPUT, ExecProfile
from qualify.sandbox.outcome import Outcome
from qualify.sandbox.policy import SandboxPolicy

HERE = Path(__file__).parent
COMPILER = "/usr/bin/gcc"
POLICY = SandboxPolicy(wall_seconds=30.0, processes=16, scratch_bytes=16 << 20, file_bytes=8 << 20)
# A tool may start programs and signal what it started; its pid 1 is not reached by signals from inside.
OPEN_TO_TOOLS = (
    *("fork", "run a shell", "kill pid 1", "kill everything", "signal a thread of pid 1"),
    # Bubblewrap has no path rules: the root that can be listed is the minimal one, a home shows what is bound in it.
    *("list the root", "list the home"),
    # Bubblewrap's pid 1 holds no more rights than the tool and nothing that the tool was not given.
    *("read the environment of pid 1", "read the memory of pid 1", "list the root of pid 1"),
    "list the descriptors of pid 1",
)
# Raw forks would leave two interpreters that run the attacks.
NOT_RUN = ("vfork", "clone a process")
_RUN = """
import sys
sys.path.insert(0, "/attacks")
import sandbox_attacks
sandbox_attacks.main((1,), sys.argv[1].encode())
"""


def compile_c(profile: ExecProfile, folder: Path) -> tuple[Outcome, bytes]:
    """Compile one C file; return the outcome and the object file."""
    (folder / "in").mkdir(exist_ok=True)
    (folder / "out").mkdir(exist_ok=True)
    (folder / "in" / "unit.c").write_text('#include <stdio.h>\nint twice(int x) { printf(""); return 2 * x; }\n')
    command = (COMPILER, "-O1", "-c", "/in/unit.c", "-o", f"{OUTPUT}/unit.o")
    outcome = profile.run(command, POLICY, inputs=((str(folder / "in"), "/in"),), output=folder / "out")
    found = folder / "out" / "unit.o"
    return outcome, found.read_bytes() if found.exists() else b""


def hostile(profile: ExecProfile, facts: dict[str, Any], names: Iterable[str]) -> tuple[dict[str, str], Outcome]:
    """Run attacks in one interpreter; return what it reported and how it ended."""
    request = json.dumps({**facts, "attacks": list(names)})
    inputs = ((str(HERE / "sandbox_attacks.py"), "/attacks/sandbox_attacks.py"), (facts["tools"] + "/id", "/tools/id"))
    outcome = profile.run((sys.executable, "-I", "-S", "-c", _RUN, request), POLICY, inputs=inputs)
    text = outcome.log.decode()
    return (json.loads(text) if text.startswith("{") else {}), outcome


def hostile_battery(profile: ExecProfile, facts: dict[str, Any]) -> dict[str, str]:
    """Return {attack: what happened}; a killed tool reads "signal: N", a broken limit "limit: KIND"."""
    names = [name for name in sandbox_attacks.BLOCKED if name not in NOT_RUN]
    results, outcome = hostile(profile, facts, names)
    results["(all of these survived)"] = outcome.describe()
    for name in (*sandbox_attacks.FATAL, *sandbox_attacks.BOMBS):
        said, outcome = hostile(profile, facts, [name])
        results[name] = (
            sandbox_battery.of_bomb(said.get(name, ""), outcome)
            if name in sandbox_attacks.BOMBS
            else said.get(name, f"signal: {outcome.signal}")
        )
    return results


def main() -> None:
    """Compile, then attack."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--as-user", type=int, default=-1)
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    if options.as_user >= 0:
        sandbox_battery.become(options.as_user)
    with sandbox_battery.targets(options.folder) as facts, sandbox_battery.start_zygote() as zygote:
        profile = ExecProfile(zygote)
        outcome, compiled = compile_c(profile, options.folder)
        attacks = hostile_battery(profile, facts)
    said = {"uid": os.geteuid(), "compiled": outcome.describe(), "bytes": len(compiled), "attacks": attacks}
    print(json.dumps(said))


if __name__ == "__main__":
    main()
