"""Raw Linux calls the standard library lacks.

Invariants
1. x86_64 Linux only: `NUMBERS` holds that ABI's numbers, and `require_architecture` refuses any other machine.
2. Every wrapper either succeeds or raises `OSError` with the kernel's errno; nothing returns an error code.
3. No wrapper allocates descriptors that it does not return.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.mount.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p]
_libc.umount2.argtypes = [ctypes.c_char_p, ctypes.c_int]
_libc.sethostname.argtypes = [ctypes.c_char_p, ctypes.c_size_t]

# The same library, called with the interpreter's lock held: a fork in between must find it where it was.
_libc_in_lock = ctypes.PyDLL(None, use_errno=True)
_libc_in_lock.syscall.restype = ctypes.c_long
_libc_in_lock.syscall.argtypes = [ctypes.c_long, ctypes.c_void_p, ctypes.c_size_t]
_CLONE_ARGUMENTS = struct.Struct("11Q")
_CLONE_INTO_CGROUP = 1 << 33

NUMBERS = {
    "clone3": 435,
    "pivot_root": 155,
    "capset": 126,
    "unshare": 272,
    "seccomp": 317,
    "mount_setattr": 442,
    "landlock_create_ruleset": 444,
    "landlock_add_rule": 445,
    "landlock_restrict_self": 446,
}

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MNT_DETACH = 0x2

MOUNT_ATTR_RDONLY = 0x1
MOUNT_ATTR_NOSUID = 0x2
MOUNT_ATTR_NODEV = 0x4
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_NAME = 15
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4


def supported_architecture() -> bool:
    """Say whether this machine speaks the system-call ABI that the sandbox is written for."""
    return platform.system() == "Linux" and platform.machine() == "x86_64"


def syscall(number: int, *arguments: int | bytes) -> int:
    """Make a raw system call; integers are passed as longs, bytes as pointers to their contents."""
    converted = [ctypes.c_long(value) if isinstance(value, int) else ctypes.c_char_p(value) for value in arguments]
    return _checked(_libc.syscall(ctypes.c_long(number), *converted))


def fork_into_cgroup(folder: int) -> int:
    """Fork like `os.fork`, the child being born in the cgroup v2 whose folder is open as `folder`.

    The C library does not take part: in the child its idea of the thread's number is stale until it forks itself, and
    handlers of `pthread_atfork` do not run. So this process must have one thread, and the child should do little before
    its next fork. Raises `OSError`.
    """
    arguments = bytearray(_CLONE_ARGUMENTS.size)
    _CLONE_ARGUMENTS.pack_into(arguments, 0, _CLONE_INTO_CGROUP, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, folder)
    block = (ctypes.c_char * len(arguments)).from_buffer(arguments)
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    try:
        pid = int(_libc_in_lock.syscall(NUMBERS["clone3"], ctypes.addressof(block), len(arguments)))
    except BaseException:
        python.PyOS_AfterFork_Parent()
        raise
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    return _checked(pid)


def prctl(operation: int, argument2: int = 0, argument3: int = 0) -> int:
    """Call prctl(2) with up to two unsigned arguments, the rest zero."""
    zero = ctypes.c_ulong(0)
    result = _libc.prctl(ctypes.c_int(operation), ctypes.c_ulong(argument2), ctypes.c_ulong(argument3), zero, zero)
    return _checked(result)


def set_process_name(name: bytes) -> None:
    """Set the name of this process as tools show it, at most 15 bytes."""
    buffer = ctypes.create_string_buffer(name)
    prctl(PR_SET_NAME, ctypes.addressof(buffer))


def unshare(flags: int) -> None:
    """Leave the namespaces named by `flags` for new ones."""
    syscall(NUMBERS["unshare"], flags)


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """Call mount(2)."""
    _checked(_libc.mount(_encoded(source), _encoded(target), _encoded(kind), flags, _encoded(data)), target)


def detach_mount(target: str) -> None:
    """Lazily unmount `target` and everything below it."""
    _checked(_libc.umount2(_encoded(target), MNT_DETACH), target)


def restrict_mount(target: str) -> None:
    """Make the mount at `target`, and all below it, read-only, without set-uid and without devices."""
    attributes = struct.pack("QQQQ", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, 0, 0, 0)
    syscall(NUMBERS["mount_setattr"], _AT_FDCWD, os.fsencode(target), _AT_RECURSIVE, attributes, len(attributes))


def pivot_root_here() -> None:
    """Make the current directory the root and drop the old root from this mount namespace."""
    syscall(NUMBERS["pivot_root"], b".", b".")
    detach_mount(".")
    os.chdir("/")


def set_hostname(name: bytes) -> None:
    """Set the host name of the current UTS namespace."""
    _checked(_libc.sethostname(name, len(name)))


def address_of(buffer: ctypes.Array[ctypes.c_char]) -> int:
    """Return the address of a ctypes buffer; the caller keeps the buffer alive."""
    return ctypes.addressof(buffer)


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else os.fsencode(text)


def _checked(result: int, path: str | None = None) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return result
