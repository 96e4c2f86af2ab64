"""Per-process limits, taken by the child on itself before it meets foreign code.

Invariants
1. Soft and hard limits are equal, so the child cannot raise them; only the CPU limit leaves one second between
   SIGXCPU and SIGKILL.
2. Limits are taken inside the new user namespace: tasks are then counted per sandbox, not per user of the host.
3. The address-space limit counts from what the fork server has mapped, so `memory_bytes` is what the child may add.
   A driver of a graphics device reserves far more than it uses; there, writable private pages are counted instead.
4. One task more than the policy allows is possible where no cgroup counts: who uses it has broken the limit, and the
   fork server sees it from outside. One more than that is not.
"""

from __future__ import annotations

import os
import resource

from qualify.sandbox.layers import layer
from qualify.sandbox.policy import SandboxPolicy

OWN_TASKS = 2
"""Waiting parent and pid 1 share the uid and the user namespace with the child and count as tasks of it."""
_SPARE_TASKS = 1
_NO_CORE = 1
"""Bytes. With 0 the kernel still runs the host's handler of crashes, as root and outside of everything, where
core_pattern names one, and feeds it the memory of the child; 1 is its word for "not even that" (core(5))."""
_LOCKED_MEMORY_BYTES = 1 << 20
_STACK_BYTES = 8 << 20


def apply_limits(policy: SandboxPolicy) -> None:
    """Take every limit of `policy`. Raises `LayerMissing("rlimits")` or `LayerMissing("cores")`."""
    pin_cores(policy)
    if not policy.attempts("rlimits"):
        return
    with layer("rlimits"):
        for kind, (soft, hard) in hard_limits(policy, OWN_TASKS, mapped_bytes(), data_bytes()).items():
            _limit(kind, soft, hard)


def pin_cores(policy: SandboxPolicy) -> None:
    """Stay on the policy's cores. Raises `LayerMissing("cores")`."""
    with layer("cores"):
        if policy.cores:
            os.sched_setaffinity(0, policy.cores)


def hard_limits(policy: SandboxPolicy, own_tasks: int, mapped: int, data: int) -> dict[int, tuple[int, int]]:
    """Return {kind: (soft, hard)}; `mapped` and `data` are the bytes that the process owns before it begins."""
    limits = {
        resource.RLIMIT_CORE: _NO_CORE,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_NICE: 0,
        resource.RLIMIT_RTPRIO: 0,
        resource.RLIMIT_SIGPENDING: 256,
        resource.RLIMIT_MEMLOCK: policy.memory_bytes if policy.devices else _LOCKED_MEMORY_BYTES,
        resource.RLIMIT_STACK: _STACK_BYTES,
        resource.RLIMIT_FSIZE: policy.file_bytes,
        resource.RLIMIT_NOFILE: policy.open_files,
        resource.RLIMIT_NPROC: policy.processes + own_tasks + _SPARE_TASKS,
    }
    if policy.devices:
        limits[resource.RLIMIT_DATA] = data + policy.memory_bytes
    else:
        limits[resource.RLIMIT_AS] = mapped + policy.memory_bytes
    pairs = {kind: (value, value) for kind, value in limits.items()}
    return {**pairs, resource.RLIMIT_CPU: (policy.cpu_seconds, policy.cpu_seconds + 1)}


def volunteer_for_oom() -> None:
    """Ask the kernel to end this process and its children first when the host runs out of memory."""
    with layer("rlimits"), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")


def mapped_bytes() -> int:
    """Return the size of this process's address space in bytes."""
    return _statm(0)


def data_bytes() -> int:
    """Return the size of this process's writable private memory in bytes, its stack included."""
    return _statm(5)


def limit_tool(policy: SandboxPolicy, own_tasks: int) -> None:
    """Take the limits of `policy` for a program that is about to be executed, and starts from nothing."""
    pin_cores(policy)
    with layer("rlimits"):
        for kind, (soft, hard) in hard_limits(policy, own_tasks, 0, 0).items():
            _limit(kind, soft, hard)


def _statm(field: int) -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[field]) * resource.getpagesize()


def _limit(kind: int, soft: int, hard: int) -> None:
    ceiling = resource.getrlimit(kind)[1]
    if ceiling != resource.RLIM_INFINITY:
        soft, hard = min(soft, ceiling), min(hard, ceiling)
    resource.setrlimit(kind, (soft, hard))
