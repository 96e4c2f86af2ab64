"""What the referee notes down about the machine an attempt ran on."""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import os
import platform
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from config.canonical import sha256_hex
from config.errors import HostError
from qualify.software import libc, packages
from qualify.stillness import cpu_ns
from scoring.attempt import Environment

_TURN_SECONDS = 0.05  # how often a waiting attempt asks whether it is its turn


def load_average() -> str:
    """Return the 1, 5 and 15 minute load as text such as "0.12 0.20 0.15"."""
    return " ".join(f"{value:.2f}" for value in os.getloadavg())


@functools.cache
def machine_id() -> str:
    """Return an opaque, stable id of this machine: a digest of its machine id, or of its name without one."""
    for source in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            text = Path(source).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if text:
            return sha256_hex(b"cacheon.machine:" + text.encode("ascii"))[:16]
    return sha256_hex(b"cacheon.machine-name:" + platform.node().encode("utf-8", "replace"))[:16]


def cpu_model() -> str:
    """Return the processor's model name, or its architecture when the kernel does not tell."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.machine()


def governor(core: int) -> str:
    """Return the frequency governor of `core`, "none" where the kernel offers none (as in most virtual machines)."""
    path = Path(f"/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor")
    try:
        return path.read_text(encoding="ascii").strip()[:32] or "none"
    except (OSError, ValueError):
        return "none"


def choose_core(wanted: Sequence[int]) -> int:
    """Return the core for the arms: the first of `wanted`, else the last this process may use.

    Raises `HostError` (ARM_CORE_UNAVAILABLE) for a core this process may not use.
    """
    allowed = sorted(os.sched_getaffinity(0))
    core = wanted[0] if wanted else allowed[-1]
    if core not in allowed:
        raise HostError(
            "ARM_CORE_UNAVAILABLE",
            f"core {core} is not among the cores this process may use ({', '.join(map(str, allowed))})",
            hint="set qualify.arm_cores to cores of this machine, or leave it empty",
        )
    return core


def shares_core(core: int) -> bool:
    """Say whether this process may run on `core` or on a hardware thread of the same physical core."""
    return not os.sched_getaffinity(0).isdisjoint(_hardware_threads(core))


def _hardware_threads(core: int) -> set[int]:
    """Return the CPU numbers of the physical core that `core` belongs to."""
    path = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
    try:
        ranges = [part.split("-") for part in path.read_text(encoding="ascii").strip().split(",")]
        return {core, *(cpu for ends in ranges for cpu in range(int(ends[0]), int(ends[-1]) + 1))}
    except (OSError, ValueError):
        return {core}


@contextlib.contextmanager
def exclusive(core: int, patience_seconds: float = 900.0) -> Iterator[None]:
    """Keep every other attempt of this machine away from `core` while the block runs, waiting for our turn.

    Two measurements on one core would only time each other. The lock is a name that the kernel drops with its holder,
    so a killed attempt never leaves it behind. Raises `HostError` (ARM_CORE_BUSY) when the turn does not come.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as lock:
        until = time.monotonic() + patience_seconds
        while True:
            try:
                lock.bind(f"\0cacheon-arm-core-{core}")
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() > until:
                    raise HostError(
                        "ARM_CORE_BUSY",
                        f"core {core} has been in use by other attempts for {patience_seconds:.0f} s",
                        hint="give every node on this machine its own qualify.arm_cores",
                    ) from error
            time.sleep(_TURN_SECONDS)
        yield


@contextlib.contextmanager
def measuring(core: int) -> Iterator[None]:
    """Make this process fit to measure, and put everything back afterwards.

    It leaves the arms' physical core to them where the machine has another one, computes on one thread without
    gradients, and takes what is loaded by now out of garbage collection so that later collections stay short.
    """
    cores, threads, gradients = os.sched_getaffinity(0), torch.get_num_threads(), torch.is_grad_enabled()
    os.sched_setaffinity(0, cores - _hardware_threads(core) or cores - {core} or cores)
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    policy = os.sched_getscheduler(0)
    gc.freeze()
    favour(0)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, policy, os.sched_param(0))
        gc.collect()  # the memory of an attempt hangs in cycles, and is large; what was there before is left out
        gc.unfreeze()
        torch.set_grad_enabled(gradients)
        torch.set_num_threads(threads)
        os.sched_setaffinity(0, cores)


def usage(pid: int) -> tuple[int, int]:
    """Return the processor time in ns and the largest resident set in bytes of a process; zeros when it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0, 0
    peak = next((line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")), "0")
    return cpu_ns(pid), int(peak) * 1024


def favour(pid: int) -> None:
    """Let process `pid` (0 = this one) preempt ordinary work, where we may ask for it: as root, or with CAP_SYS_NICE.

    A woken process otherwise waits for the running one's slice, several milliseconds of pure noise. Both arms of a
    launch and the referee get the same class, at most one of them is runnable per core, and every call has a
    deadline, so nothing is starved for long. The ranks of a group take turns in it; one that spins for another
    without yielding keeps it waiting for a whole slice, and so only itself.
    """
    with contextlib.suppress(OSError):
        policy = os.SCHED_RR | (os.SCHED_RESET_ON_FORK if pid == 0 else 0)  # what we start is not preferred
        for thread in [0] if pid == 0 else map(int, os.listdir(f"/proc/{pid}/task")):
            os.sched_setscheduler(thread, policy, os.sched_param(1))


def describe(
    core: int, load_before: str, layers_present: Sequence[str], layers_waived: Sequence[str], timing_method: str
) -> Environment:
    """Return the environment record; call it at the end of the attempt."""
    return Environment(
        machine=machine_id(),
        cpu=cpu_model(),
        kernel=platform.release(),
        python=platform.python_version(),
        torch=str(torch.__version__),
        cores=(core, core),
        load_before=load_before,
        load_after=load_average(),
        layers_present=tuple(sorted(layers_present)),
        layers_waived=tuple(sorted(layers_waived)),
        timing_method=timing_method,
        governor=governor(core),
        libc=libc(),
        packages=packages(),
    )
