"""A cgroup v2 leaf for each run, where the host delegates a subtree.

Invariants
1. Absence is normal: `find_parent` returns None and the run reports no "cgroup" layer. Only the GPU profile refuses.
2. A leaf holds one run and is removed with it; what is left in it is killed first.
   A child is born in it where the kernel can do that: moving one waits for all processors, some ten milliseconds.
3. Leaves are named after their fork server. Those of one that is gone are removed when the next one starts.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from qualify.sandbox import syscalls
from qualify.sandbox.layers import layer
from qualify.sandbox.policy import SandboxPolicy

_CONTROLLERS = frozenset({"memory", "pids"})
_PREFIX = "cacheon-"
_REMOVE_ATTEMPTS = 50
_REMOVE_PAUSE_SECONDS = 0.002


@dataclass(frozen=True, slots=True)
class Leaf:
    """One cgroup made for one run."""

    path: str

    def fork(self) -> int:
        """Fork a child that is born in here; return what fork does. Where that is impossible the child is outside."""
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return syscalls.fork_into_cgroup(folder)
        except OSError:  # an older kernel, or a container that forbids the call
            return os.fork()
        finally:
            os.close(folder)

    def join(self) -> None:
        """Move the calling process in, unless it is here already. Raises `LayerMissing("cgroup")`."""
        if not self.holds(os.getpid()):
            with layer("cgroup"):
                _write(self.path, "cgroup.procs", "0")

    def holds(self, pid: int) -> bool:
        """Say whether the process is in here."""
        with layer("cgroup"):
            return str(pid) in _words(self.path, "cgroup.procs")

    def killed_for_memory(self) -> bool:
        """Say whether the kernel killed anything in here for memory."""
        return self._count("memory.events", "oom_kill") > 0

    def refused_a_task(self) -> bool:
        """Say whether the kernel refused to start a task in here because there were too many."""
        return self._count("pids.events", "max") > 0

    def _count(self, file_name: str, event: str) -> int:
        try:
            with open(os.path.join(self.path, file_name), encoding="ascii") as file:
                return int(dict(line.split() for line in file).get(event, "0"))
        except OSError:
            return 0

    def remove(self) -> None:
        """Kill what is left and remove the leaf; a leaf that stays busy is left for the next start to see."""
        try:
            _write(self.path, "cgroup.kill", "1")
        except OSError:
            return
        for _ in range(_REMOVE_ATTEMPTS):
            try:
                os.rmdir(self.path)
                return
            except OSError:
                time.sleep(_REMOVE_PAUSE_SECONDS)


def find_parent() -> str | None:
    """Return a cgroup v2 folder in which leaves with memory and task limits can be made, or None."""
    own = _own_folder()
    if own is None:
        return None
    mount, folder = own
    for candidate in (folder, os.path.dirname(folder)):
        if len(candidate) >= len(mount) and _offers_limits(candidate):
            return candidate
    return None


def sweep(parent: str) -> None:
    """Remove the leaves of fork servers that are gone; a leaf that stays busy stays."""
    for name in os.listdir(parent):
        owner = name.removeprefix(_PREFIX).partition("-")[0]
        if name.startswith(_PREFIX) and owner.isdigit() and not os.path.exists(f"/proc/{owner}"):
            Leaf(os.path.join(parent, name)).remove()


def make_leaf(parent: str, sequence: int, policy: SandboxPolicy, own_tasks: int) -> Leaf:
    """Make a leaf with the policy's limits, for `own_tasks` more tasks than those. Raises `LayerMissing("cgroup")`."""
    leaf = Leaf(os.path.join(parent, f"{_PREFIX}{os.getpid()}-{sequence}"))
    with layer("cgroup"):
        os.mkdir(leaf.path)
        _write(leaf.path, "memory.max", str(policy.ranks * policy.memory_bytes + policy.scratch_bytes))
        _write(leaf.path, "memory.oom.group", "1")
        _write(leaf.path, "pids.max", str(policy.processes + own_tasks))
        if os.path.exists(os.path.join(leaf.path, "memory.swap.max")):
            _write(leaf.path, "memory.swap.max", "0")
    return leaf


def _own_folder() -> tuple[str, str] | None:
    with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
        points = [fields[4] for fields in map(str.split, mounts) if "cgroup2" in fields[fields.index("-") :]]
    with open("/proc/self/cgroup", encoding="utf-8") as groups:
        paths = [line.rstrip("\n")[3:] for line in groups if line.startswith("0::")]
    if not points or not paths:
        return None
    return points[0], os.path.normpath(points[0] + paths[0])


def _offers_limits(folder: str) -> bool:
    if not os.access(folder, os.W_OK):
        return False
    try:
        if not _words(folder, "cgroup.controllers") >= _CONTROLLERS:
            return False
        if not _words(folder, "cgroup.subtree_control") >= _CONTROLLERS:
            _write(folder, "cgroup.subtree_control", "+memory +pids")
        return _words(folder, "cgroup.subtree_control") >= _CONTROLLERS
    except OSError:
        return False


def _words(folder: str, name: str) -> set[str]:
    with open(os.path.join(folder, name), encoding="ascii") as file:
        return set(file.read().split())


def _write(folder: str, name: str, text: str) -> None:
    with open(os.path.join(folder, name), "w", encoding="ascii") as file:
        file.write(text)
