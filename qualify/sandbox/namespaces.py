"""Unprivileged identity and private namespaces.

Invariants
1. A root node gives up root first, for a uid that no other live process of the host has (it is derived from a pid).
2. The user namespace maps exactly one uid and one gid, to `INSIDE_ID`: there is no root inside, and the child cannot
   tell whose account it runs under.
3. Each namespace is entered by its own call, so a refusal names the one that is missing.
4. The private network has no interface that is up; for a group of ranks its loopback is, and nothing else is there.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct

from qualify.sandbox import syscalls
from qualify.sandbox.layers import layer
from qualify.sandbox.policy import SandboxPolicy

UID_BASE = 1_900_000_000
"""Far above every distribution's accounts, below 2**31; base plus the largest pid still fits."""
INSIDE_ID = 60_000
"""What the child sees as its uid and gid."""
_FALLBACK_BASE = 50_000
_FALLBACK_SPAN = 10_000

_NAMESPACES = (
    ("mntns", syscalls.CLONE_NEWNS),
    ("netns", syscalls.CLONE_NEWNET),
    ("ipcns", syscalls.CLONE_NEWIPC),
    ("utsns", syscalls.CLONE_NEWUTS),
    ("cgroupns", syscalls.CLONE_NEWCGROUP),
    ("pidns", syscalls.CLONE_NEWPID),
)
_SET_INTERFACE_FLAGS, _INTERFACE_UP = 0x8914, 0x1  # SIOCSIFFLAGS, IFF_UP
NAMESPACE_FILES = ("user", "mnt", "net", "ipc", "uts", "cgroup", "pid")


def enter_mount_namespace() -> None:
    """Enter a private mount namespace with the rights of the caller."""
    with layer("mntns"):
        syscalls.unshare(syscalls.CLONE_NEWNS)


def unprivileged_uid(pid: int) -> int | None:
    """Return the uid that a root node gives to the child `pid`; None for an ordinary user and a lone root."""
    return _uid_for(pid) if os.geteuid() == 0 else None


def drop_root(pid: int) -> None:
    """Become the unprivileged uid that belongs to `pid`.

    Nothing to do for an ordinary user, nor for a "root" that is the only user of its container: outside, that is an
    ordinary user too.
    """
    uid = unprivileged_uid(pid)
    if uid is None:
        return
    with layer("uid"):
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)


def enter_user_namespace() -> None:
    """Enter a user namespace that maps only this uid and gid."""
    uid, gid = os.getuid(), os.getgid()
    with layer("userns"):
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)  # a changed uid made our own /proc/self/uid_map root's
        syscalls.unshare(syscalls.CLONE_NEWUSER)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/gid_map", f"{INSIDE_ID} {gid} 1")
        _write("/proc/self/uid_map", f"{INSIDE_ID} {uid} 1")


def enter_namespaces(policy: SandboxPolicy) -> None:
    """Enter new namespaces of every other kind; the pid namespace takes the next forked child."""
    for name, flag in _NAMESPACES:
        if policy.attempts(name):
            with layer(name):
                syscalls.unshare(flag)
    if policy.attempts("utsns"):
        with layer("utsns"):
            syscalls.set_hostname(b"sandbox")
    if policy.ranks > 1 and policy.attempts("netns"):
        with layer("netns"):
            _raise_loopback()


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_INTERFACE_FLAGS, struct.pack("16sH14x", b"lo", _INTERFACE_UP))


def namespace_ids(process: int | str = "self") -> tuple[str, ...]:
    """Return the identity of each namespace of a process, in the order of `NAMESPACE_FILES`."""
    return tuple(os.readlink(f"/proc/{process}/ns/{name}") for name in NAMESPACE_FILES)


def outside_uid() -> int:
    """Return the uid of this sandboxed process as its parent namespace knows it."""
    with open("/proc/self/uid_map", encoding="ascii") as table:
        return int(table.read().split()[1])


def root_is_alone() -> bool:
    """Say whether this process is root of a namespace without any other user."""
    return os.geteuid() == 0 and _uid_for(1) is None


def _uid_for(pid: int) -> int | None:
    # Where a container maps a narrow range, two sandboxes share a uid only when their pids collide.
    for uid in (UID_BASE + pid, _FALLBACK_BASE + pid % _FALLBACK_SPAN):
        if _is_mapped("uid", uid) and _is_mapped("gid", uid):
            return uid
    return None


def _is_mapped(kind: str, number: int) -> bool:
    with open(f"/proc/self/{kind}_map", encoding="ascii") as table:
        for line in table:
            inside, _, count = (int(field) for field in line.split())
            if inside <= number < inside + count:
                return True
    return False


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
