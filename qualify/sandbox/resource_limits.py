"""Per-process limits, taken by the child on itself before it meets foreign code.

Invariants
1. Soft and hard limits are equal, so the child cannot raise them; only the CPU limit leaves one second between
   SIGXCPU and SIGKILL.
2. Limits are taken inside the new user namespace: tasks are then counted per sandbox, not per user of the host.
3. The address-space limit counts from what the fork server has mapped, so `memory_bytes` is what the child may add.
"""

from __future__ import annotations

import os
import resource

from qualify.sandbox.layers import layer
from qualify.sandbox.policy import SandboxPolicy

_OWN_TASKS = 2
"""Waiting parent and pid 1 share the uid and the user namespace with the child and count as tasks of it."""
_LOCKED_MEMORY_BYTES = 1 << 20
_STACK_BYTES = 8 << 20


def apply_limits(policy: SandboxPolicy) -> None:
    """Take every limit of `policy`. Raises `LayerMissing("rlimits")` or `LayerMissing("cores")`."""
    with layer("cores"):
        if policy.cores:
            os.sched_setaffinity(0, policy.cores)
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_NICE: 0,
        resource.RLIMIT_RTPRIO: 0,
        resource.RLIMIT_SIGPENDING: 256,
        resource.RLIMIT_MEMLOCK: _LOCKED_MEMORY_BYTES,
        resource.RLIMIT_STACK: _STACK_BYTES,
        resource.RLIMIT_FSIZE: policy.file_bytes,
        resource.RLIMIT_NOFILE: policy.open_files,
        resource.RLIMIT_NPROC: policy.processes + _OWN_TASKS,
        resource.RLIMIT_AS: mapped_bytes() + policy.memory_bytes,
    }
    with layer("rlimits"):
        for kind, value in limits.items():
            _limit(kind, value, value)
        _limit(resource.RLIMIT_CPU, policy.cpu_seconds, policy.cpu_seconds + 1)


def volunteer_for_oom() -> None:
    """Ask the kernel to end this process and its children first when the host runs out of memory."""
    with layer("rlimits"), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")


def mapped_bytes() -> int:
    """Return the size of this process's address space in bytes."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _limit(kind: int, soft: int, hard: int) -> None:
    ceiling = resource.getrlimit(kind)[1]
    if ceiling != resource.RLIM_INFINITY:
        soft, hard = min(soft, ceiling), min(hard, ceiling)
    resource.setrlimit(kind, (soft, hard))
