"""What the trusted stages of a run have in common: their descriptors, their environment and how they refuse.

Invariants
1. A stage holds /dev/null, the log, its declared descriptors (3, 4, 5, ...) and its channel; everything else is closed.
2. Whatever goes wrong in a stage is reported as a missing layer, and the process ends.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import tempfile
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NoReturn

from qualify.sandbox.cgroup import Leaf
from qualify.sandbox.layers import LayerMissing
from qualify.sandbox.policy import SandboxPolicy
from qualify.sandbox.resource_limits import volunteer_for_oom
from qualify.sandbox.wire import ChildRefused, read_particulars, send

FIRST_DESCRIPTOR = 3
EXIT_REFUSED = 70
_LIFTED = 300
_EVERY_DESCRIPTOR = 1 << 20
_SIGNALS_TO_RESET = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGXFSZ)
"""SIGXFSZ too: the interpreter ignores it, and then a file beyond its limit would end no run."""

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
    """Everything a child needs, fixed before the fork.

    `particulars` is the descriptor of a file with the rest of the policy, the argument, and the `command` of a tool.
    They are read by the child, from `settle` on: until then its policy has neither binds nor environment.
    """

    entry: str
    policy: SandboxPolicy
    particulars: int
    descriptors: tuple[int, ...]
    stage_channel: int
    log: int
    roots: tuple[str, ...]
    namespaces: tuple[str, ...]
    zygote_pid: int
    leaf: Leaf | None
    outside_root: bool
    argument: bytes = b""
    command: tuple[str, ...] = ()

    def complete(self) -> ChildPlan:
        """Return the plan with its particulars."""
        own = read_particulars(self.particulars)
        policy = replace(self.policy, readonly=own.readonly, environment=own.environment)
        return replace(self, policy=policy, argument=own.argument, command=own.command)

    def binds(self) -> list[tuple[str, str]]:
        """Return every read-only pair (host path, inside path)."""
        return [*((path, path) for path in self.roots), *self.policy.readonly]


class Stage:
    """The descriptors of the running stage, after they were moved to their final numbers."""

    def __init__(self, plan: ChildPlan) -> None:
        self.plan = plan
        self.root = ""
        self.declared = tuple(range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + len(plan.descriptors)))
        self.channel = socket.socket(fileno=FIRST_DESCRIPTOR + len(plan.descriptors))

    def keep_rank(self, rank: int) -> None:
        """Keep, of the declared descriptors, those of one rank, as 3, 4, 5, ..."""
        if self.plan.policy.ranks == 1:
            return
        count = len(self.declared) // self.plan.policy.ranks
        for number, source in enumerate(self.declared[rank * count : (rank + 1) * count], FIRST_DESCRIPTOR):
            if source != number:  # rank 0 has its own in place
                os.dup2(source, number, inheritable=False)
        self.declared = self.declared[:count]
        close_all_but({0, 1, 2, *self.declared, self.channel.fileno()})

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
        os._exit(EXIT_REFUSED)


def settle(plan: ChildPlan) -> Stage:
    """Read the particulars, give every kept descriptor its final number and close all others."""
    os.setsid()
    plan = plan.complete()
    lifted = [_lift(descriptor) for descriptor in (*plan.descriptors, plan.stage_channel)]
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for target, source in enumerate((null, plan.log, plan.log)):
        os.dup2(source, target)
    close_all_but({0, 1, 2, *lifted})
    for number, source in enumerate(lifted, FIRST_DESCRIPTOR):
        os.dup2(source, number, inheritable=False)
        os.close(source)
    return Stage(plan)


def begin(plan: ChildPlan) -> None:
    """Take the first steps of stage 1: signals, environment, first in line for the host's memory killer, cgroup."""
    for number in _SIGNALS_TO_RESET:
        signal.signal(number, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(BASE_ENVIRONMENT)
    os.environ.update(plan.policy.environment)
    tempfile.tempdir = None
    volunteer_for_oom()
    if plan.leaf is not None:
        plan.leaf.join()


def mute_output(path: str = "/dev/null") -> None:
    """Let go of the log."""
    null = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    for number in (1, 2):
        os.dup2(null, number)
    os.close(null)


def close_all_but(kept: Iterable[int]) -> None:
    """Close every descriptor that is not in `kept`."""
    low = 0
    for descriptor in sorted(kept):
        if low < descriptor:  # an empty range would wrap around and close everything
            os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, _EVERY_DESCRIPTOR)


def _lift(descriptor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _LIFTED)
