"""Limits that end no process by themselves, seen from outside: tasks, scratch space, time and memory of a whole tree.

Invariants
1. Everything here is read from the kernel by the trusted side; nothing the child says is used.
2. The bounds hold without it: `Watch` only turns a breach into a typed ending, within `LOOK_SECONDS` and a kill.
   Where no cgroup counts, a breach that is over before the next look is bounded but goes unnamed.
3. A process that disappears while it is looked at counts as not being there.
"""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass

from qualify.sandbox.cgroup import Leaf
from qualify.sandbox.outcome import OutcomeKind
from qualify.sandbox.policy import SandboxPolicy
from qualify.sandbox.root_filesystem import scratch_overflow

LOOK_SECONDS = 0.2
_TICKS = os.sysconf("SC_CLK_TCK")
_CPU_FIELDS = slice(11, 15)  # utime, stime, cutime, cstime, counted from the state that follows the name
_RESIDENT_FIELD = 21
_STAT = bytearray(1024)  # wiped after use: the name of a process is its own, and later children inherit this memory
Breach = tuple[OutcomeKind, str]


@dataclass(frozen=True, slots=True)
class Tree:
    """All processes below one: how many tasks they have, and what they use together."""

    tasks: int
    cpu_seconds: float
    resident_bytes: int


@dataclass(slots=True)
class Watch:
    """What is known of one run from outside. `many` says that the run may start processes (a tool)."""

    policy: SandboxPolicy
    leaf: Leaf | None
    many: bool = False
    scratch: int = -1
    cpu_ns: int = 0

    def breach(self, init_pid: int) -> Breach | None:
        """Return the limit that the running tree below `init_pid` has broken, or None."""
        lasting = self.lasting_breach()
        if lasting is not None:
            return lasting
        tree = tree_below(init_pid)
        self.cpu_ns = max(self.cpu_ns, round(tree.cpu_seconds * 1e9))
        if tree.tasks > self.policy.processes:
            return self._too_many_tasks()
        if tree.cpu_seconds > self.policy.cpu_seconds * self.policy.ranks:  # a child may be deaf to SIGXCPU
            return self.too_much_cpu()
        if self.many and self.leaf is None and tree.resident_bytes > self.policy.memory_bytes:
            detail = f"the processes together use more than {self.policy.memory_bytes} bytes"
            return OutcomeKind.MEMORY_LIMIT, detail
        return None

    def lasting_breach(self) -> Breach | None:
        """Return the limit whose breach can still be seen when the run is over, or None."""
        if self.leaf is not None and self.leaf.refused_a_task():
            return self._too_many_tasks()
        overflow = scratch_overflow(self.scratch, self.policy) if self.scratch >= 0 else ""
        return (OutcomeKind.DISK_LIMIT, overflow) if overflow else None

    def too_much_cpu(self) -> Breach:
        """Return the breach of the CPU limit."""
        return OutcomeKind.CPU_LIMIT, f"used more than {self.policy.cpu_seconds} s of CPU time"

    def close(self) -> None:
        """Let go of the view of /scratch."""
        if self.scratch >= 0:
            os.close(self.scratch)
            self.scratch = -1

    def _too_many_tasks(self) -> Breach:
        return OutcomeKind.PROCESS_LIMIT, f"started more than {self.policy.processes} tasks"


def tree_below(pid: int) -> Tree:
    """Return what the descendants of `pid` amount to, without itself, except for the time of those it has reaped."""
    tasks, ticks, pages = 0, sum(_numbers(pid, _CPU_FIELDS)[2:]), 0
    waiting = _children(pid)
    while waiting:
        child = waiting.pop()
        fields = _numbers(child, slice(11, _RESIDENT_FIELD + 1))
        if fields:
            tasks += len(_listing(f"/proc/{child}/task"))
            ticks += sum(fields[:4])
            pages += fields[-1]
            waiting += _children(child)
    return Tree(tasks, ticks / _TICKS, pages * resource.getpagesize())


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in _listing(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                found += map(int, file.read().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def _numbers(pid: int, which: slice) -> list[int]:
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        return []
    try:
        length = os.readv(descriptor, [_STAT])
        after_name = _STAT.rindex(b") ", 0, length) + 2
        return [int(field) for field in bytes(_STAT[after_name:length]).split()[which]]
    except (ProcessLookupError, ValueError):
        return []
    finally:
        os.close(descriptor)
        _STAT[:] = bytes(len(_STAT))


def _listing(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except (FileNotFoundError, ProcessLookupError):
        return []
