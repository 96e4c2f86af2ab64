"""No capabilities, and no way to gain any.

Invariants
1. All five capability sets of the process are empty afterwards, and no_new_privs is set.
2. The process is not dumpable afterwards: no other process, of the same uid or not, may trace or read it.
"""

from __future__ import annotations

import struct

from qualify.sandbox import syscalls
from qualify.sandbox.layers import layer

_CAPABILITY_VERSION_3 = 0x20080522
_HIGHEST_CAPABILITY = 63


def drop_capabilities() -> None:
    """Empty every capability set, forbid new privileges, refuse tracing."""
    with layer("caps"):
        for capability in range(_HIGHEST_CAPABILITY + 1):
            try:
                syscalls.prctl(syscalls.PR_CAPBSET_DROP, capability)
            except OSError:
                break  # the kernel knows no higher one
        syscalls.prctl(syscalls.PR_CAP_AMBIENT, syscalls.PR_CAP_AMBIENT_CLEAR_ALL)
        header = struct.pack("II", _CAPABILITY_VERSION_3, 0)
        syscalls.syscall(syscalls.NUMBERS["capset"], header, bytes(24))
    with layer("no_new_privs"):
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
