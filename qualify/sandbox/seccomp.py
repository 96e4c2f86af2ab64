"""The system-call filter: an allow-list in classic BPF.

Invariants
1. Only the x86_64 ABI passes; the x32 ABI and any other architecture kill the process.
2. What the table does not allow fails with EPERM; calls that only an attack makes kill the process (SIGSYS).
3. Threads may start, processes may not: no fork, no exec, no namespace flag, no new socket. A thread starts with the
   flags of a thread library: no call lets an arm sleep at will where a signal cannot stop it.
4. Signals reach the process itself only, and never SIGKILL: a process that is found killed was killed by others. For
   the same reason it cannot lower the limits that the kernel enforces with it.
5. The GPU profile adds what a CUDA driver needs and nothing else: Unix sockets that listen, and its own device calls.
   The tool profile adds processes and programs, and signals within its pid namespace; still no socket, no namespace.
6. Advice to the kernel on how to treat pages that other processes have as well is accepted and not taken.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import signal
import struct
from collections.abc import Sequence
from enum import StrEnum

from qualify.sandbox import syscalls
from qualify.sandbox.layers import layer
from qualify.sandbox.syscall_table import ADVICE, ALLOWED, FATAL, FILTERED, GPU, NEWEST_KNOWN, TOOL

_ALLOW = 0x7FFF0000
_KILL_PROCESS = 0x80000000
_ERRNO = 0x00050000
_DENY = _ERRNO | errno.EPERM
_UNKNOWN = _ERRNO | errno.ENOSYS
_INVALID = _ERRNO | errno.EINVAL
_IGNORE = _ERRNO  # the call returns 0

_AUDIT_ARCH_X86_64 = 0xC000003E
_X32_BIT = 0x40000000
_OFFSET_NUMBER = 0
_OFFSET_ARCHITECTURE = 4
_OFFSET_ARGUMENTS = 16

_LOAD = 0x20
_JUMP_EQUAL = 0x15
_JUMP_AT_LEAST = 0x35
_JUMP_ANY_BIT = 0x45
_RETURN = 0x06
_MASK = 0x54
_SET_MODE_FILTER = 1
_EVERY_THREAD = 1

# What a thread shares with the others: memory, working folder, descriptors, signal handlers, undo lists. Without the
# descriptors, each thread would have as many of its own as the limit says for all.
_CLONE_THREAD = 0x00000100 | 0x00000200 | 0x00000400 | 0x00000800 | 0x00010000 | 0x00040000
_CLONE_THREAD_MAY = 0x00080000 | 0x00100000 | 0x00200000 | 0x00400000 | 0x01000000  # thread pointer, where its id goes
_CLONE_FORBIDDEN = 0x7E020000 | 0x80  # every namespace flag
_TERMINAL_PROBES = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # TCGETS GWINSZ FIONREAD FIONBIO FIONCLEX FIOCLEX
_DRIVER_CALL_TYPE = 0x4600  # 'F' in the second byte: every call of the NVIDIA driver's nodes
_DRIVER_CALLS = (0x30000001, 0x30000002)  # its unified memory starts and ends; the rest of that are small plain numbers
_SMALL_NUMBERS = 0x100
_FAMILY_UNIX = 1
_PRCTL_HARMLESS = (2, 3, 15, 16, 21, 23, 30, 39, 0x53564D41)  # getters, thread names and names of mappings
_ARCH_PRCTL_HARMLESS = (0x1003, 0x1004, 0x1021, 0x1022, 0x1023)  # read FS/GS, ask for AMX tile state
_ARCH_PRCTL_PROGRAM = (*_ARCH_PRCTL_HARMLESS, 0x1002)  # a program that starts sets its own thread pointer


_ADVICE_ON_SHARED_PAGES = (3, 12, 20, 21)  # MADV_WILLNEED, MERGEABLE, COLD, PAGEOUT: `ADVICE` for what is mapped
_ADVICE_COLLAPSE = 25  # MADV_COLLAPSE also changes the pages of files that the trusted side and others have mapped

# Duplicates, descriptor and status flags, pipe size, seals: no locks, which would reach files shared with the host and
# other children, no signal owners, and no new seals on memory that the trusted side still writes.
_FCNTL_HARMLESS = (0, 1, 2, 3, 4, 1030, 1032, 1034)


class _Program:
    """A list of instructions; every test either returns or falls through to the next one."""

    def __init__(self) -> None:
        self.instructions: list[bytes] = []

    def add(self, code: int, value: int, if_true: int = 0, if_false: int = 0) -> None:
        self.instructions.append(struct.pack("HBBI", code, if_true, if_false, value))

    def load(self, offset: int) -> None:
        self.add(_LOAD, offset)

    def load_argument(self, index: int, *, high: bool = False) -> None:
        self.load(_OFFSET_ARGUMENTS + 8 * index + (4 if high else 0))

    def give(self, action: int) -> None:
        self.add(_RETURN, action)

    def give_if_equal(self, value: int, action: int) -> None:
        self.add(_JUMP_EQUAL, value, if_false=1)
        self.give(action)

    def give_unless_equal(self, value: int, action: int) -> None:
        self.add(_JUMP_EQUAL, value, if_true=1)
        self.give(action)

    def give_if_at_least(self, value: int, action: int) -> None:
        self.add(_JUMP_AT_LEAST, value, if_false=1)
        self.give(action)

    def give_unless_at_least(self, value: int, action: int) -> None:
        self.add(_JUMP_AT_LEAST, value, if_true=1)
        self.give(action)

    def mask(self, bits: int) -> None:
        self.add(_MASK, bits)

    def give_if_any_bit(self, bits: int, action: int) -> None:
        self.add(_JUMP_ANY_BIT, bits, if_false=1)
        self.give(action)

    def when_number(self, number: int, block: _Program) -> None:
        """Run `block`, which must end in a return, for one system call."""
        self.add(_JUMP_EQUAL, number, if_false=len(block.instructions))
        self.instructions += block.instructions


class FilterProfile(StrEnum):
    """What the filtered process is: a kernel on the CPU, one with a graphics device, or a compiler."""

    CPU = "cpu"
    GPU = "gpu"
    TOOL = "tool"


_ADDED: dict[FilterProfile, dict[str, int]] = {FilterProfile.CPU: {}, FilterProfile.GPU: GPU, FilterProfile.TOOL: TOOL}


@functools.cache  # the fork server builds them once; a child only installs its copy
def build_filter(own_pid: int, profile: FilterProfile = FilterProfile.CPU) -> bytes:
    """Return the filter program for a process whose pid, seen from inside, is `own_pid` (0: one of many tools)."""
    added = _ADDED[profile]
    program = _Program()
    program.load(_OFFSET_ARCHITECTURE)
    program.give_unless_equal(_AUDIT_ARCH_X86_64, _KILL_PROCESS)
    program.load(_OFFSET_NUMBER)
    program.give_if_at_least(_X32_BIT, _KILL_PROCESS)
    for number in (*ALLOWED.values(), *added.values()):
        program.give_if_equal(number, _ALLOW)
    for number in FATAL.values():
        program.give_if_equal(number, _KILL_PROCESS)
    for number in ADVICE.values():
        program.give_if_equal(number, _IGNORE)
    for name, block in _argument_rules(own_pid, profile).items():
        if name not in added:
            program.when_number(FILTERED[name], block)
    program.give_if_at_least(NEWEST_KNOWN + 1, _UNKNOWN)
    program.give(_DENY)
    return b"".join(program.instructions)


def install(own_pid: int, profile: FilterProfile = FilterProfile.CPU, *, every_thread: bool = False) -> int:
    """Install the filter on this thread, the only one, or on `every_thread`; return the number of instructions.

    Raises `LayerMissing("seccomp")`.
    """
    code = build_filter(own_pid, profile)
    buffer = ctypes.create_string_buffer(code, len(code))
    count = len(code) // 8
    header = struct.pack("HxxxxxxP", count, syscalls.address_of(buffer))
    with layer("seccomp"):
        flags = _EVERY_THREAD if every_thread else 0
        if syscalls.syscall(syscalls.NUMBERS["seccomp"], _SET_MODE_FILTER, flags, header):
            raise OSError(errno.EBUSY, "a thread cannot take the filter")
    return count


def _argument_rules(own_pid: int, profile: FilterProfile) -> dict[str, _Program]:
    rules = {
        "clone": _threads_or_no_namespaces(threads_only=profile is not FilterProfile.TOOL),
        # clone3 passes its flags in memory, where a filter cannot read them: libraries fall back to clone.
        "clone3": _always(_UNKNOWN),
        "ioctl": _driver_calls() if profile is FilterProfile.GPU else _one_of(1, _TERMINAL_PROBES),
        "prctl": _one_of(0, _PRCTL_HARMLESS),
        "arch_prctl": _one_of(0, _ARCH_PRCTL_PROGRAM if profile is FilterProfile.TOOL else _ARCH_PRCTL_HARMLESS),
        "prlimit64": _one_of(0, (0, own_pid)) if profile is FilterProfile.TOOL else _own_limits(own_pid),
        "kill": _own_signals(own_pid, 1),
        "tgkill": _own_signals(own_pid, 2),
        "sendto": _without_address(),
        "fcntl": _one_of(1, _FCNTL_HARMLESS),
        "madvise": _own_pages(),
    }
    if profile is FilterProfile.GPU:
        rules["socket"] = _one_of(0, (_FAMILY_UNIX,))
    return rules


def _threads_or_no_namespaces(*, threads_only: bool) -> _Program:
    """With `threads_only`, the flags of a thread library and no others: the one of vfork, for a thread, puts the caller
    to a sleep that nothing can stop or wake, for as long as the thread pleases."""
    block = _Program()
    block.load_argument(0)
    if threads_only:
        block.mask(~_CLONE_THREAD_MAY & 0xFFFFFFFF)
        block.give_unless_equal(_CLONE_THREAD, _DENY)
        block.give(_ALLOW)
        return block
    block.give_if_any_bit(_CLONE_FORBIDDEN, _DENY)
    block.give(_ALLOW)
    return block


def _own_pages() -> _Program:
    """Advice on memory, as far as it is about the caller's own."""
    block = _Program()
    block.load_argument(2)
    for advice in _ADVICE_ON_SHARED_PAGES:
        block.give_if_equal(advice, _IGNORE)
    block.give_if_equal(_ADVICE_COLLAPSE, _INVALID)  # as a kernel without it
    block.give(_ALLOW)
    return block


