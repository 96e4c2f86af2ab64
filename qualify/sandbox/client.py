"""The trusted side of the sandbox: start a fork server, run confined processes, hold them, end them.

Invariants
1. The fork server starts from an empty environment, in its own session, with one socket and no other descriptor.
2. It ends with this process: it watches our pid, and our end of its socket closes with us. (A parent-death signal would
   be wrong here: it fires when the *thread* that started the process ends.)
3. Every method may be called from any thread; none of them belongs on an event loop.
4. After `wait` returned an outcome, or `close` returned, no process and no descriptor of the run is left.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

import msgspec

import qualify
from config.errors import HostError, InternalError
from qualify.sandbox import syscalls
from qualify.sandbox.entries import ENTRIES
from qualify.sandbox.layers import LAYERS
from qualify.sandbox.outcome import LOG_TAIL_BYTES, Outcome, OutcomeKind
from qualify.sandbox.policy import SandboxPolicy
from qualify.sandbox.run_state import SETUP_SECONDS
from qualify.sandbox.wire import (
    ARGUMENT_BYTES,
    DESCRIPTOR_COUNT,
    ClientMessage,
    Ended,
    Ready,
    SpawnRequest,
    Started,
    StartFailed,
    ZygoteConfig,
    receive_client,
    send,
)

_BOOT = """
import json, sys
config = json.loads(sys.argv[1])
sys.path[:] = config["python_path"]
import msgspec
from qualify.sandbox.wire import ZygoteConfig
from qualify.sandbox.zygote_main import main
main(msgspec.convert(config, ZygoteConfig))
"""
_GRACE_SECONDS = 10.0
_END_SECONDS = 5.0


class SandboxRefused(HostError):
    """An isolation layer is missing; `outcome.layer` names it. Nothing foreign ran."""

    def __init__(self, outcome: Outcome) -> None:
        layer = LAYERS.get(outcome.layer, LAYERS["setup"])
        super().__init__(
            "SANDBOX_LAYER_MISSING",
            f"isolation layer {outcome.layer!r} ({layer.purpose}) is missing: {outcome.detail.strip()}",
            hint=layer.fix,
        )
        self.outcome = outcome


class SandboxedProcess:
    """One confined process. Leaving its `with` block kills and reaps it."""

    def __init__(self, channel: socket.socket, ready: Ready, pidfds: Sequence[int], policy: SandboxPolicy) -> None:
        self.host_pid = ready.host_pid
        self.layers = ready.layers
        self._channel = channel
        self._reaper_pidfd, self._pidfd = pidfds
        self._give_up_at = time.monotonic() + policy.wall_seconds + _GRACE_SECONDS
        self._lock = threading.Lock()
        self._outcome: Outcome | None = None
        self._kill_asked = False

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
        if self._outcome is not None:
            return True
        try:
            tasks = os.listdir(f"/proc/{self.host_pid}/task")
        except (FileNotFoundError, ProcessLookupError):
            return True
        return all(_task_state(self.host_pid, task) in "TtZX" for task in tasks)

    def kill(self) -> None:
        """Kill the whole pid namespace. `wait` then reports `killed`, unless it had ended before."""
        with self._lock:
            if self._outcome is None:
                self._kill_asked = True
                _send_signal(self._reaper_pidfd, signal.SIGKILL)

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
        with self._lock:
            if self._outcome is None:
                if not _readable(self._channel, until):
                    if timeout is not None:
                        raise TimeoutError("the sandboxed process is still running")
                    _send_signal(self._reaper_pidfd, signal.SIGKILL)
                    self._release()
                    raise _zygote_gone("it did not enforce the wall limit")
                self._outcome = self._receive_outcome()
            return self._outcome

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

    def __enter__(self) -> Self:
        """Return self."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _signal(self, number: signal.Signals) -> None:
        with self._lock:
            if self._outcome is None:
                _send_signal(self._pidfd, number)

    def _receive_outcome(self) -> Outcome:
        message = _receive(self._channel)
        self._release()
        if not isinstance(message, Ended):
            raise _zygote_gone("it ended while its child was running")
        outcome = message.outcome
        if outcome.kind is OutcomeKind.KILLED and self._kill_asked:
            return replace(outcome, detail="killed on request")
        return outcome

    def _release(self) -> None:
        if self._channel.fileno() >= 0:
            self._channel.close()
            os.close(self._reaper_pidfd)
            os.close(self._pidfd)


