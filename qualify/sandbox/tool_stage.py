"""The life of one tool: a program that must start programs itself, such as a compiler, inside Debian's bubblewrap.

Four processes, each started by the one before:
  stage 1   assembles the root, gives up root, takes every orphan, waits for all of them
  outer     limits, Landlock (network, signals), then executes bubblewrap, which makes the namespaces
  pid 1     bubblewrap's: pivots, drops all capabilities, installs our seccomp filter, reaps
  pid 2     the tool, and whatever it starts

Invariants
1. The files are those of every other run: `assemble_root`, read-only, with /scratch as the only writable place.
2. Bubblewrap waits until the fork server has seen its namespaces and said go; the rest is proved by `ExecProfile`.
3. Stage 1 ends only when nothing of the run is left: it adopts what bubblewrap leaves behind.
"""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Iterator, Sequence
from typing import NoReturn

from qualify.sandbox import landlock, syscalls
from qualify.sandbox.layers import LayerMissing, layer
from qualify.sandbox.namespaces import (
    INSIDE_ID,
    NAMESPACE_FILES,
    drop_root,
    enter_mount_namespace,
    enter_user_namespace,
    namespace_ids,
    unprivileged_uid,
)
from qualify.sandbox.resource_limits import limit_tool
from qualify.sandbox.root_filesystem import SCRATCH, assemble_root, masked_host_facts, mount_scratch
from qualify.sandbox.seccomp import FilterProfile, build_filter
from qualify.sandbox.stage import EXIT_REFUSED, ChildPlan, Stage, begin, close_all_but, mute_output, settle
from qualify.sandbox.wire import ChildStatus, ScratchOpen, ToolWaits, send

OWN_TASKS = 3
"""Stage 1, bubblewrap and its pid 1 count as tasks of the run."""
OUTPUT = f"{SCRATCH}/out"
BUBBLEWRAP = ("/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap")
_INFO_BYTES = 4096
_EXIT_NOT_STARTED = 71


def bubblewrap_path() -> str:
    """Return the path of the program. Raises `LayerMissing("bubblewrap")`."""
    for path in BUBBLEWRAP:
        if os.access(path, os.X_OK):
            return path
    raise LayerMissing("bubblewrap", f"there is no {BUBBLEWRAP[0]}")


def run_tool(plan: ChildPlan) -> NoReturn:
    """Become stage 1. Never returns, whatever happens; the caller has just forked."""
    try:
        stage = settle(plan)
        with stage.refusing():
            _stage_one(stage)
    finally:
        os._exit(EXIT_REFUSED)