def _one_of(argument: int, values: Sequence[int]) -> _Program:
    block = _Program()
    block.load_argument(argument)
    for value in values:
        block.give_if_equal(value, _ALLOW)
    block.give(_DENY)
    return block


def _own_signals(own_pid: int, argument: int) -> _Program:
    block = _Program()
    block.load_argument(0)
    block.give_unless_equal(own_pid, _DENY)
    block.load_argument(argument)
    block.give_if_equal(signal.SIGKILL, _KILL_PROCESS)
    block.give(_ALLOW)
    return block


def _own_limits(own_pid: int) -> _Program:
    """Reading them only: whoever may lower his time of processor can have himself killed for it."""
    block = _Program()
    for high in (False, True):
        block.load_argument(2, high=high)
        block.give_unless_equal(0, _DENY)
    block.load_argument(0)
    block.give_if_equal(0, _ALLOW)
    block.give_if_equal(own_pid, _ALLOW)
    block.give(_DENY)
    return block


def _driver_calls() -> _Program:
    block = _Program()
    block.load_argument(1)
    for value in (*_TERMINAL_PROBES, *_DRIVER_CALLS):
        block.give_if_equal(value, _ALLOW)
    block.give_unless_at_least(_SMALL_NUMBERS, _ALLOW)
    block.mask(0xFF00)
    block.give_if_equal(_DRIVER_CALL_TYPE, _ALLOW)
    block.give(_DENY)
    return block


def _without_address() -> _Program:
    block = _Program()
    block.load_argument(4)
    block.give_unless_equal(0, _DENY)
    block.load_argument(4, high=True)
    block.give_unless_equal(0, _DENY)
    block.give(_ALLOW)
    return block


def _always(action: int) -> _Program:
    block = _Program()
    block.give(action)
    return block
