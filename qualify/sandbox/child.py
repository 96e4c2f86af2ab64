"""The life of one sandboxed process, from the fork to the first line of its entry.

Three processes, each forked by the one before:
  stage 1   gives up root, enters the namespaces, waits for pid 1
  pid 1     builds the root, drops every capability, forks pid 2 and reaps; its death ends the namespace
  pid 2     limits, Landlock, seccomp, verification; waits for the word; runs the entry

Invariants
1. Nothing foreign runs before `verify` succeeded and the fork server said go.
2. Pid 2 holds /dev/null, the log and exactly its declared descriptors (3, 4, 5, ...) when the entry starts.
3. Stage 1 and pid 1 hold none of the declared descriptors: peers see end of file the moment pid 2 is gone.
4. The death of any process of the chain kills everything below it.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

from qualify.sandbox import landlock, seccomp, syscalls
from qualify.sandbox.capabilities import drop_capabilities
from qualify.sandbox.cgroup import Leaf
from qualify.sandbox.entries import load_entry
from qualify.sandbox.layers import LayerMissing
from qualify.sandbox.namespaces import drop_root, enter_mount_namespace, enter_namespaces, enter_user_namespace
from qualify.sandbox.outcome import MEMORY_EXIT_STATUS
from qualify.sandbox.policy import SandboxPolicy
from qualify.sandbox.resource_limits import apply_limits, volunteer_for_oom
from qualify.sandbox.root_filesystem import assemble_root, enter_root
from qualify.sandbox.verify import CHILD_PID, verify
from qualify.sandbox.wire import ChildReady, ChildRefused, ChildStatus, ReaperAlive, send

FIRST_DESCRIPTOR = 3
_LIFTED = 300
_EVERY_DESCRIPTOR = 1 << 20
_EXIT_REFUSED = 70
_SIGNALS_TO_RESET = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)

BASE_ENVIRONMENT = {
    "HOME": "/scratch",
    "TMPDIR": "/scratch",
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


@dataclass(frozen=True, slots=True)
class ChildPlan:
    """Everything a child needs, fixed before the fork."""

    entry: str
    policy: SandboxPolicy
    argument: bytes
    descriptors: tuple[int, ...]
    stage_channel: int
    log: int
    roots: tuple[str, ...]
    namespaces: tuple[str, ...]
    zygote_pid: int
    leaf: Leaf | None
    outside_root: bool


class _Stage:
    """The descriptors of the running stage, after they were moved to their final numbers."""

    def __init__(self, plan: ChildPlan) -> None:
        self.plan = plan
        self.root = ""
        self.declared = tuple(range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + len(plan.descriptors)))
        self.channel = socket.socket(fileno=FIRST_DESCRIPTOR + len(plan.descriptors))

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Report whatever goes wrong in the block as a missing layer, and end the process."""
        try:
            yield
        except LayerMissing as missing:
            self._refuse(missing.layer, missing.reason)
        except Exception:  # noqa: BLE001 - last line of a process that nobody else watches
            self._refuse("setup", traceback.format_exc(limit=-3))

    def _refuse(self, name: str, reason: str) -> NoReturn:
        send(self.channel, ChildRefused(name, reason[:2000]))
        os._exit(_EXIT_REFUSED)


def run_child(plan: ChildPlan) -> NoReturn:
    """Become stage 1. Never returns, whatever happens; the caller has just forked."""
    try:
        _become_stage_one(plan)
    finally:
        os._exit(_EXIT_REFUSED)


def _become_stage_one(plan: ChildPlan) -> NoReturn:
    stage = _settle_descriptors(plan)
    with stage.refusing():
        _stage_one(stage)


def _settle_descriptors(plan: ChildPlan) -> _Stage:
    """Give every kept descriptor its final number and close all others."""
    os.setsid()
    lifted = [_lift(descriptor) for descriptor in (*plan.descriptors, plan.stage_channel)]
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for target, source in enumerate((null, plan.log, plan.log)):
        os.dup2(source, target)
    _close_all_but({0, 1, 2, *lifted})
    for number, source in enumerate(lifted, FIRST_DESCRIPTOR):
        os.dup2(source, number, inheritable=False)
        os.close(source)
    return _Stage(plan)


