"""The minimal read-only root of a sandbox.

Invariants
1. `assemble_root` runs with the rights of the node, so a private home folder above an interpreter neither breaks the
   bind nor becomes visible; for a root node that is before root is given up, in a mount namespace of its own.
2. Everything bound is read-only, without set-uid and without devices, recursively; /scratch is the only writable place.
3. Of the project only the packages a child may need are bound; settings, wallets and state folders never are.
4. After `enter_root` the host's mount table is gone from this mount namespace.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from qualify.sandbox import syscalls
from qualify.sandbox.layers import layer

SYSTEM_ROOTS = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache")
PROJECT_PACKAGES = ("config", "intake", "qualify", "scoring")
DEVICES = ("null", "zero", "full", "random", "urandom")
SCRATCH = "/scratch"
_MOUNT_POINTS = ("/tmp", "/run", "/mnt", "/var")
_SCRATCH_INODES = 4096
_MASKED_FOLDERS = ("acpi", "asound", "bus", "driver", "fs", "irq", "pressure", "scsi", "sys", "sysvipc")
_MASKED_FILES = (
    *("buddyinfo", "diskstats", "interrupts", "kallsyms", "kcore", "key-users", "keys", "kmsg", "kpagecount"),
    *("kpageflags", "latency_stats", "loadavg", "locks", "pagetypeinfo", "sched_debug", "schedstat", "slabinfo"),
    *("softirqs", "stat", "sysrq-trigger", "timer_list", "uptime", "vmallocinfo", "vmstat", "zoneinfo"),
)
"""What /proc tells about the whole host. /proc/cpuinfo stays: numerical libraries read it late and fail without."""
_FLAGS = syscalls.MS_NOSUID | syscalls.MS_NODEV


@dataclass(frozen=True, slots=True)
class _Source:
    """An open path descriptor (-1 for a symbolic link to copy) and where it appears inside."""

    descriptor: int
    inside: str
    link_target: str = ""


def automatic_roots(project_root: str) -> tuple[str, ...]:
    """Return the host paths every child sees at the same place: system, interpreter, packages.

    `project_root` is the folder that holds the project's packages.
    """
    wanted = [*SYSTEM_ROOTS, os.path.realpath(sys.base_prefix), sys.prefix]
    wanted += [entry for entry in sys.path if os.path.basename(entry) in ("site-packages", "dist-packages")]
    wanted += [os.path.join(project_root, package) for package in PROJECT_PACKAGES]
    roots: list[str] = []
    for path in wanted:
        covered = any(path == root or path.startswith(root + "/") for root in roots if not os.path.islink(root))
        if path != "/" and not covered and os.path.lexists(path):
            roots.append(path)
    return tuple(roots)


def assemble_root(pairs: Sequence[tuple[str, str]]) -> str:
    """Build the root in a tmpfs of the current mount namespace, which must be private; return its place.

    `pairs` are (host path, inside path). Raises `LayerMissing("mount")`, also for a path that cannot be opened.
    """
    with layer("mount"):
        syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
        # The descriptors come first: the tmpfs may hide what they point to.
        sources = [_open(host, inside) for host, inside in pairs]
        # Any existing folder will do: it is hidden in this mount namespace only.
        root = next(place for place in _MOUNT_POINTS if os.path.isdir(place))
        syscalls.mount("tmpfs", root, "tmpfs", _FLAGS, "size=1m,mode=755")
        for source in sources:
            _place(source, root)
        for folder in ("/dev", "/proc", SCRATCH):
            os.makedirs(root + folder, exist_ok=True)
            os.chmod(root + folder, 0o755)
        _make_devices(root)
        syscalls.mount(None, root, None, syscalls.MS_REMOUNT | syscalls.MS_BIND | syscalls.MS_RDONLY | _FLAGS)
    return root


def enter_root(root: str, scratch_bytes: int) -> None:
    """Add /proc and /scratch, make `root` the root and change to /scratch. Runs as pid 1 of the new pid namespace."""
    with layer("mount"):
        # A mount inherited from a more privileged namespace is locked; a recursive bind of it is ours to pivot to.
        syscalls.mount(root, root, None, syscalls.MS_BIND | syscalls.MS_REC)
        os.chdir(root)
        options = f"size={scratch_bytes},mode=700,nr_inodes={_SCRATCH_INODES}"
        syscalls.mount("tmpfs", "scratch", "tmpfs", _FLAGS, options)
    with layer("proc"):
        syscalls.mount("proc", "proc", "proc", _FLAGS | syscalls.MS_NOEXEC, "hidepid=invisible")
        _mask_host_facts()
    with layer("mount"):
        syscalls.pivot_root_here()
        os.chdir(SCRATCH)


def _mask_host_facts() -> None:
    for name in _MASKED_FOLDERS:
        if os.path.isdir(f"proc/{name}"):
            flags = _FLAGS | syscalls.MS_NOEXEC | syscalls.MS_RDONLY
            syscalls.mount("tmpfs", f"proc/{name}", "tmpfs", flags, "size=4k,nr_inodes=2,mode=555")
    for name in _MASKED_FILES:
        if os.path.exists(f"proc/{name}"):
            syscalls.mount("dev/null", f"proc/{name}", None, syscalls.MS_BIND)


def _open(host: str, inside: str) -> _Source:
    if os.path.islink(host) and host == inside:
        return _Source(-1, inside, link_target=os.readlink(host))
    return _Source(os.open(host, os.O_PATH | os.O_CLOEXEC), inside)


def _place(source: _Source, root: str) -> None:
    target = root + source.inside
    _make_folders(root, os.path.dirname(source.inside))
    if source.link_target:
        os.symlink(source.link_target, target)
        return
    origin = f"/proc/self/fd/{source.descriptor}"
    if os.path.isdir(origin):
        _make_folders(root, source.inside)
    else:
        _touch(target)
    syscalls.mount(origin, target, None, syscalls.MS_BIND | syscalls.MS_REC)
    syscalls.restrict_mount(target)
    os.close(source.descriptor)


def _make_folders(root: str, inside: str) -> None:
    """Make every missing folder of `inside`, readable whatever the umask."""
    path = root
    for part in inside.split("/")[1:]:
        path = f"{path}/{part}"
        if not os.path.isdir(path):
            os.mkdir(path)
            os.chmod(path, 0o755)


def _make_devices(root: str) -> None:
    for name in DEVICES:
        if os.path.exists(f"/dev/{name}"):
            _touch(f"{root}/dev/{name}")
            syscalls.mount(f"/dev/{name}", f"{root}/dev/{name}", None, syscalls.MS_BIND)


def _touch(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
