"""Landlock: file, TCP, abstract-socket and signal rules that hold even where a mount rule is wrong.

Invariants
1. Every access right that this kernel's Landlock handles is denied unless a rule below grants it.
2. Roots are read and execute only, /scratch is everything but execution and device nodes, /proc is read only.
3. No TCP port may be bound or connected; abstract sockets and signals stay inside the sandbox where the ABI has scopes.
   The ranks of a group join by TCP over the loopback of their own network, in code of ours; the filter of system calls,
   which follows, leaves foreign code no way to make a socket.
4. The GPU profile adds the parts of /sys that its driver reads, and writing below /proc/self/task, where the driver
   names its threads and gives up when it may not.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence

from qualify.sandbox import syscalls
from qualify.sandbox.layers import LayerMissing, layer
from qualify.sandbox.policy import SandboxPolicy
from qualify.sandbox.root_filesystem import SCRATCH, SYSTEM_FOLDERS_OF_DRIVER

REQUIRED_ABI = 4
_ABI_WITH_SCOPES = 6
_ABI_WITH_DEVICE_IOCTL = 5
_RULE_PATH_BENEATH = 1
_CREATE_RULESET_VERSION = 1

_EXECUTE = 1 << 0
_WRITE_FILE = 1 << 1
_READ_FILE = 1 << 2
_READ_DIR = 1 << 3
_MAKE_CHAR = 1 << 6
_MAKE_BLOCK = 1 << 11
_TRUNCATE = 1 << 14
_IOCTL_DEV = 1 << 15
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_FILE_SYSTEM_BITS = {1: 13, 2: 14, 3: 15, 4: 15}
_LATEST_FILE_SYSTEM_BITS = 16
_NET_BIND_AND_CONNECT = 0b11
_SCOPE_ABSTRACT_AND_SIGNAL = 0b11


def landlock_abi() -> int:
    """Return the kernel's Landlock ABI, 0 where there is none."""
    try:
        number = syscalls.NUMBERS["landlock_create_ruleset"]
        return syscalls.syscall(number, 0, 0, _CREATE_RULESET_VERSION)
    except OSError:
        return 0


def restrict(roots: Sequence[str], policy: SandboxPolicy) -> int:
    """Confine this process to `roots`, /scratch, /proc and /dev; return the ABI in force, 0 for none.

    Raises `LayerMissing("landlock")` when the policy requires it and the kernel offers less than `REQUIRED_ABI`.
    """
    abi = _sufficient_abi(policy)
    if abi > 0:
        rules = _rules(roots, abi, policy)
        if not policy.attempts("mount"):  # the host's root has no /scratch
            rules = [(path, rights) for path, rights in rules if os.path.lexists(path)]
        _enforce(_attributes(abi, _handled(abi), tcp=policy.ranks == 1), rules)
    return abi


def restrict_network_and_signals(policy: SandboxPolicy) -> int:
    """Confine only what needs no paths, for a process that still has mounts to make; return the ABI, 0 for none."""
    abi = _sufficient_abi(policy)
    if abi < REQUIRED_ABI:
        return 0
    _enforce(_attributes(abi, 0), ())
    return abi


def _sufficient_abi(policy: SandboxPolicy) -> int:
    abi = landlock_abi()
    if policy.requires("landlock") and abi < REQUIRED_ABI:
        raise LayerMissing("landlock", f"the kernel offers ABI {abi}, {REQUIRED_ABI} is needed")
    return abi


def _enforce(attributes: bytes, rules: Iterable[tuple[str, int]]) -> None:
    with layer("landlock"):
        number = syscalls.NUMBERS["landlock_create_ruleset"]
        ruleset = syscalls.syscall(number, attributes, len(attributes), 0)
        try:
            for path, rights in rules:
                _allow(ruleset, path, rights)
            syscalls.syscall(syscalls.NUMBERS["landlock_restrict_self"], ruleset, 0)
        finally:
            os.close(ruleset)


def _handled(abi: int) -> int:
    return (1 << _FILE_SYSTEM_BITS.get(abi, _LATEST_FILE_SYSTEM_BITS)) - 1


def _attributes(abi: int, handled_files: int, *, tcp: bool = True) -> bytes:
    fields = [handled_files]
    if abi >= REQUIRED_ABI:
        fields.append(_NET_BIND_AND_CONNECT if tcp else 0)
    if abi >= _ABI_WITH_SCOPES:
        fields.append(_SCOPE_ABSTRACT_AND_SIGNAL)
    return struct.pack(f"{len(fields)}Q", *fields)


def _rules(roots: Sequence[str], abi: int, policy: SandboxPolicy) -> list[tuple[str, int]]:
    handled = _handled(abi)
    scratch = handled & ~(_EXECUTE | _MAKE_CHAR | _MAKE_BLOCK)
    devices = _WRITE_FILE | _READ_FILE | _READ_DIR | _IOCTL_DEV
    rules = [(root, _EXECUTE | _READ_FILE | _READ_DIR) for root in roots]
    rules += [(SCRATCH, scratch), ("/proc", _READ_FILE | _READ_DIR), ("/dev", devices)]
    if policy.devices:
        rules += [(path, _READ_FILE | _READ_DIR) for path in SYSTEM_FOLDERS_OF_DRIVER if os.path.isdir(path)]
        rules.append(("/proc/self/task", _WRITE_FILE | _READ_FILE | _READ_DIR | _TRUNCATE))
    return [(path, rights & handled) for path, rights in rules]


def _allow(ruleset: int, path: str, rights: int) -> None:
    if not os.path.isdir(path):
        rights &= _FILE_RIGHTS
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = struct.pack("<Qi", rights, descriptor)
        syscalls.syscall(syscalls.NUMBERS["landlock_add_rule"], ruleset, _RULE_PATH_BENEATH, rule, 0)
    finally:
        os.close(descriptor)
