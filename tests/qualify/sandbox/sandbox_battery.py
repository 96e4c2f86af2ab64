"""The attack battery: run every attack in a real sandbox and collect what happened.

Importable by the tests, and a program: `PYTHONPATH=ROOT python sandbox_battery.py [--as-user UID] --folder DIR` prints
the results as JSON. Started by root with --as-user it becomes that ordinary user first, in a mount namespace in which
the interpreter and the checkout can be reached even when they lie in root's private home.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import sandbox_attacks

from qualify.sandbox import syscalls
from qualify.sandbox.client import Zygote
from qualify.sandbox.outcome import Outcome, OutcomeKind
from qualify.sandbox.policy import SandboxPolicy

HERE = Path(__file__).parent
ROOT = HERE.resolve().parents[2]


def without_host_paths(text: str) -> str:
    """Return a report without what only names this host: where the project and temporary files lie, its own cgroup."""
    text = text.replace(str(ROOT), "PROJECT")
    text = re.sub(r"/tmp/tmp[A-Za-z0-9_]+", "TEMPORARY", text)
    return re.sub(r"(/sys/fs/cgroup|\{')/[^'\"]*", r"\1/OWN", text)


def start_zygote(preload: Sequence[str] = ()) -> Zygote:
    """Start a fork server that knows the hostile entries."""
    return Zygote.start(
        ("sandbox_attacks", *preload),
        extra_entries=sandbox_attacks.ENTRIES,
        extra_python_path=[str(HERE)],
        ablation=True,
    )


@contextmanager
def targets(folder: Path, owner: int = -1) -> Iterator[dict[str, Any]]:
    """Put up what the attacks aim at: listeners, a wallet, another bundle, shared memory, a set-uid program.

    All of it belongs to this process, except that `owner` gets the wallet of an ordinary user's node.
    """
    files = {"wallet.json": 0o644, "private.json": 0o600, "bundle.py": 0o644, "id": 0o4755}
    for name, mode in files.items():
        (folder / name).write_bytes(b"secret" if name != "id" else Path("/usr/bin/id").read_bytes())
        (folder / name).chmod(mode)
    os.chown(folder / "wallet.json", owner, owner)
    name, socket_file = f"cacheon-test-{os.getpid()}", str(folder / "socket")
    with (
        socket.socket() as listener,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
        socket.socket(socket.AF_UNIX) as named,
    ):
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        abstract.bind("\0" + name)
        abstract.listen()
        datagrams.bind("\0" + name + "-datagrams")
        named.bind(socket_file)
        os.chmod(socket_file, 0o777)
        named.listen()
        with _shared_memory() as segment:
            yield {
                "port": listener.getsockname()[1],
                "abstract": name,
                "datagrams": name + "-datagrams",
                "socket": socket_file,
                "secret": str(folder / "wallet.json"),
                "private": str(folder / "private.json"),
                "bundle": str(folder / "bundle.py"),
                "set_uid": "/tools/id",
                "tools": str(folder),
                "home": os.path.expanduser("~"),
                "package": str(ROOT / "qualify"),
                "parent": os.getpid(),
                "host_name": os.uname().nodename,
                "segment": segment,
                "signal": int(signal.SIGKILL),
            }


@contextmanager
def _shared_memory() -> Iterator[int]:
    """Make a System V segment that everybody may read; yield its key. The next key is cleaned up as well."""
    key = 0x0CAC0000 | os.getpid() & 0xFFFE
    number = sandbox_attacks.raw(29, key, 4096, 0o1666)
    try:
        yield key
    finally:
        sandbox_attacks.raw(31, number, 0, 0)
        with suppress(FileNotFoundError):
            sandbox_attacks.raw(31, sandbox_attacks.raw(29, key + 1, 0, 0), 0, 0)


def policy_for(facts: dict[str, Any], **fields: Any) -> SandboxPolicy:
    """Return a policy that shows the set-uid program, read-only like every bind, at /tools."""
    return SandboxPolicy(readonly=((facts["tools"] + "/id", "/tools/id"),), **fields)


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


def run_battery(
    zygote: Zygote,
    facts: dict[str, Any],
    policy: SandboxPolicy,
    *,
    without: Iterable[str] = (),
    bombs: Iterable[str] = tuple(sandbox_attacks.BOMBS),
) -> dict[str, str]:
    """Return {attack: what happened}; a killed child reads "signal: N", a bomb that broke a limit "limit: KIND"."""
    names = [name for name in sandbox_attacks.BLOCKED if name not in set(without)]
    results, outcome = attack(zygote, facts, names, policy)
    results["(all of these survived)"] = outcome.describe()
    for name in sandbox_attacks.FATAL:
        said, outcome = attack(zygote, facts, [name], policy)
        results[name] = said.get(name, f"signal: {outcome.signal}")
    small = replace(policy, processes=8, scratch_bytes=8 << 20, file_bytes=4 << 20, memory_bytes=2 << 30)
    for name in bombs:
        said, outcome = attack(zygote, facts, [name], small)
        results[name] = of_bomb(said.get(name, ""), outcome)
    return results


def of_bomb(said: str, outcome: Outcome) -> str:
    """Return in one line how a bomb ended."""
    if outcome.kind in LIMITS:
        return f"limit: {outcome.kind}"
    reached = said.removeprefix("allowed: ")
    return f"blocked: bounded at {reached}" if reached.isdigit() and int(reached) < ENDLESS else said or str(outcome)


LIMITS = {OutcomeKind.PROCESS_LIMIT, OutcomeKind.MEMORY_LIMIT, OutcomeKind.DISK_LIMIT}
ENDLESS = 3000


def wait_until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait for something that happens soon; fail when it does not."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "condition never held"
        time.sleep(0.005)


def alive(pid: int) -> bool:
    """Say whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def descendants(pid: int) -> list[int]:
    """Return the pids of all processes below one."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *descendants(int(child))]
    return found


def footprint(zygote: Zygote) -> tuple[int, int, int, list[int]]:
    """Return descriptors here and there, mounts, and processes below the fork server."""
    mounts = len(Path("/proc/self/mountinfo").read_text().splitlines())
    ours, theirs = (len(os.listdir(f"/proc/{pid}/fd")) for pid in (os.getpid(), zygote.pid))
    return ours, theirs, mounts, descendants(zygote.pid)


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
        print(json.dumps({"uid": os.getuid(), "results": run_battery(zygote, facts, policy_for(facts))}))


if __name__ == "__main__":
    _main()
