"""The life of one sandboxed process, from the fork to the first line of its entry.

Three processes, each forked by the one before:
  stage 1   gives up root, enters the namespaces, waits for pid 1
  pid 1     builds the root, drops every capability, forks pid 2 and reaps; its death ends the namespace
  pid 2     limits, Landlock, seccomp, verification; waits for the word; runs the entry
A group of ranks has one such process for each rank, pid 2 for rank 0; before its filter of system calls, each joins the
others, in code of ours.

Invariants
1. Nothing foreign runs before `verify` succeeded and the fork server said go.
2. Pid 2 holds /dev/null, the log and exactly its declared descriptors (3, 4, 5, ...) when the entry starts.
3. Stage 1 and pid 1 hold none of the declared descriptors: peers see end of file the moment pid 2 is gone.
4. The death of any process of the chain kills everything below it; a group ends with the first of its ranks.
5. A rank holds the descriptors that were declared for it and none of another rank's.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from typing import NoReturn

from qualify.sandbox import landlock, seccomp, syscalls
from qualify.sandbox.capabilities import drop_capabilities, own_proc_files
from qualify.sandbox.entries import load_entry, load_join
from qualify.sandbox.layers import LayerMissing
from qualify.sandbox.namespaces import drop_root, enter_mount_namespace, enter_namespaces, enter_user_namespace
from qualify.sandbox.outcome import MEMORY_EXIT_STATUS
from qualify.sandbox.policy import SandboxPolicy
from qualify.sandbox.resource_limits import apply_limits
from qualify.sandbox.root_filesystem import SCRATCH, assemble_root, enter_root
from qualify.sandbox.seccomp import FilterProfile
from qualify.sandbox.stage import EXIT_REFUSED, ChildPlan, Stage, begin, close_all_but, mute_output, settle
from qualify.sandbox.verify import is_unnamed, open_descriptors, verify
from qualify.sandbox.wire import ChildReady, ChildStatus, ReaperAlive, ScratchOpen, send


def run_child(plan: ChildPlan) -> NoReturn:
    """Become stage 1. Never returns, whatever happens; the caller has just forked."""
    try:
        stage = settle(plan)
        with stage.refusing():
            _stage_one(stage)
    finally:
        os._exit(EXIT_REFUSED)


def _stage_one(stage: Stage) -> NoReturn:
    plan = stage.plan
    begin(plan)
    _leave_host(stage)
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)  # the change of identity above would have cleared it
    if os.getppid() != plan.zygote_pid:
        os._exit(EXIT_REFUSED)
    reaper = os.fork()
    if reaper == 0:
        _reaper(stage)
    mute_output()
    close_all_but({0, 1, 2})
    os.waitpid(reaper, 0)
    os._exit(0)


def _leave_host(stage: Stage) -> None:
    policy = stage.plan.policy
    if os.geteuid() == 0:  # root assembles while it still may open every path
        enter_mount_namespace()
        stage.root = assemble_root(stage.plan.binds(), policy)
        if policy.attempts("uid"):
            drop_root(os.getpid())
        enter_user_namespace()
        enter_namespaces(policy)
    else:
        enter_user_namespace()
        enter_namespaces(policy)
        stage.root = assemble_root(stage.plan.binds(), policy)


def _reaper(stage: Stage) -> NoReturn:
    policy = stage.plan.policy
    with stage.refusing():
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        send(stage.channel, ReaperAlive())
        enter_root(stage.root, policy)
        if policy.attempts("mount"):
            _show_scratch(stage)
        drop_capabilities(policy)
        children = [_fork_rank(stage, rank) for rank in range(policy.ranks)]
    mute_output()
    close_all_but({0, 1, 2, stage.channel.fileno()})
    pid = 0
    while pid not in children:
        pid, status, usage = os.wait4(-1, 0)
    cpu_ns = round((usage.ru_utime + usage.ru_stime) * 1e9)
    send(stage.channel, ChildStatus(status, cpu_ns, usage.ru_maxrss * 1024, children.index(pid)))
    os._exit(0)


def _fork_rank(stage: Stage, rank: int) -> int:
    child = os.fork()
    if child == 0:
        _confined(stage, rank)
    return child


def _show_scratch(stage: Stage) -> None:
    """Hand the fork server a view of /scratch: it measures there, from outside, what the child has filled."""
    folder = os.open(SCRATCH, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    send(stage.channel, ScratchOpen(), (folder,))
    os.close(folder)


def _confined(stage: Stage, rank: int) -> NoReturn:
    with stage.refusing():
        stage.keep_rank(rank)
        if not stage.plan.policy.attempts("pidns"):  # no namespace that would end with the reaper
            syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        layers = _confine(stage, rank)
        send(stage.channel, ChildReady(layers, rank))
        word = os.read(stage.channel.fileno(), 16)
        stage.channel.close()
    if word != b"go":
        os._exit(EXIT_REFUSED)
    _run_entry(stage.plan, stage.declared)


def _confine(stage: Stage, rank: int) -> tuple[str, ...]:
    policy = stage.plan.policy
    apply_limits(policy)
    layers = [name for name in _ALWAYS if policy.attempts(name)]
    if policy.devices:
        own_proc_files()
        layers.append("devices")
    if policy.attempts("landlock"):
        roots = [*stage.plan.roots, *(inside for _, inside in policy.readonly)]
        abi = landlock.restrict(roots, policy)
        layers += [f"landlock:{abi}"] if abi else []
    joined = _join(rank, policy.ranks)
    if policy.attempts("seccomp"):
        layers += _filter_calls(policy)
    if stage.plan.leaf is not None:
        layers.append("cgroup")
    descriptors = (0, 1, 2, *stage.declared, stage.channel.fileno(), *joined)
    verify(policy, stage.plan.namespaces, descriptors, outside_root=stage.plan.outside_root, rank=rank)
    return (*layers, "verify")


def _join(rank: int, ranks: int) -> tuple[int, ...]:
    """Let one rank of a group join the others; return the sockets and event descriptors it has for that."""
    if ranks == 1:
        return ()
    before = open_descriptors()
    load_join()(rank, ranks)
    return tuple(number for number in open_descriptors() - before if is_unnamed(number))


_ALWAYS = (
    *("rlimits", "userns", "mntns", "netns", "ipcns", "utsns", "cgroupns", "pidns"),
    *("mount", "proc", "caps", "no_new_privs"),
)


def _filter_calls(policy: SandboxPolicy) -> list[str]:
    profile = FilterProfile.GPU if policy.devices else FilterProfile.CPU
    try:
        return [f"seccomp:{seccomp.install(os.getpid(), profile, every_thread=policy.ranks > 1)}"]
    except LayerMissing:
        if policy.requires("seccomp"):
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
