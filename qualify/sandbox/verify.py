"""Re-reading the state from the kernel before the first foreign byte runs.

Invariants
1. Nothing here trusts that an earlier call did what it said: each layer is observed from inside.
2. Any doubt is `LayerMissing`, naming the layer that does not hold.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from qualify.sandbox.layers import LayerMissing
from qualify.sandbox.namespaces import INSIDE_ID, NAMESPACE_FILES, namespace_ids, outside_uid
from qualify.sandbox.policy import SandboxPolicy

CHILD_PID = 2
"""Pid of the sandboxed process in its own namespace; pid 1 is the reaper."""
_CAPABILITY_FIELDS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
_LAYER_OF_NAMESPACE = {name: f"{name}ns" for name in NAMESPACE_FILES}


def verify(policy: SandboxPolicy, outside: Sequence[str], descriptors: Sequence[int], *, outside_root: bool) -> None:
    """Check every layer of this process.

    `outside` are the namespace identities of the fork server, `descriptors` the only ones that may be open;
    `outside_root` accepts uid 0 of a container that has no other user.
    """
    _check_status(policy)
    _check_identity(outside_root=outside_root)
    _check_namespaces(outside)
    _check_network()
    _check_root(policy)
    _check_descriptors(descriptors)


def _check_status(policy: SandboxPolicy) -> None:
    with open("/proc/self/status", encoding="utf-8") as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    if any(int(status[field], 16) for field in _CAPABILITY_FIELDS):
        raise LayerMissing("caps", "a capability set is not empty")
    if status["NoNewPrivs"] != "1":
        raise LayerMissing("no_new_privs", "the flag is not set")
    if status["Threads"].strip() != "1":
        raise LayerMissing("verify", "more than one thread is running")
    if policy.attempts("seccomp") and policy.requires("seccomp") and status["Seccomp"] != "2":
        raise LayerMissing("seccomp", "no filter is in force")


def _check_identity(*, outside_root: bool) -> None:
    if {*os.getresuid(), *os.getresgid()} != {INSIDE_ID}:
        raise LayerMissing("userns", "the child has more identities than one")
    if outside_uid() == 0 and not outside_root:
        raise LayerMissing("uid", "the child is still root outside")


def _check_namespaces(outside: Sequence[str]) -> None:
    if os.getpid() != CHILD_PID:
        raise LayerMissing("pidns", f"pid {os.getpid()} instead of {CHILD_PID}")
    for name, ours, theirs in zip(NAMESPACE_FILES, namespace_ids(), outside, strict=True):
        if ours == theirs:
            raise LayerMissing(_LAYER_OF_NAMESPACE[name], "shared with the fork server")


def _check_network() -> None:
    with open("/proc/self/net/dev", encoding="ascii") as file:
        interfaces = {line.split(":")[0].strip() for line in file.readlines()[2:]}
    if interfaces - {"lo"}:
        raise LayerMissing("netns", f"interfaces {sorted(interfaces)} are visible")


def _check_root(policy: SandboxPolicy) -> None:
    if not os.statvfs("/").f_flag & os.ST_RDONLY:
        raise LayerMissing("mount", "the root is writable")
    try:
        os.close(os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except PermissionError:
        return  # Landlock grants no right on the root itself
    if policy.requires("landlock"):
        raise LayerMissing("landlock", "the root can be listed")


def _check_descriptors(allowed: Sequence[int]) -> None:
    listing = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = {int(name) for name in os.listdir(listing)} - {listing}
    finally:
        os.close(listing)
    # os.listdir(fd) works on a duplicate that is gone by now; it shows up as the next free number.
    extra = {number for number in found - set(allowed) if _is_open(number)}
    if extra:
        raise LayerMissing("verify", f"descriptors {sorted(extra)} leaked into the child")


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
