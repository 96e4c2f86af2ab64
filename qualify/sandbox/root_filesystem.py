"""The minimal read-only root of a sandbox.

Invariants
1. `assemble_root` runs with the rights of the node, so a private home folder above an interpreter neither breaks the
   bind nor becomes visible; for a root node that is before root is given up, in a mount namespace of its own.
2. Everything bound is read-only, without set-uid and without devices, recursively; /scratch is the only writable place.
3. Of the project only the packages a child may need are bound; settings, wallets and state folders never are.
4. After `enter_root` the host's mount table is gone from this mount namespace.
5. /scratch has room for one page and one file more than the policy allows: what fills them has broken the limit, and
   the fork server sees it from outside.
"""

from __future__ import annotations

import os
import resource
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from qualify.sandbox import syscalls
from qualify.sandbox.layers import layer
from qualify.sandbox.policy import SandboxPolicy

SYSTEM_ROOTS = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache")
PROJECT_PACKAGES = ("config", "intake", "qualify", "scoring")
DEVICES = ("null", "zero", "full", "random", "urandom")
SCRATCH = "/scratch"
SCRATCH_FILES = 4096
SYSTEM_FOLDERS_OF_DRIVER = ("/sys/devices", "/sys/bus/pci", "/sys/module/nvidia", "/sys/module/nvidia_uvm")
"""What a CUDA driver reads of /sys: the processors, the memory nodes, the PCI bus and its own module."""
_MOUNT_POINTS = ("/tmp", "/run", "/mnt", "/var")
_OWN_INODES = 2  # the folder itself, and the one that proves a breach
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

    `project_root` is the folder that holds the project's packages. A symbolic link, such as an environment that lies
    elsewhere, comes with the folder it leads to.
    """
    wanted = [*SYSTEM_ROOTS, os.path.realpath(sys.base_prefix), sys.prefix]
    wanted += [entry for entry in sys.path if os.path.basename(entry) in ("site-packages", "dist-packages")]
    wanted += [os.path.join(project_root, package) for package in PROJECT_PACKAGES]
    roots: list[str] = []
    for path in wanted:
        for one in (os.path.realpath(path), path) if os.path.islink(path) else (path,):
            covered = any(one == root or one.startswith(root + "/") for root in roots)
            if one != "/" and not covered and os.path.exists(one):
                roots.append(one)
    return tuple(roots)


def assemble_root(pairs: Sequence[tuple[str, str]], policy: SandboxPolicy) -> str:
    """Build the root in a tmpfs of the current mount namespace, which must be private; return its place.

    `pairs` are (host path, inside path). Raises `LayerMissing("mount")`, also for a path that cannot be opened, and
    `LayerMissing("devices")` for a device that is not there.
    """
    if policy.devices:
        pairs = [*pairs, *((path, path) for path in SYSTEM_FOLDERS_OF_DRIVER if os.path.isdir(path))]
    with layer("mount"):
        syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
        if not policy.attempts("mount"):
            return ""
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
        _make_devices(root, policy.devices)
        syscalls.mount(None, root, None, syscalls.MS_REMOUNT | syscalls.MS_BIND | syscalls.MS_RDONLY | _FLAGS)
    return root


def enter_root(root: str, policy: SandboxPolicy) -> None:
    """Add /proc and /scratch, make `root` the root and change to /scratch. Runs as pid 1 of the new pid namespace."""
    with layer("mount"):
        os.chdir(root or "/")
        if policy.attempts("mount"):
            # A mount inherited from a more privileged namespace is locked; a recursive bind of it is ours to pivot to.
            syscalls.mount(root, root, None, syscalls.MS_BIND | syscalls.MS_REC)
            os.chdir(root)
            mount_scratch("scratch", policy)
    with layer("proc"):
        _mount_proc(policy)
    if policy.attempts("mount"):
        with layer("mount"):
            syscalls.pivot_root_here()
            os.chdir(SCRATCH)


def mount_scratch(target: str, policy: SandboxPolicy, options: str = "", flags: int = 0) -> None:
    """Mount the writable place at `target`."""
    size = policy.scratch_bytes + resource.getpagesize()
    limits = f"size={size},mode=700,nr_inodes={SCRATCH_FILES + _OWN_INODES}"
    syscalls.mount("tmpfs", target, "tmpfs", _FLAGS | flags, limits + options)


def scratch_overflow(folder: int, policy: SandboxPolicy) -> str:
    """Say in one sentence how the file system of the open /scratch is beyond its limit; empty when it is not."""
    seen = os.fstatvfs(folder)
    if (seen.f_blocks - seen.f_bfree) * seen.f_frsize > policy.scratch_bytes:
        return f"wrote more than {policy.scratch_bytes} bytes to {SCRATCH}"
    if seen.f_files and seen.f_ffree == 0:
        return f"made more than {SCRATCH_FILES} files in {SCRATCH}"
    return ""


def masked_host_facts() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the folders and the files of /proc that tell about the whole host, as far as this kernel has them."""
    folders = tuple(f"proc/{name}" for name in _MASKED_FOLDERS if os.path.isdir(f"/proc/{name}"))
    return folders, tuple(f"proc/{name}" for name in _MASKED_FILES if os.path.exists(f"/proc/{name}"))


def _mount_proc(policy: SandboxPolicy) -> None:
    if not policy.attempts("pidns"):  # a /proc of its own belongs to a pid namespace of its own
        syscalls.mount("/proc", "proc", None, syscalls.MS_BIND | syscalls.MS_REC)
        return
    if not policy.attempts("proc"):
        syscalls.mount("proc", "proc", "proc", _FLAGS | syscalls.MS_NOEXEC)
        return
    syscalls.mount("proc", "proc", "proc", _FLAGS | syscalls.MS_NOEXEC, "hidepid=invisible")
    for name in _MASKED_FOLDERS:
        if os.path.isdir(f"proc/{name}"):
            flags = _FLAGS | syscalls.MS_NOEXEC | syscalls.MS_RDONLY
            syscalls.mount("tmpfs", f"proc/{name}", "tmpfs", flags, "size=4k,nr_inodes=2,mode=555")
    for name in _MASKED_FILES:
        if os.path.exists(f"proc/{name}"):
            syscalls.mount("dev/null", f"proc/{name}", None, syscalls.MS_BIND)


def _open(host: str, inside: str) -> _Source:
    if os.path.islink(host) and host == inside:
        return _Source(-1, inside, link_target=os.path.realpath(host))  # a link on the way there is not inside
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


def _make_devices(root: str, devices: Sequence[str]) -> None:
    for name in DEVICES:
        if os.path.exists(f"/dev/{name}"):
            _show_device(f"/dev/{name}", root)
    with layer("devices"):
        for path in devices:
            if not stat.S_ISCHR(os.stat(path).st_mode):
                raise ValueError(f"{path} is no character device")
            _show_device(path, root)


def _show_device(path: str, root: str) -> None:
    _touch(root + path)
    syscalls.mount(path, root + path, None, syscalls.MS_BIND)


def _touch(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
