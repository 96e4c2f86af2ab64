"""The machine: kernel, installed packages, cores, load, memory, open files, user.

Invariants
1. What can only make measurements worse, not wrong, warns.
2. A processor too few is refused outside development networks: referee and arm would only time each other.
"""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

from config.arena import load_arena
from config.errors import ConfigurationError, HostError
from node.doctor.check import Finding, Subject, failed, passed, warned
from node.doctor.tools import dotted, version_in
from node.doctor.versions import Requirement, parse_requirement, satisfies

KERNEL_FLOOR = (6, 7)
MEMORY_FLOOR = 3 << 30  # the intake child may take 1.5 GiB, two arms and the referee the rest
MEMORY_REFUSED = 512 << 20
OPEN_FILES_FLOOR = 4096
CORES_FLOOR = 2
_GIB = 1 << 30


def judge_kernel(release: str) -> Finding:
    """Compare the kernel with the first that offers every layer; the isolation lines say what is really there."""
    if version_in(release)[:2] < KERNEL_FLOOR:
        return warned(
            "machine.kernel", f"{release} is older than {dotted(KERNEL_FLOOR)}, the first with every isolation layer",
            f"use kernel {dotted(KERNEL_FLOOR)} or newer; the isolation lines say what is missing here",
        )
    return passed("machine.kernel", f"{release}, floor {dotted(KERNEL_FLOOR)}")


def judge_packages(requirements: Iterable[Requirement], installed: Mapping[str, str]) -> tuple[Finding, ...]:
    """Compare installed versions (by package name, absent = not installed) with what this release was made for."""
    wanted = tuple(requirements)
    missing = sorted(one.name for one in wanted if one.name not in installed)
    if missing:
        error = HostError(
            "PACKAGE_MISSING", f"not installed in this environment: {', '.join(missing)}",
            hint="install cacheon again with its dependencies: pip install cacheon",
        )
        return (failed("machine.packages", error),)
    strange = [
        f"{one.name} {installed[one.name]} (made for {one.specifier})"
        for one in wanted if not satisfies(installed[one.name], one.specifier)
    ]
    if strange:
        return (
            warned(
                "machine.packages", f"other versions than this release was made for: {'; '.join(strange)}",
                "install cacheon into an environment of its own; verdicts record these versions",
            ),
        )
    return (passed("machine.packages", f"python {platform.python_version()}, {len(wanted)} packages as required"),)


def judge_cores(allowed: int, *, devnet: bool) -> Finding:
    """Count the processors that this process may use."""
    name = "machine.cores"
    if allowed >= CORES_FLOOR:
        return passed(name, f"{allowed} usable")
    seen, fix = f"{allowed} usable processor; referee and arm need one each", "give the node at least two processors"
    if devnet:
        return warned(name, seen, fix)
    return failed(name, HostError("CORES_TOO_FEW", seen, hint=fix))


def judge_load(load: float, cores: int) -> Finding:
    """Compare the one-minute load with the processors; some load is our own."""
    seen = f"{load:.2f} over the last minute on {cores} processors"
    if load > max(1.0, cores / 2):
        return warned("machine.load", seen, "keep other heavy work off this machine while it measures")
    return passed("machine.load", seen)


def judge_memory(available: int, swap_used: int, arms: int = 0) -> Finding:
    """Compare the available bytes with what intake and one attempt may take together.

    `arms` is what all arms of a launch may take, 0 where no arena is known. Where that is more than there is, a bundle
    can have its process killed by the host, which is never charged to it.
    """
    name, seen = "machine.memory", f"{available / _GIB:.1f} GiB available"
    fix = f"free memory, or use a machine with at least {MEMORY_FLOOR // _GIB} GiB to spare"
    if available < MEMORY_REFUSED:
        return failed(name, HostError("MEMORY_TOO_LITTLE", f"only {available >> 20} MiB of memory are free", hint=fix))
    if available < MEMORY_FLOOR:
        return warned(name, seen, fix)
    if available < arms:
        return warned(
            name, f"{seen}, and the arms of the arena may take {arms / _GIB:.1f} GiB: the host may have to kill them",
            "use a machine with more memory, or an arena with a smaller `arm_memory_bytes`",
        )
    if swap_used > _GIB // 4:
        return warned(name, f"{seen}, {swap_used / _GIB:.1f} GiB swapped out", "find what fills the memory")
    return passed(name, seen)


