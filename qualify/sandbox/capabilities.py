"""No capabilities, and no way to gain any.

Invariants
1. All five capability sets of the process are empty afterwards, and no_new_privs is set.
2. The process is not dumpable afterwards: no other process, of the same uid or not, may trace or read it.
   A child with a device gets that back, for itself alone: the driver names its threads through /proc/self, which
   belongs to root for a process that is not dumpable.
"""

from __future__ import annotations

import struct

from qualify.sandbox import syscalls
from qualify.sandbox.layers import layer
from qualify.sandbox.policy import SandboxPolicy

_CAPABILITY_VERSION_3 = 0x20080522
_HIGHEST_CAPABILITY = 63


def drop_capabilities(policy: SandboxPolicy) -> None:
    """Empty every capability set, forbid new privileges, refuse tracing."""
    if policy.attempts("caps"):
        _empty_sets()
    with layer("no_new_privs"):
        if policy.attempts("no_new_privs"):
            syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)


def own_proc_files() -> None:
    """Make /proc/self belong to this process again."""
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)


def _empty_sets() -> None:
    with layer("caps"):
        for capability in range(_HIGHEST_CAPABILITY + 1):
            try:
                syscalls.prctl(syscalls.PR_CAPBSET_DROP, capability)
            except OSError:
                break  # the kernel knows no higher one
        syscalls.prctl(syscalls.PR_CAP_AMBIENT, syscalls.PR_CAP_AMBIENT_CLEAR_ALL)
        header = struct.pack("II", _CAPABILITY_VERSION_3, 0)
        syscalls.syscall(syscalls.NUMBERS["capset"], header, bytes(24))
