"""One confined process, or one group of ranks, in the hands of the trusted side.

Invariants
1. Every method may be called from any thread; none of them belongs on an event loop.
2. After `wait` returned an outcome, or `close` returned, no process and no descriptor of the run is left.
3. `freeze`, `resume` and `kill` go straight to the kernel: they need no answer of the fork server.
4. The ranks of a group are stopped, resumed and ended together; `host_pids` are theirs, in order.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from config.errors import HostError
from qualify.sandbox.closing import Closing
from qualify.sandbox.layers import LAYERS
from qualify.sandbox.member import Member, readable_by, send_signal
from qualify.sandbox.outcome import Outcome, OutcomeKind
from qualify.sandbox.policy import SandboxPolicy
from qualify.sandbox.wire import ClientMessage, Ended, Ready, receive_client

GRACE_SECONDS = 10.0
_END_SECONDS = 5.0


class SandboxRefused(HostError):  # noqa: N818 - named for the outcome it carries
    """An isolation layer is missing; `outcome.layer` names it. Nothing foreign ran."""

    def __init__(self, outcome: Outcome) -> None:
        layer = LAYERS.get(outcome.layer, LAYERS["setup"])
        super().__init__(
            "SANDBOX_LAYER_MISSING",
            f"isolation layer {outcome.layer!r} ({layer.purpose}) is missing: {outcome.detail.strip()}",
            hint=layer.fix,
        )
        self.outcome = outcome


class SandboxedProcess(Closing):
    """One confined process, or the ranks of one group. Leaving its `with` block kills and reaps it."""

    def __init__(self, channel: socket.socket, ready: Ready, pidfds: Sequence[int], policy: SandboxPolicy) -> None:
        self.host_pids = ready.host_pids
        self.layers = ready.layers
        self._channel = channel
        self._reaper_pidfd, *others = pidfds
        self._members = tuple(map(Member, ready.host_pids, others))
        self._give_up_at = time.monotonic() + policy.wall_seconds + GRACE_SECONDS
        self._lock = threading.Lock()
        self._waiting = threading.Lock()
        self._outcome: Outcome | None = None
        self._kill_asked = False

    @property
    def host_pid(self) -> int:
        """The pid of the process, or of rank 0."""
        return self.host_pids[0]

    def fileno(self) -> int:
        """Return a descriptor that polls readable when the outcome is there; -1 after `wait` returned it."""
        return self._channel.fileno()

    def freeze(self) -> None:
        """Stop every thread; the kernel does it within microseconds, `is_stopped` tells when it is done."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let every thread run again."""
        self._signal(signal.SIGCONT)

    def is_stopped(self) -> bool:
        """Say whether no thread of the process can run: all are stopped, or gone."""
        with self._lock:
            return self._outcome is not None or all(member.is_stopped() for member in self._members)

    def kill(self) -> None:
        """Kill the whole pid namespace. `wait` then reports `killed`, unless it had ended before."""
        with self._lock:
            if self._channel.fileno() >= 0:
                self._kill_asked = True
                send_signal(self._reaper_pidfd, signal.SIGKILL)

    def poll(self) -> Outcome | None:
        """Return the outcome if the process has ended, without waiting."""
        try:
            return self.wait(0.0)
        except TimeoutError:
            return None

    def wait(self, timeout: float | None = None) -> Outcome:
        """Return the outcome; the same one every time.

        Raises `TimeoutError` after `timeout` seconds, and `HostError` SANDBOX_ZYGOTE_GONE when the fork server died
        (its children die with it) or let the wall limit pass without ending the process.
        """
        until = self._give_up_at if timeout is None else time.monotonic() + timeout
        if not self._waiting.acquire(timeout=max(0.0, until - time.monotonic())):
            raise TimeoutError("another thread waits for the sandboxed process")
        try:
            if self._outcome is None:
                self._await_end(until, patient=timeout is None)
            assert self._outcome is not None
            return self._outcome
        finally:
            self._waiting.release()

    def close(self) -> None:
        """Kill, reap and release; safe to call at any time and more than once."""
        if self._outcome is not None or self._channel.fileno() < 0:
            return
        self.kill()
        try:
            self.wait(_END_SECONDS)
        except (TimeoutError, HostError):
            with self._lock:
                self._release()

    def _signal(self, number: signal.Signals) -> None:
        with self._lock:
            if self._channel.fileno() >= 0:
                for member in self._members:
                    member.send(number)

    def _await_end(self, until: float, *, patient: bool) -> None:
        if self._channel.fileno() < 0:
            raise fork_server_gone("the run was given up before")
        ended = readable_by(self._channel.fileno(), until)  # without the lock: freeze and kill stay possible
        if not ended and not patient:
            raise TimeoutError("the sandboxed process is still running")
        with self._lock:
            message = receive(self._channel) if ended else None
            if not isinstance(message, Ended):
                send_signal(self._reaper_pidfd, signal.SIGKILL)
            self._release()
            if not isinstance(message, Ended):
                raise fork_server_gone("it ended, or hung, while its child was running")
            self._outcome = message.outcome
            if self._outcome.kind is OutcomeKind.KILLED and self._kill_asked:
                self._outcome = replace(self._outcome, detail="killed on request")

    def _release(self) -> None:
        if self._channel.fileno() >= 0:
            self._channel.close()
            os.close(self._reaper_pidfd)
            for member in self._members:
                member.close()


def receive(channel: socket.socket) -> ClientMessage | None:
    """Return the next message without its descriptors, None when the fork server is gone."""
    try:
        message, descriptors = receive_client(channel)
    except ConnectionResetError:
        return None
    for descriptor in descriptors:
        os.close(descriptor)
    return message


def fork_server_gone(why: str) -> HostError:
    """Return the error for a dead or mute fork server."""
    return HostError(
        "SANDBOX_ZYGOTE_GONE",
        f"the fork server is gone: {why}.",
        hint="Start a new fork server and repeat the run; look for the kernel's out-of-memory messages.",
    )
