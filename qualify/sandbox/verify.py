"""Re-reading the state from the kernel before the first foreign byte runs.

Invariants
1. Nothing here trusts that an earlier call did what it said: each layer is observed from inside.
2. Any doubt is `LayerMissing`, naming the layer that does not hold.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence

from qualify.sandbox.layers import LayerMissing
from qualify.sandbox.namespaces import INSIDE_ID, NAMESPACE_FILES, namespace_ids, outside_uid
from qualify.sandbox.policy import SandboxPolicy
from qualify.sandbox.resource_limits import OWN_TASKS, data_bytes, hard_limits, mapped_bytes
from qualify.sandbox.root_filesystem import DEVICES

REAPER_PID, CHILD_PID = 1, 2
"""Pids of the trusted first process and of the sandboxed one, or of rank 0, in their own namespace. Which numbers the
other ranks have depends on the threads of earlier ones."""
_CAPABILITY_FIELDS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
_LAYER_OF_NAMESPACE = {name: f"{name}ns" for name in NAMESPACE_FILES}


def verify(
    policy: SandboxPolicy, outside: Sequence[str], descriptors: Sequence[int], *, outside_root: bool, rank: int = 0
) -> None:
    """Check every layer of this process.

    `outside` are the namespace identities of the fork server, `descriptors` the only ones that may be open;
    `outside_root` accepts uid 0 of a container that has no other user. The ranks of a group may have threads already.
    """
    _check_status(policy)
    _check_limits(policy)
    _check_identity(outside_root=outside_root or not policy.expects("uid"))
    _check_namespaces(policy, outside, rank)
    if policy.expects("netns"):
        _check_network()
    if policy.expects("mount"):
        _check_root(policy)
        _check_devices(policy)
    if policy.expects("proc") and policy.expects("pidns"):  # a /proc of its own belongs to a pid namespace of its own
        _check_proc()
    _check_descriptors(descriptors)


def _check_status(policy: SandboxPolicy) -> None:
    threads = os.listdir("/proc/self/task")
    if len(threads) != 1 and policy.ranks == 1:
        raise LayerMissing("verify", "more than one thread is running")
    for thread in threads:
        _check_thread(policy, thread)


def _check_thread(policy: SandboxPolicy, thread: str) -> None:
    with open(f"/proc/self/task/{thread}/status", encoding="utf-8") as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    if policy.expects("caps") and any(int(status[field], 16) for field in _CAPABILITY_FIELDS):
        raise LayerMissing("caps", "a capability set is not empty")
    if policy.expects("no_new_privs") and status["NoNewPrivs"] != "1":
        raise LayerMissing("no_new_privs", "the flag is not set")
    if policy.expects("seccomp") and status["Seccomp"] != "2":
        raise LayerMissing("seccomp", "no filter is in force")


def _check_limits(policy: SandboxPolicy) -> None:
    if not policy.expects("rlimits"):
        return
    slack = 64 << 20  # what this process has mapped since it took the limits counts twice below
    for kind, (_, most) in hard_limits(policy, OWN_TASKS, mapped_bytes() + slack, data_bytes() + slack).items():
        hard = resource.getrlimit(kind)[1]
        if hard == resource.RLIM_INFINITY or hard > most:
            raise LayerMissing("rlimits", f"limit {kind} is {hard} instead of at most {most}")


def _check_identity(*, outside_root: bool) -> None:
    if {*os.getresuid(), *os.getresgid()} != {INSIDE_ID}:
        raise LayerMissing("userns", "the child has more identities than one")
    if outside_uid() == 0 and not outside_root:
        raise LayerMissing("uid", "the child is still root outside")


def _check_namespaces(policy: SandboxPolicy, outside: Sequence[str], rank: int) -> None:
    if policy.expects("pidns") and (os.getppid() != REAPER_PID or (rank == 0 and os.getpid() != CHILD_PID)):
        raise LayerMissing("pidns", f"pid {os.getpid()} below {os.getppid()}")
    for name, ours, theirs in zip(NAMESPACE_FILES, namespace_ids(), outside, strict=True):
        if ours == theirs and policy.expects(_LAYER_OF_NAMESPACE[name]):
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
    if policy.expects("landlock"):
        raise LayerMissing("landlock", "the root can be listed")


def _check_devices(policy: SandboxPolicy) -> None:
    extra = {f"/dev/{name}" for name in os.listdir("/dev")} - {f"/dev/{name}" for name in DEVICES}
    if extra != set(policy.devices):
        raise LayerMissing("devices", f"{sorted(extra)} are visible instead of {sorted(policy.devices)}")


def _check_proc() -> None:
    with open("/proc/loadavg", encoding="ascii") as file:
        if file.read():
            raise LayerMissing("proc", "/proc shows the load of the host")


def _check_descriptors(allowed: Sequence[int]) -> None:
    extra = open_descriptors() - set(allowed)
    if extra:
        raise LayerMissing("verify", f"descriptors {sorted(extra)} leaked into the child")


def open_descriptors() -> set[int]:
    """Return the numbers of all open descriptors of this process."""
    listing = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = {int(name) for name in os.listdir(listing)} - {listing}
    finally:
        os.close(listing)
    # os.listdir(fd) works on a duplicate that is gone by now; it shows up as the next free number.
    return {number for number in found if _is_open(number)}


def is_unnamed(descriptor: int) -> bool:
    """Say whether an open descriptor is a socket or a kernel object for waiting, and no file."""
    return os.readlink(f"/proc/self/fd/{descriptor}").startswith(("socket:", "anon_inode:", "pipe:"))


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
