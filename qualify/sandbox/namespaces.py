"""Unprivileged identity and private namespaces.

Invariants
1. A root node gives up root first, for a uid that no other live process of the host has (it is derived from a pid).
2. The user namespace maps exactly one uid and one gid, to themselves: there is no root inside.
3. Each namespace is entered by its own call, so a refusal names the one that is missing.
"""

from __future__ import annotations

import os

from qualify.sandbox import syscalls
from qualify.sandbox.layers import layer

UID_BASE = 1_900_000_000
"""Far above every distribution's accounts, below 2**31; base plus the largest pid still fits."""
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
NAMESPACE_FILES = ("user", "mnt", "net", "ipc", "uts", "cgroup", "pid")


def enter_mount_namespace() -> None:
    """Enter a private mount namespace with the rights of the caller."""
    with layer("mntns"):
        syscalls.unshare(syscalls.CLONE_NEWNS)


def drop_root(pid: int) -> None:
    """Become the unprivileged uid that belongs to `pid`; nothing to do for an ordinary user."""
    if os.geteuid() != 0:
        return
    uid = _uid_for(pid)
    with layer("uid"):
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)


def enter_user_namespace() -> None:
    """Enter a user namespace that maps this uid and gid to themselves."""
    uid, gid = os.getuid(), os.getgid()
    with layer("userns"):
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)  # a changed uid made our own /proc/self/uid_map root's
        syscalls.unshare(syscalls.CLONE_NEWUSER)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")


def enter_namespaces() -> None:
    """Enter new namespaces of every other kind; the pid namespace takes the next forked child."""
    for name, flag in _NAMESPACES:
        with layer(name):
            syscalls.unshare(flag)
    with layer("utsns"):
        syscalls.set_hostname(b"sandbox")


def namespace_ids() -> tuple[str, ...]:
    """Return the identity of each namespace of this process, in the order of `NAMESPACE_FILES`."""
    return tuple(os.readlink(f"/proc/self/ns/{name}") for name in NAMESPACE_FILES)


def _uid_for(pid: int) -> int:
    uid = UID_BASE + pid
    if _is_mapped(uid):
        return uid
    # A container maps a narrow range; two sandboxes then share a uid only when their pids collide.
    return _FALLBACK_BASE + pid % _FALLBACK_SPAN


def _is_mapped(uid: int) -> bool:
    with open("/proc/self/uid_map", encoding="ascii") as table:
        for line in table:
            inside, _, count = (int(field) for field in line.split())
            if inside <= uid < inside + count:
                return True
    return False


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
