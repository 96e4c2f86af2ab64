"""The attack battery: run every attack in a real sandbox and collect what happened.

Importable by the tests, and a program: `PYTHONPATH=ROOT python sandbox_battery.py [--as-user UID] --folder DIR` prints
the results as JSON. Started by root with --as-user it becomes that ordinary user first, in a mount namespace in which
the interpreter and the checkout can be reached even when they lie in root's private home.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sandbox_attacks

from qualify.sandbox import syscalls
from qualify.sandbox.client import Zygote
from qualify.sandbox.outcome import Outcome
from qualify.sandbox.policy import SandboxPolicy

HERE = Path(__file__).parent
ROOT = HERE.parent.parent.parent


def start_zygote(preload: Sequence[str] = ()) -> Zygote:
    """Start a fork server that knows the hostile entries."""
    return Zygote.start(
        ("sandbox_attacks", *preload), extra_entries=sandbox_attacks.ENTRIES, extra_python_path=[str(HERE)]
    )


@contextmanager
def targets(folder: Path) -> Iterator[dict[str, Any]]:
    """Put up what the attacks aim at: a loopback listener, an abstract socket, a readable secret."""
    secret = folder / "wallet.json"
    secret.write_text("secret")
    secret.chmod(0o644)
    name = f"cacheon-test-{os.getpid()}"
    with socket.socket() as listener, socket.socket(socket.AF_UNIX) as abstract:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        abstract.bind("\0" + name)
        abstract.listen()
        yield {
            "port": listener.getsockname()[1],
            "abstract": name,
            "secret": str(secret),
            "home": os.path.expanduser("~"),
            "package": str(ROOT / "qualify"),
            "parent": os.getpid(),
        }


def attack(
    zygote: Zygote, facts: dict[str, Any], names: Iterable[str], policy: SandboxPolicy
) -> tuple[dict[str, str], Outcome]:
    """Run the named attacks in one child; return what it reported (empty when it was killed) and how it ended."""
    source, sink = os.pipe()
    try:
        request = json.dumps({**facts, "attacks": list(names)}).encode()
        with zygote.spawn("attack", policy, [sink], request) as child:
            os.close(sink)
            sink = -1
            outcome = child.wait()
        with os.fdopen(source, "rb", closefd=False) as report:
            data = report.read()
        return (json.loads(data) if data else {}), outcome
    finally:
        os.close(source)
        if sink >= 0:
            os.close(sink)


def run_battery(zygote: Zygote, facts: dict[str, Any], policy: SandboxPolicy) -> dict[str, str]:
    """Return {attack: what happened} for the blocked and the fatal ones; a killed child reads "signal: N"."""
    results, outcome = attack(zygote, facts, sandbox_attacks.BLOCKED, policy)
    results["(all blocked attacks survived)"] = outcome.describe()
    for name in sandbox_attacks.FATAL:
        said, outcome = attack(zygote, facts, [name], policy)
        results[name] = said.get(name, f"signal: {outcome.signal}")
    return results


def become(uid: int) -> None:
    """Turn this root process into an ordinary user that can still reach the interpreter and the checkout."""
    syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    kept = {
        os.path.realpath(path) for path in (sys.base_prefix, sys.prefix, str(ROOT), *sys.path) if os.path.isdir(path)
    }
    closed = {path: wall for path in kept if (wall := _first_closed(path))}
    syscalls.mount("tmpfs", "/mnt", "tmpfs", 0, "mode=755")
    for index, path in enumerate(sorted(closed)):
        os.mkdir(f"/mnt/{index}")
        syscalls.mount(path, f"/mnt/{index}", None, syscalls.MS_BIND | syscalls.MS_REC)
    for wall in set(closed.values()):
        syscalls.mount("tmpfs", wall, "tmpfs", 0, "mode=755")
    for index, path in enumerate(sorted(closed)):
        os.makedirs(path, exist_ok=True)
        syscalls.mount(f"/mnt/{index}", path, None, syscalls.MS_BIND | syscalls.MS_REC)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)


def _first_closed(path: str) -> str | None:
    """Return the highest folder above `path` that others may not pass through."""
    for folder in reversed(Path(path).parents):
        if not folder.stat().st_mode & stat.S_IXOTH:
            return str(folder)
    return None


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--as-user", type=int, default=-1)
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    if options.as_user >= 0:
        become(options.as_user)
    with targets(options.folder) as facts, start_zygote() as zygote:
        policy = SandboxPolicy()
        print(json.dumps({"uid": os.getuid(), "results": run_battery(zygote, facts, policy)}))


if __name__ == "__main__":
    _main()
