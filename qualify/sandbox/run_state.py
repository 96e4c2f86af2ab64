"""One run, as the fork server sees it: from the request to the outcome.

Invariants
1. The first reason to stop a run is the reason that is reported.
2. `outcome` is computed from what the kernel and our own stages said; the child has no channel into it.
   A tool's wait status comes through bubblewrap, which writes a signal as 128 plus its number.
3. When a run is finished its processes are reaped, its descriptors closed and its cgroup leaf removed.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import socket
import time
from dataclasses import dataclass, field

from qualify.sandbox.cgroup import Leaf
from qualify.sandbox.layers import LayerMissing
from qualify.sandbox.log_file import LogFile
from qualify.sandbox.outcome import MEMORY_EXIT_STATUS, Outcome, OutcomeKind
from qualify.sandbox.policy import SandboxPolicy
from qualify.sandbox.watch import LOOK_SECONDS, Watch
from qualify.sandbox.wire import (
    ChildReady,
    ChildRefused,
    ChildStatus,
    Ended,
    Ready,
    ReaperAlive,
    ScratchOpen,
    ToolWaits,
    receive_stage,
    send,
)

SETUP_SECONDS = 15.0
_SHELL_SIGNAL = 128


@dataclass(slots=True)
class Run:
    """A live child: its channels, what has been seen of it, and when it has to end."""

    policy: SandboxPolicy
    channel: socket.socket
    stages: socket.socket
    log_descriptor: int
    pid: int
    pidfd: int
    leaf: Leaf | None
    watch: Watch
    deadline: float = field(default_factory=lambda: time.monotonic() + SETUP_SECONDS)
    log: LogFile = field(default_factory=LogFile)
    reaper_pid: int = 0
    reaper_pidfd: int = -1
    members: dict[int, int] = field(default_factory=dict)  # pids of the ranks that wait for the word, by rank
    started_at: float = 0.0
    look_at: float = math.inf
    layers: tuple[str, ...] = ()
    stop: OutcomeKind | None = None
    stop_detail: str = ""
    refusal: ChildRefused | None = None
    status: ChildStatus | None = None

    def descriptors(self) -> tuple[int, ...]:
        """Return what the fork server polls for this run."""
        return (self.channel.fileno(), self.stages.fileno(), self.log_descriptor, self.pidfd)

    def halt(self, kind: OutcomeKind, detail: str) -> None:
        """Kill the whole namespace; the first caller's reason counts."""
        if self.stop is None:
            self.stop, self.stop_detail = kind, detail
        # Without pid 1 there is no namespace yet: then stage 1 is all there is.
        target = self.reaper_pidfd if self.reaper_pidfd >= 0 else self.pidfd
        try:
            signal.pidfd_send_signal(target, signal.SIGKILL)
        except ProcessLookupError:
            return

    def wake_at(self) -> float:
        """Return when `attend` has something to do; never, for a run that is being stopped."""
        return min(self.deadline, self.look_at) if self.stop is None else math.inf

    def attend(self, now: float) -> None:
        """Act on a deadline that has passed, and look at the tree when it is time."""
        if self.deadline <= now:
            self._expire()
        elif self.look_at <= now:
            self.look_at = now + LOOK_SECONDS
            breach = self.watch.breach(self.reaper_pid)
            if breach is not None:
                self.halt(*breach)

    def _expire(self) -> None:
        if self.started_at:
            self.halt(OutcomeKind.WALL_LIMIT, f"ran longer than {self.policy.wall_seconds:g} s")
        else:
            self.halt(OutcomeKind.REFUSED, f"the child was not ready within {SETUP_SECONDS:g} s")

    def read_stages(self) -> bool:
        """Handle one message of a trusted stage; False at end of file."""
        try:
            message, sender, descriptor = receive_stage(self.stages)
        except (BlockingIOError, ConnectionResetError):
            return False
        match message:
            case None:
                return False
            case ReaperAlive():
                self.reaper_pidfd, self.reaper_pid = open_child(sender, self.pid), sender
                if self.stop is not None:
                    self.halt(self.stop, self.stop_detail)
            case ScratchOpen():
                self.watch.scratch = descriptor
            case ToolWaits():
                self._release_tool(message)
            case ChildReady(layers=layers, rank=rank):
                self.members[rank] = sender
                if len(self.members) == self.policy.ranks:
                    self._release(layers)
            case ChildRefused():
                self.refusal = self.refusal or message
            case ChildStatus():
                self.status = message
        return True

    def read_log(self) -> bool:
        """Take one chunk of output; False at end of file or when nothing is there."""
        some = self.log.take(self.log_descriptor)
        if self.log.total_bytes > self.policy.output_bytes:
            self.halt(OutcomeKind.OUTPUT_LIMIT, f"wrote more than {self.policy.output_bytes} bytes of output")
        return some

    def finish(self) -> Outcome:
        """Reap, collect what is left, tell the client, release everything. The process has ended already."""
        os.waitpid(self.pid, 0)
        while self.read_stages():
            pass
        while self.log.total_bytes <= 2 * self.policy.output_bytes and self.read_log():
            pass
        outcome = self.outcome()
        if self.leaf is not None:
            self.leaf.remove()
        self.watch.close()
        self.stages.close()
        for descriptor in (self.log_descriptor, self.pidfd, self.reaper_pidfd):
            if descriptor >= 0:
                os.close(descriptor)
        with contextlib.suppress(OSError):  # the client may have left: then nobody is there to be told
            send(self.channel, Ended(outcome), (self.log.descriptor,))
        self.log.close()
        self.channel.close()
        return outcome

    def outcome(self) -> Outcome:
        """Return how the run ended, from everything seen so far. What it wrote, and how much, is added by the client.
        """
        kind, layer, detail = self._ending()
        status = self._wait_status()
        exited = status is not None and os.WIFEXITED(status)
        return Outcome(
            kind=kind,
            exit_status=os.WEXITSTATUS(status) if status is not None and exited else None,
            signal=None if exited else self._signal(kind, status),
            layer=layer,
            detail=detail,
            layers=self.layers,
            # Those that die with their pid namespace are waited for by nobody; then the last look has to do.
            cpu_ns=max(self.status.cpu_ns if self.status else 0, self.watch.cpu_ns),
            wall_ns=round((time.monotonic() - self.started_at) * 1e9) if self.started_at else 0,
            peak_rss_bytes=self.status.peak_rss_bytes if self.status else 0,
            rank=self.status.rank if self.status else 0,
        )

    def _release(self, layers: tuple[str, ...]) -> None:
        """Tell the client who the child is, or its ranks, then let them run."""
        pids = tuple(self.members[rank] for rank in range(self.policy.ranks))
        pidfds = [open_child(pid, self.reaper_pid) for pid in pids]
        try:
            # One that died between saying so and now is reported when pid 1 is gone.
            if min(*pidfds, self.reaper_pidfd) >= 0:
                self._go(layers, pids, (self.reaper_pidfd, *pidfds))
        finally:
            for pidfd in pidfds:
                if pidfd >= 0:
                    os.close(pidfd)

    def _release_tool(self, tool: ToolWaits) -> None:
        """The same for a tool, whose pid 1 is bubblewrap's."""
        self.reaper_pidfd, self.reaper_pid = open_child(tool.init_pid, tool.outer_pid), tool.init_pid
        if self.stop is not None:
            self.halt(self.stop, self.stop_detail)
        elif self.reaper_pidfd >= 0:
            self._go(tool.layers, (tool.init_pid,), (self.reaper_pidfd, self.reaper_pidfd, self.watch.scratch))

    def _go(self, layers: tuple[str, ...], pids: tuple[int, ...], descriptors: tuple[int, ...]) -> None:
        try:
            if self.leaf is not None and not all(map(self.leaf.holds, pids)):
                raise LayerMissing("cgroup", "the child is not in the cgroup that was made for it")
            send(self.channel, Ready(pids, layers), descriptors)
        except LayerMissing as missing:
            self.refusal = ChildRefused(missing.layer, missing.reason)
            self.halt(OutcomeKind.REFUSED, missing.reason)
            return
        except OSError:
            self.halt(OutcomeKind.KILLED, "the client left")
            return
        self.layers = layers
        self.started_at = time.monotonic()
        self.deadline = self.started_at + self.policy.wall_seconds
        self.look_at = self.started_at + LOOK_SECONDS
        for _ in pids:
            self.stages.send(b"go")

    def _wait_status(self) -> int | None:
        """Return the raw wait status of the child; None when it was never reaped by our stages."""
        if self.status is None:
            return None
        status = self.status.wait_status
        if self.watch.many and os.WIFEXITED(status) and os.WEXITSTATUS(status) > _SHELL_SIGNAL:
            return os.WEXITSTATUS(status) - _SHELL_SIGNAL
        return status

    def _ending(self) -> tuple[OutcomeKind, str, str]:
        if self.refusal is not None:
            return OutcomeKind.REFUSED, self.refusal.layer, self.refusal.reason
        if self.stop is not None:
            return self.stop, "setup" if self.stop is OutcomeKind.REFUSED else "", self.stop_detail
        if not self.started_at:
            return OutcomeKind.REFUSED, "setup", "a stage of the child ended before it was ready"
        if self.leaf is not None and self.leaf.killed_for_memory():
            return OutcomeKind.MEMORY_LIMIT, "", "the kernel killed it for memory"
        breach = self.watch.lasting_breach()
        if breach is not None:
            return breach[0], "", breach[1]
        status = self._wait_status()
        if self.status is None or status is None:
            return OutcomeKind.KILLED, "", "killed from outside the sandbox, or by the kernel for memory of the host"
        return self._ending_of_child(status, self.status.cpu_ns)

    def _ending_of_child(self, status: int, cpu_ns: int) -> tuple[OutcomeKind, str, str]:
        spent = cpu_ns >= self.policy.cpu_seconds * 1e9
        if os.WIFEXITED(status):
            if os.WEXITSTATUS(status) == MEMORY_EXIT_STATUS and not self.watch.many:
                return OutcomeKind.MEMORY_LIMIT, "", f"an allocation beyond {self.policy.memory_bytes} bytes failed"
            if self.watch.many and spent:  # a compiler driver hides how its passes ended
                kind, detail = self.watch.too_much_cpu()
                return kind, "", detail
            return OutcomeKind.EXITED, "", ""
        number = os.WTERMSIG(status)
        if number == signal.SIGXCPU or (number == signal.SIGKILL and spent):
            kind, detail = self.watch.too_much_cpu()
            return kind, "", detail
        if number == signal.SIGXFSZ:
            return OutcomeKind.DISK_LIMIT, "", f"a file grew beyond {self.policy.file_bytes} bytes"
        return OutcomeKind.SIGNALED, "", ""

    def _signal(self, kind: OutcomeKind, status: int | None) -> int | None:
        if status is not None:
            return os.WTERMSIG(status)
        return None if kind is OutcomeKind.REFUSED else int(signal.SIGKILL)


def open_child(pid: int, parent: int) -> int:
    """Return a pidfd for `pid`, a child of `parent`, or -1 when that process is gone.

    The parent is read after the descriptor is open: if the number belongs to somebody else by now, it does not match.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return -1
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            if int(file.read().rpartition(") ")[2].split()[1]) == parent:
                return pidfd
    except (FileNotFoundError, ProcessLookupError):
        pass
    os.close(pidfd)
    return -1


def readable(descriptor: int) -> bool:
    """Say whether `descriptor` can be read, or is at its end, without waiting."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