def _stage_one(stage: Stage) -> NoReturn:
    plan = stage.plan
    program = bubblewrap_path()
    begin(plan)
    _assemble(stage)
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)  # the change of identity above would have cleared it
    if os.getppid() != plan.zygote_pid:
        os._exit(EXIT_REFUSED)
    info, info_end = os.pipe2(os.O_CLOEXEC)
    hold_end, hold = os.pipe2(os.O_CLOEXEC)
    code = build_filter(0, FilterProfile.TOOL)
    layers = _layers(plan, len(code) // 8)
    outer = os.fork()
    if outer == 0:
        _become_bubblewrap(stage, program, (_filter_file(code), info_end, hold_end))
    os.close(info_end)
    os.close(hold_end)
    mute_output()
    init = _read_init_pid(info)
    _require_own_namespaces(init, plan.namespaces)
    send(stage.channel, ToolWaits(outer, init, layers))
    if os.read(stage.channel.fileno(), 16) != b"go":
        os._exit(EXIT_REFUSED)
    os.write(hold, b"go")
    os.close(hold)
    _report(stage, outer)


def _assemble(stage: Stage) -> None:
    """Build the root with the rights of the node, then give them up; what is left can make namespaces of its own."""
    policy = stage.plan.policy
    if os.geteuid() == 0:
        uid = unprivileged_uid(os.getpid())
        enter_mount_namespace()
        stage.root = assemble_root(stage.plan.binds(), policy)
        owner = "" if uid is None else f",uid={uid},gid={uid}"
        _open_scratch(stage, owner)
        if uid is not None:
            _own_output(stage, uid)
        drop_root(os.getpid())
    else:
        enter_user_namespace()
        enter_mount_namespace()
        stage.root = assemble_root(stage.plan.binds(), policy)
        _open_scratch(stage, "")


def _open_scratch(stage: Stage, owner: str) -> None:
    place = stage.root + SCRATCH
    with layer("mount"):
        mount_scratch(place, stage.plan.policy, owner, syscalls.MS_NOEXEC)
        os.mkdir(stage.root + OUTPUT, 0o700)
        folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    send(stage.channel, ScratchOpen(), (folder,))
    os.close(folder)


def _own_output(stage: Stage, uid: int) -> None:
    with layer("mount"):
        os.chown(stage.root + OUTPUT, uid, uid)


def _layers(plan: ChildPlan, instructions: int) -> tuple[str, ...]:
    names = ["rlimits", "bubblewrap", *(f"{name}ns" for name in NAMESPACE_FILES), "mount", "proc", "caps"]
    abi = landlock.landlock_abi()
    names += ["no_new_privs", *([f"landlock:{abi}"] if abi >= landlock.REQUIRED_ABI else []), f"seccomp:{instructions}"]
    names += ["cgroup"] if plan.leaf is not None else []
    return (*names, "verify")


def _filter_file(code: bytes) -> int:
    descriptor = os.memfd_create("filter", os.MFD_CLOEXEC)
    os.write(descriptor, code)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _become_bubblewrap(stage: Stage, program: str, passed: tuple[int, int, int]) -> NoReturn:
    plan = stage.plan
    with stage.refusing():
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        landlock.restrict_network_and_signals(plan.policy)
        limit_tool(plan.policy, OWN_TASKS)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        arguments = [program, *_arguments(stage.root, passed), "--", *plan.command]
        for descriptor in passed:
            os.set_inheritable(descriptor, True)
        os.execve(program, arguments, dict(os.environ))
    os._exit(_EXIT_NOT_STARTED)


def _arguments(root: str, passed: tuple[int, int, int]) -> Iterator[str]:
    for kind in ("user", "ipc", "pid", "net", "uts", "cgroup"):
        yield f"--unshare-{kind}"
    yield from ("--uid", str(INSIDE_ID), "--gid", str(INSIDE_ID), "--hostname", "sandbox")
    yield from ("--cap-drop", "ALL", "--new-session", "--die-with-parent")
    # Not --bind, which would take the devices away from /dev; every mount below has its flags already.
    yield from ("--dev-bind", root, "/", "--proc", "/proc")
    folders, files = masked_host_facts()
    for folder in folders:
        yield from ("--perms", "0555", "--size", "4096", "--tmpfs", f"/{folder}", "--remount-ro", f"/{folder}")
    for file in files:
        yield from ("--dev-bind", "/dev/null", f"/{file}")
    yield from ("--chdir", SCRATCH)
    for option, descriptor in zip(("--seccomp", "--info-fd", "--block-fd"), passed, strict=True):
        yield from (option, str(descriptor))


def _read_init_pid(info: int) -> int:
    """Return the pid of bubblewrap's pid 1 as we see it."""
    text = b""
    while chunk := os.read(info, _INFO_BYTES):
        text += chunk
    os.close(info)
    with layer("bubblewrap"):
        if not text:
            raise ValueError("it ended before it had made a sandbox; its message is in the log")
        return int(json.loads(text)["child-pid"])


def _require_own_namespaces(init: int, outside: Sequence[str]) -> None:
    with layer("verify"):
        inside = namespace_ids(init)
    for name, ours, theirs in zip(NAMESPACE_FILES, inside, outside, strict=True):
        if ours == theirs:
            raise LayerMissing(f"{name}ns", "bubblewrap shares it with the fork server")


def _report(stage: Stage, outer: int) -> NoReturn:
    """Wait for everything that is left of the run, then say how bubblewrap ended and what all of it used."""
    close_all_but({0, 1, 2, stage.channel.fileno()})
    status = 0
    while True:
        try:
            pid, ended = os.wait()
        except ChildProcessError:
            break
        if pid == outer:
            status = ended
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_ns = round((used.ru_utime + used.ru_stime) * 1e9)
    send(stage.channel, ChildStatus(status, cpu_ns, used.ru_maxrss * 1024))
    os._exit(0)