def _stage_one(stage: _Stage) -> NoReturn:
    plan = stage.plan
    for number in _SIGNALS_TO_RESET:
        signal.signal(number, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(BASE_ENVIRONMENT)
    os.environ.update(plan.policy.environment)
    tempfile.tempdir = None
    volunteer_for_oom()
    if plan.leaf is not None:
        plan.leaf.join()
    _leave_host(stage)
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)  # the change of identity above would have cleared it
    if os.getppid() != plan.zygote_pid:
        os._exit(_EXIT_REFUSED)
    reaper = os.fork()
    if reaper == 0:
        _reaper(stage)
    _mute_output("/dev/null")
    _close_all_but({0, 1, 2})
    os.waitpid(reaper, 0)
    os._exit(0)


def _leave_host(stage: _Stage) -> None:
    plan = stage.plan
    pairs = [*((path, path) for path in plan.roots), *plan.policy.readonly]
    if os.geteuid() == 0:  # root assembles while it still may open every path
        enter_mount_namespace()
        stage.root = assemble_root(pairs)
        drop_root(os.getpid())
        enter_user_namespace()
        enter_namespaces()
    else:
        enter_user_namespace()
        enter_namespaces()
        stage.root = assemble_root(pairs)


def _reaper(stage: _Stage) -> NoReturn:
    with stage.refusing():
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        send(stage.channel, ReaperAlive())
        enter_root(stage.root, stage.plan.policy.scratch_bytes)
        drop_capabilities()
        child = os.fork()
    if child == 0:
        _confined(stage)
    _mute_output("/dev/null")
    _close_all_but({0, 1, 2, stage.channel.fileno()})
    pid = 0
    while pid != child:
        pid, status, usage = os.wait4(-1, 0)
    cpu_ns = round((usage.ru_utime + usage.ru_stime) * 1e9)
    send(stage.channel, ChildStatus(status, cpu_ns, usage.ru_maxrss * 1024))
    os._exit(0)


def _confined(stage: _Stage) -> NoReturn:
    with stage.refusing():
        layers = _confine(stage)
        send(stage.channel, ChildReady(layers))
        word = os.read(stage.channel.fileno(), 16)
        stage.channel.close()
    if word != b"go":
        os._exit(_EXIT_REFUSED)
    _run_entry(stage.plan, stage.declared)


def _confine(stage: _Stage) -> tuple[str, ...]:
    policy = stage.plan.policy
    layers = ["rlimits", *(f"{name}ns" for name in ("user", "mnt", "net", "ipc", "uts", "cgroup", "pid"))]
    layers += ["mount", "proc", "caps", "no_new_privs"]
    apply_limits(policy)
    if policy.attempts("landlock"):
        roots = [*stage.plan.roots, *(inside for _, inside in policy.readonly)]
        abi = landlock.restrict(roots, required=policy.requires("landlock"))
        layers += [f"landlock:{abi}"] if abi else []
    if policy.attempts("seccomp"):
        layers += _filter_calls(required=policy.requires("seccomp"))
    if stage.plan.leaf is not None:
        layers.append("cgroup")
    descriptors = (0, 1, 2, *stage.declared, stage.channel.fileno())
    verify(policy, stage.plan.namespaces, descriptors, outside_root=stage.plan.outside_root)
    return (*layers, "verify")


def _filter_calls(*, required: bool) -> list[str]:
    try:
        return [f"seccomp:{seccomp.install(CHILD_PID)}"]
    except LayerMissing:
        if required:
            raise
        return []


def _run_entry(plan: ChildPlan, declared: tuple[int, ...]) -> NoReturn:
    """Run the entry and leave with its status; no exit handlers of the fork server run."""
    status = 1
    try:
        load_entry(plan.entry)(declared, plan.argument)
        status = 0
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except MemoryError:
        status = MEMORY_EXIT_STATUS
    except BaseException:  # noqa: BLE001 - foreign code may raise anything; this is where its process ends
        _report_exception()
    finally:
        _flush()
        os._exit(status & 0xFF)


def _report_exception() -> None:
    try:
        traceback.print_exc(limit=50)
    except Exception:  # noqa: BLE001 - a foreign exception may fail to print in any way
        os.write(2, b"the exception of the entry could not be printed\n")


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # noqa: BLE001 - foreign code may have replaced the streams
            os.write(2, b"standard output could not be flushed\n")


def _mute_output(path: str) -> None:
    null = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    for number in (1, 2):
        os.dup2(null, number)
    os.close(null)


def _lift(descriptor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _LIFTED)


def _close_all_but(kept: Iterable[int]) -> None:
    low = 0
    for descriptor in sorted(kept):
        if low < descriptor:  # an empty range would wrap around and close everything
            os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, _EVERY_DESCRIPTOR)
