"""What one sandboxed process may use.

Invariants
1. A policy is frozen, complete and validated where it is made: the fork server never sees a nonsensical limit.
2. Every limit has a unit in its name, and no limit means "unlimited".
3. Only waivable layers can be waived, by settings too. `ablate` exists for the tests that show that each layer carries
   weight: no setting reaches it, and a fork server refuses it unless it was itself started for such tests.
4. Naming a device selects the GPU profile; without one the profile shows no device and is as strict as can be.
5. More than one rank makes a group: confined processes that share one sandbox and the loopback of its network.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from config.errors import InternalError
from qualify.sandbox.layers import ABLATABLE, LAYERS

_KIB = 1 << 10
_MIB = 1 << 20
MINIMUM_OUTPUT_BYTES = 4 * _KIB
MAXIMUM_BINDS = 64
MAXIMUM_RANKS = 8


@dataclass(frozen=True, slots=True)
class SandboxPolicy:
    """Limits and files of one sandboxed process.

    ranks            processes that run the entry side by side; `processes`, `scratch_bytes` and `output_bytes` are for
                     all of them together, memory, files and CPU time for each
    memory_bytes     address space on top of what the fork server already maps (RLIMIT_AS); with a device the memory of
                     its cgroup and its private writable pages (RLIMIT_DATA), for a driver reserves huge ranges
    cpu_seconds      CPU time of all its threads; SIGXCPU at the limit, SIGKILL one second later
    wall_seconds     from the moment the entry may run; time spent frozen counts
    output_bytes     standard output and standard error together; one byte more kills
    processes        tasks of the child, its main thread included
    scratch_bytes    size of the tmpfs at /scratch, the only writable place
    file_bytes       largest file, or memfd, that it can grow
    open_files       descriptors
    cores            CPU numbers it is pinned to; empty means those of the fork server
    readonly         pairs (absolute host path, absolute path inside) of files or directories
    waive            waivable layers whose absence is accepted
    environment      variables added to the fixed allow-list
    devices          device nodes of the GPU profile, such as those of `nvidia_devices(0)`
    ablate           tests only: layers left out on purpose
    ablate_silently  tests only: the child's own verification is not told, so it must find the gap
    """

    memory_bytes: int = 2048 * _MIB
    cpu_seconds: int = 60
    wall_seconds: float = 60.0
    output_bytes: int = 1 * _MIB
    processes: int = 32
    scratch_bytes: int = 64 * _MIB
    file_bytes: int = 64 * _MIB
    open_files: int = 128
    cores: tuple[int, ...] = ()
    ranks: int = 1
    readonly: tuple[tuple[str, str], ...] = ()
    waive: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    devices: tuple[str, ...] = ()
    ablate: tuple[str, ...] = ()
    ablate_silently: bool = False

    def __post_init__(self) -> None:
        """Refuse nonsense with `InternalError` SANDBOX_BAD_POLICY."""
        for name, minimum in _MINIMA.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
                raise _bad(f"{name} is {value!r}, needs an integer of at least {minimum}")
        if not (math.isfinite(self.wall_seconds) and self.wall_seconds > 0):
            raise _bad(f"wall_seconds is {self.wall_seconds!r}, needs a positive number")
        if any(core < 0 for core in self.cores):
            raise _bad(f"cores {self.cores!r} holds a negative number")
        if self.ranks > MAXIMUM_RANKS or (self.ranks > 1 and self.devices):
            raise _bad(f"{self.ranks} ranks, with {len(self.devices)} devices")
        if len(self.readonly) > MAXIMUM_BINDS:
            raise _bad(f"more than {MAXIMUM_BINDS} read-only binds")
        for host, inside in self.readonly:
            _require_bind(host, inside)
        for path in self.devices:
            if not _DEVICE.fullmatch(path):
                raise _bad(f"{path!r} is not a device node that a sandbox may show")
        for name in self.waive:
            if name not in LAYERS or not LAYERS[name].waivable:
                raise _bad(f"layer {name!r} cannot be waived")
        for name in self.ablate:
            if name not in ABLATABLE:
                raise _bad(f"no child can start without layer {name!r}")

    def requires(self, name: str) -> bool:
        """Say whether the absence of layer `name` refuses the run."""
        return name not in self.waive and name not in self.ablate

    def attempts(self, name: str) -> bool:
        """Say whether layer `name` is tried at all."""
        return name not in self.ablate

    def expects(self, name: str) -> bool:
        """Say whether the verification from inside insists on layer `name`."""
        return name not in self.waive and (self.ablate_silently or name not in self.ablate)


def nvidia_devices(*indices: int) -> tuple[str, ...]:
    """Return the device nodes that a CUDA process needs for the given GPUs."""
    return (*(f"/dev/nvidia{index}" for index in indices), "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")


_DEVICE = re.compile(r"/dev/(?:nvidia(?:[0-9]{1,3}|ctl|-uvm|-uvm-tools))")

_MINIMA = {
    "memory_bytes": 16 * _MIB,
    "cpu_seconds": 1,
    "output_bytes": MINIMUM_OUTPUT_BYTES,
    "processes": 1,
    "scratch_bytes": 64 * _KIB,
    "file_bytes": 4 * _KIB,
    "open_files": 16,
    "ranks": 1,
}
_RESERVED_INSIDE = ("/proc", "/dev", "/scratch", "/usr", "/lib", "/lib64", "/bin", "/etc")


def _require_bind(host: str, inside: str) -> None:
    for path in (host, inside):
        if not path.startswith("/") or "\0" in path or any(part in ("", ".", "..") for part in path[1:].split("/")):
            raise _bad(f"read-only path {path!r} is not absolute and normal")
    if any(inside == place or inside.startswith(place + "/") for place in _RESERVED_INSIDE):
        raise _bad(f"read-only path {inside!r} would cover a place of the sandbox itself")


def _bad(what: str) -> InternalError:
    return InternalError("SANDBOX_BAD_POLICY", f"sandbox policy cannot be used: {what}.")