def judge_open_files(soft: int, hard: int) -> Finding:
    """Compare the limit of open files with what the node raises it to."""
    seen = f"limit {_limit(soft)}, may be raised to {_limit(hard)}"
    if 0 <= hard < OPEN_FILES_FLOOR:
        return warned("machine.files", seen, f"set LimitNOFILE={OPEN_FILES_FLOOR} or more in the service unit")
    return passed("machine.files", seen)


def judge_user(uid: int) -> Finding:
    """Name the user. Root works, an own user is safer."""
    if uid == 0:
        return warned(
            "machine.user", "running as root; the sandbox gives root up, the node itself keeps it",
            "run the node as a user of its own; this report holds for the user that asked",
        )
    return passed("machine.user", f"uid {uid}")


def judge_home(home: str, uid: int) -> Finding:
    """Say whether the user has a home folder by name; `home` is "" when nobody knows one."""
    if home:
        return passed("machine.home", home)
    error = HostError(
        "HOME_UNKNOWN", f"uid {uid} is no known user and HOME is not set; the chain's library needs a home folder",
        hint="set HOME to a folder of the node's user",
    )
    return failed("machine.home", error)


def look_home(_: Subject) -> tuple[Finding, ...]:
    """The user has a home folder, if only by name."""
    try:
        return (judge_home(str(Path.home()), os.geteuid()),)
    except RuntimeError:
        return (judge_home("", os.geteuid()),)


def look_machine(_: Subject) -> tuple[Finding, ...]:
    """Kernel, load, open files and user."""
    return (
        judge_kernel(platform.release()),
        judge_load(os.getloadavg()[0], len(os.sched_getaffinity(0))),
        judge_open_files(*resource.getrlimit(resource.RLIMIT_NOFILE)),
        judge_user(os.geteuid()),
    )


def look_cores(subject: Subject) -> tuple[Finding, ...]:
    """Enough processors."""
    devnet = subject.settings is not None and subject.settings.is_devnet
    return (judge_cores(len(os.sched_getaffinity(0)), devnet=devnet),)


def look_memory(subject: Subject) -> tuple[Finding, ...]:
    """Enough memory, by the machine's and by our control group's account."""
    facts = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text("ascii").splitlines() if ":" in line)
    sizes = {name: int(text.split()[0]) << 10 for name, text in facts.items()}
    available = min(sizes["MemAvailable"], group_memory(sizes["MemAvailable"]))
    swap_used = sizes.get("SwapTotal", 0) - sizes.get("SwapFree", 0)
    return (judge_memory(available, swap_used, _arms_memory(subject)),)


def _arms_memory(subject: Subject) -> int:
    """Return the bytes that the arms of one launch may take; 0 without an arena, of which another line complains."""
    if subject.settings is None:
        return 0
    try:
        arena = load_arena(subject.settings.qualify.arena)
    except ConfigurationError:
        return 0
    return 2 * arena.arm_memory_bytes * max((load.world_size for load in arena.workloads), default=1)


def look_packages(_: Subject) -> tuple[Finding, ...]:
    """The packages that this release asks for."""
    try:
        asked = metadata.requires("cacheon") or []
    except metadata.PackageNotFoundError:
        error = HostError(
            "PACKAGE_MISSING", "cacheon itself is not installed in this environment",
            hint="install it: `pip install .` in the checkout",
        )
        return (failed("machine.packages", error),)
    wanted = [one for one in map(parse_requirement, asked) if one is not None]
    installed = {}
    for one in wanted:
        try:
            installed[one.name] = metadata.version(one.name)
        except metadata.PackageNotFoundError:
            continue
    return judge_packages(wanted, installed)


def group_memory(otherwise: int) -> int:
    """Return the bytes that our control group leaves us, or `otherwise` where it sets no limit."""
    for folder in _group_folders():
        for limit, usage in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            try:
                text = Path(folder, limit).read_text("ascii").strip()
                used = int(Path(folder, usage).read_text("ascii"))
            except (OSError, ValueError):
                continue
            if text.isdigit():
                return max(0, int(text) - used)
    return otherwise


def _group_folders() -> list[str]:
    folders = []
    try:
        lines = Path("/proc/self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            folders += [f"/sys/fs/cgroup{path}", f"/sys/fs/cgroup/unified{path}"]
        elif "memory" in controllers.split(","):
            folders += [f"/sys/fs/cgroup/memory{path}"]
    return folders


def _limit(value: int) -> str:
    return "unlimited" if value < 0 else str(value)