class Zygote:
    """A warm fork server. Leaving its `with` block ends it and every child."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self.pid = process.pid
        self._process = process
        self._control = control
        self._lock = threading.Lock()

    @classmethod
    def start(
        cls,
        preload: tuple[str, ...] = (),
        *,
        start_timeout_seconds: float = 120.0,
        extra_entries: Mapping[str, str] | None = None,
        extra_python_path: Sequence[str] = (),
    ) -> Self:
        """Start a fork server that has imported `preload`.

        `extra_entries` and `extra_python_path` are for tests and benchmarks, which bring their own entries.
        Raises `HostError`: SANDBOX_LAYER_MISSING off x86_64 Linux or for an unreadable root, SANDBOX_ZYGOTE_FAILED
        when a module cannot be imported or the start takes too long, SANDBOX_ZYGOTE_THREADS when a module left threads.
        """
        if not syscalls.supported_architecture():
            raise SandboxRefused(Outcome(OutcomeKind.REFUSED, layer="architecture", detail="not x86_64 Linux"))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        errors = os.memfd_create("fork-server-errors")
        with theirs:
            config = _config(theirs.fileno(), preload, extra_entries or {}, extra_python_path)
            process = _launch(config, errors)
        zygote = cls(process, ours)
        try:
            zygote._await_start(start_timeout_seconds, errors)
        except BaseException:
            zygote.close()
            raise
        finally:
            os.close(errors)
        return zygote

    def spawn(
        self, entry: str, policy: SandboxPolicy, fds: Sequence[int] = (), argument: bytes = b""
    ) -> SandboxedProcess:
        """Fork a child, confine it, start `entry` in it and return.

        The child sees `fds` as 3, 4, 5, ...; the caller keeps its own copies. `argument` is at most 64 KiB.
        Raises `SandboxRefused` naming the missing layer, `HostError` SANDBOX_ZYGOTE_GONE when the fork server is dead,
        `InternalError` SANDBOX_BAD_SPAWN for arguments out of bounds.
        """
        if len(argument) > ARGUMENT_BYTES or len(fds) > DESCRIPTOR_COUNT or len(fds) + 8 > policy.open_files:
            raise InternalError("SANDBOX_BAD_SPAWN", "too long an argument or too many descriptors for one spawn.")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                with self._lock:
                    send(self._control, SpawnRequest(entry, policy, argument), (theirs.fileno(), *fds))
            except OSError as error:
                ours.close()
                raise _zygote_gone(str(error)) from error
        try:
            return self._await_ready(ours, policy)
        except BaseException:
            ours.close()
            raise

    def close(self) -> None:
        """End the fork server and every child; safe to call more than once."""
        with self._lock:
            self._control.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        """Return self."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _await_start(self, timeout_seconds: float, errors: int) -> None:
        answered = _readable(self._control, time.monotonic() + timeout_seconds)
        message = _receive(self._control) if answered else None
        match message:
            case Started():
                return
            case StartFailed(code="SANDBOX_LAYER_MISSING", reason=reason):
                name, _, detail = reason.partition(": ")
                raise SandboxRefused(Outcome(OutcomeKind.REFUSED, layer=name, detail=detail))
            case StartFailed(code=code, reason=reason):
                raise HostError(code, f"the fork server could not start: {reason}", hint=_START_HINT)
            case _:
                text = os.pread(errors, LOG_TAIL_BYTES, 0).decode("utf-8", "replace").strip()
                why = text.splitlines()[-1] if text else f"no answer within {timeout_seconds:g} s"
                raise HostError("SANDBOX_ZYGOTE_FAILED", f"the fork server could not start: {why}", hint=_START_HINT)

    def _await_ready(self, channel: socket.socket, policy: SandboxPolicy) -> SandboxedProcess:
        if not _readable(channel, time.monotonic() + SETUP_SECONDS + _GRACE_SECONDS):
            raise _zygote_gone("it does not answer")
        message, pidfds = receive_client(channel)
        match message:
            case Ready():
                return SandboxedProcess(channel, message, pidfds, policy)
            case Ended(outcome=outcome) if outcome.kind is OutcomeKind.REFUSED:
                raise SandboxRefused(outcome)
            case Ended(outcome=outcome):
                raise _zygote_gone(outcome.describe())
            case _:
                raise _zygote_gone("it ended during the spawn")


_START_HINT = "Run `cacheon doctor`; the modules a fork server preloads must import in this environment."


def _config(
    control: int, preload: tuple[str, ...], entries: Mapping[str, str], extra_path: Sequence[str]
) -> ZygoteConfig:
    root = os.path.dirname(os.path.dirname(os.path.abspath(qualify.__file__)))
    path = [entry for entry in sys.path if os.path.isabs(entry)]
    if root not in path:
        path.insert(0, root)
    return ZygoteConfig(
        control_descriptor=control,
        client_pid=os.getpid(),
        python_path=(*path, *extra_path),
        project_root=root,
        preload=preload,
        entries=dict(entries),
    )


def _launch(config: ZygoteConfig, errors: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-c", _BOOT, msgspec.json.encode(config).decode()]
    try:
        return subprocess.Popen(
            command,
            env={},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            pass_fds=(config.control_descriptor,),
            start_new_session=True,
            cwd="/",
        )
    except OSError as error:
        raise HostError("SANDBOX_ZYGOTE_FAILED", f"the fork server could not start: {error}", hint=_START_HINT) from error


def _receive(channel: socket.socket) -> ClientMessage | None:
    try:
        message, descriptors = receive_client(channel)
    except ConnectionResetError:
        return None
    for descriptor in descriptors:
        os.close(descriptor)
    return message


def _readable(channel: socket.socket, until: float) -> bool:
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    return bool(poll.poll(max(0.0, until - time.monotonic()) * 1000))


def _send_signal(pidfd: int, number: signal.Signals) -> None:
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return  # it ended by itself: the outcome will say how


def _task_state(pid: int, task: str) -> str:
    try:
        with open(f"/proc/{pid}/task/{task}/stat", "rb") as file:
            return chr(file.read().rpartition(b") ")[2][0])
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def _zygote_gone(why: str) -> HostError:
    return HostError(
        "SANDBOX_ZYGOTE_GONE",
        f"the fork server is gone: {why}.",
        hint="Start a new fork server and repeat the run; look for the kernel's out-of-memory messages.",
    )
