"""The event loop of the fork server.

Invariants
1. One thread, always: a fork copies only the calling thread, so a second one could leave a lock held for ever.
2. Nothing here blocks except the poll; a slow child delays nobody.
3. Nothing here reads what only one child may know, or what a child wrote: all later ones would inherit it.
4. The loop ends when the client closes its end or dies; every child is dead before it returns.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time

from qualify.sandbox import cgroup, resource_limits, tool_stage
from qualify.sandbox.child import run_child
from qualify.sandbox.layers import LayerMissing
from qualify.sandbox.namespaces import namespace_ids, root_is_alone
from qualify.sandbox.outcome import Outcome, OutcomeKind
from qualify.sandbox.run_state import Run, readable
from qualify.sandbox.stage import ChildPlan
from qualify.sandbox.watch import Watch
from qualify.sandbox.wire import Ended, SpawnRequest, receive_request, send


class ForkServer:
    """Serves spawn requests on `control` until the client is gone."""

    def __init__(
        self,
        control: socket.socket,
        client_pidfd: int,
        roots: tuple[str, ...],
        entries: dict[str, str],
        *,
        ablation: bool,
    ) -> None:
        self._control = control
        self._client_pidfd = client_pidfd
        self._roots = roots
        self._entries = entries
        self._ablation = ablation
        self._namespaces = namespace_ids()
        self._outside_root = root_is_alone()
        self._cgroup_parent = cgroup.find_parent()
        if self._cgroup_parent is not None:
            cgroup.sweep(self._cgroup_parent)
        self._runs: dict[int, Run] = {}
        self._poll = select.poll()
        self._sequence = 0

    def serve(self) -> None:
        """Run until the client closes or dies, then end every child."""
        for descriptor in (self._control.fileno(), self._client_pidfd):
            self._poll.register(descriptor, select.POLLIN)
        while self._step():
            pass
        self._end_all()

    def _step(self) -> bool:
        events = self._poll.poll(self._milliseconds_to_deadline())
        ready = {descriptor for descriptor, _ in events}
        if self._client_pidfd in ready:
            return False
        for descriptor in ready:
            if descriptor in self._runs:  # else its run finished earlier in this round
                self._advance(self._runs[descriptor], descriptor)
        # Last, because a new run may get descriptor numbers that an event of this round still speaks about.
        if self._control.fileno() in ready and not self._accept():
            return False
        now = time.monotonic()
        for run in {id(run): run for run in self._runs.values()}.values():
            if run.wake_at() <= now:
                run.attend(now)
        return True

    def _milliseconds_to_deadline(self) -> float | None:
        pending = [run.wake_at() for run in self._runs.values() if run.stop is None]
        return max(0.0, (min(pending) - time.monotonic()) * 1000 + 1) if pending else None

    def _accept(self) -> bool:
        request, descriptors = receive_request(self._control)
        if request is None:
            return False
        channel, particulars, declared = socket.socket(fileno=descriptors[0]), descriptors[1], descriptors[2:]
        channel.setblocking(False)
        try:
            self._start(request, channel, particulars, declared)
        except LayerMissing as missing:
            _refuse(channel, missing.layer, missing.reason)
        except OSError as error:  # no descriptor, process or memory left on this host: the next request may find some
            _refuse(channel, "setup", f"the host has no room for another process: {error}")
        finally:
            for descriptor in (particulars, *declared):
                os.close(descriptor)
        return True

    def _start(
        self, request: SpawnRequest, channel: socket.socket, particulars: int, declared: list[int]
    ) -> None:
        if request.policy.ablate and not self._ablation:
            raise LayerMissing(request.policy.ablate[0], "this fork server leaves no layer out")
        with contextlib.ExitStack() as undo, contextlib.ExitStack() as childs:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            undo.enter_context(ours)
            childs.enter_context(theirs)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            ours.setblocking(False)
            log_ours, log_theirs = os.pipe2(os.O_CLOEXEC)
            undo.callback(os.close, log_ours)
            childs.callback(os.close, log_theirs)
            os.set_blocking(log_ours, False)
            leaf = self._make_leaf(request)
            if leaf is not None:
                undo.callback(leaf.remove)
            pid = self._fork(request, particulars, tuple(declared), theirs.fileno(), log_theirs, leaf)
            watch = Watch(request.policy, leaf, many=request.tool)
            run = Run(request.policy, channel, ours, log_ours, pid, os.pidfd_open(pid), leaf, watch)
            undo.pop_all()
        for descriptor in run.descriptors():
            self._runs[descriptor] = run
            self._poll.register(descriptor, select.POLLIN)

    def _fork(
        self,
        request: SpawnRequest,
        particulars: int,
        declared: tuple[int, ...],
        stage_channel: int,
        log: int,
        leaf: cgroup.Leaf | None,
    ) -> int:
        plan = ChildPlan(
            entry=self._entries.get(request.entry, ""),
            policy=request.policy,
            particulars=particulars,
            descriptors=declared,
            stage_channel=stage_channel,
            log=log,
            roots=self._roots,
            namespaces=self._namespaces,
            zygote_pid=os.getpid(),
            leaf=leaf,
            outside_root=self._outside_root,
        )
        pid = os.fork() if leaf is None else leaf.fork()
        if pid == 0:
            (tool_stage.run_tool if request.tool else run_child)(plan)
        return pid

    def _make_leaf(self, request: SpawnRequest) -> cgroup.Leaf | None:
        policy = request.policy
        own_tasks = tool_stage.OWN_TASKS if request.tool else resource_limits.OWN_TASKS
        needed = bool(policy.devices) and policy.requires("cgroup")  # nothing else bounds the memory of that profile
        if self._cgroup_parent is None or not policy.attempts("cgroup"):
            if needed:
                raise LayerMissing("cgroup", "no cgroup v2 subtree is delegated, and a device needs its memory limit")
            return None
        self._sequence += 1
        try:
            return cgroup.make_leaf(self._cgroup_parent, self._sequence, policy, own_tasks)
        except LayerMissing:
            if needed:
                raise
            return None

    def _advance(self, run: Run, descriptor: int) -> None:
        if descriptor == run.pidfd:
            self._finish(run)
        elif descriptor == run.stages.fileno():
            if not run.read_stages():
                self._forget(descriptor)
        elif descriptor == run.log_descriptor:
            if not run.read_log():
                self._forget(descriptor)
        else:  # the client never writes on a run's channel: it was closed
            self._forget(descriptor)
            run.halt(OutcomeKind.KILLED, "the client closed the run")

    def _forget(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        del self._runs[descriptor]

    def _finish(self, run: Run) -> None:
        for descriptor in run.descriptors():
            if descriptor in self._runs:
                self._forget(descriptor)
        run.finish()

    def _end_all(self) -> None:
        for run in {id(run): run for run in self._runs.values()}.values():
            run.halt(OutcomeKind.KILLED, "the client left")
            while not readable(run.pidfd):
                time.sleep(0.001)
                if readable(run.stages.fileno()) and run.read_stages():
                    run.halt(OutcomeKind.KILLED, "the client left")
            self._finish(run)


def _refuse(channel: socket.socket, layer: str, detail: str) -> None:
    with contextlib.suppress(OSError), channel:
        send(channel, Ended(Outcome(OutcomeKind.REFUSED, layer=layer, detail=detail)))
