"""The trusted side of the sandbox: start a fork server and spawn confined processes.

Invariants
1. The fork server starts from an empty environment, in its own session, with one socket and no other descriptor.
2. It ends with this process: it watches our pid, and our end of its socket closes with us. (A parent-death signal would
   be wrong here: it fires when the *thread* that started the process ends.)
3. Every method may be called from any thread; none of them belongs on an event loop.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol, Self

import msgspec

import qualify
from config.errors import HostError, InternalError
from qualify.sandbox import syscalls
from qualify.sandbox.closing import Closing
from qualify.sandbox.entries import ENTRIES
from qualify.sandbox.forked import fork_server
from qualify.sandbox.member import readable_by
from qualify.sandbox.outcome import LOG_TAIL_BYTES, Outcome, OutcomeKind
from qualify.sandbox.policy import SandboxPolicy
from qualify.sandbox.process import (
    GRACE_SECONDS,
    SandboxedProcess,
    SandboxRefused,
    fork_server_gone,
    receive,
)
from qualify.sandbox.run_state import SETUP_SECONDS
from qualify.sandbox.wire import (
    ARGUMENT_BYTES,
    DESCRIPTOR_COUNT,
    Ended,
    Particulars,
    Ready,
    SpawnRequest,
    Started,
    StartFailed,
    ZygoteConfig,
    receive_client,
    send,
    write_particulars,
)

__all__ = ["SandboxRefused", "SandboxedProcess", "Zygote"]

_BOOT = """
import json, sys
config = json.loads(sys.argv[1])
sys.path[:] = config["python_path"]
import msgspec
from qualify.sandbox.wire import ZygoteConfig
from qualify.sandbox.zygote_main import main
main(msgspec.convert(config, ZygoteConfig))
"""
_START_SECONDS, _END_SECONDS = 120.0, 5.0


class ServerProcess(Protocol):
    """The process of a fork server: a `subprocess.Popen`, or a `qualify.sandbox.forked.Forked`."""

    @property
    def pid(self) -> int:
        """Its number."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises `subprocess.TimeoutExpired`."""
        ...

    def kill(self) -> None:
        """End it."""
        ...


class Zygote(Closing):
    """A warm fork server. Leaving its `with` block ends it and every child."""

    def __init__(self, process: ServerProcess, control: socket.socket, entries: frozenset[str]) -> None:
        self.pid = process.pid
        self._entries = entries
        self._process = process
        self._control = control
        self._lock = threading.Lock()

    @classmethod
    def start(
        cls,
        preload: tuple[str, ...] = (),
        *,
        start_timeout_seconds: float = _START_SECONDS,
        extra_entries: Mapping[str, str] | None = None,
        extra_python_path: Sequence[str] = (),
        ablation: bool = False,
    ) -> Self:
        """Start a fork server that has imported `preload`.

        `extra_entries` and `extra_python_path` are for tests and benchmarks, which bring their own entries, and so is
        `ablation`: only such a fork server accepts policies that leave a layer out.
        Raises `HostError`: SANDBOX_LAYER_MISSING off x86_64 Linux or for an unreadable root, SANDBOX_ZYGOTE_FAILED
        when a module cannot be imported or the start takes too long, SANDBOX_ZYGOTE_THREADS when a module left threads.
        """
        if not syscalls.supported_architecture():
            raise SandboxRefused(Outcome(OutcomeKind.REFUSED, layer="architecture", detail="not x86_64 Linux"))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        errors = os.memfd_create("fork-server-errors")
        with theirs:
            config = _config(theirs.fileno(), preload, extra_entries or {}, extra_python_path)
            config = msgspec.structs.replace(config, ablation=ablation)
            process = _launch(config, errors)
        zygote = cls(process, ours, frozenset({*ENTRIES, *config.entries}))
        try:
            zygote._await_start(start_timeout_seconds, errors)
        except BaseException:
            zygote.close()
            raise
        finally:
            os.close(errors)
        return zygote

    @classmethod
    def fork_off(cls, preload: tuple[str, ...] = ()) -> Self:
        """Fork a fork server off this process, which keeps what it has imported; torch is loaded once for both.

        Only for a process that was started as `start` starts one (an exec with an empty environment), runs one thread
        and knows no secret yet: arms inherit a copy of all of its memory. Raises as `start` does.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        errors = os.memfd_create("fork-server-errors", os.MFD_CLOEXEC)
        with theirs:
            config = _config(theirs.fileno(), preload, {}, ())
            zygote = cls(fork_server(config, errors), ours, frozenset(ENTRIES))
        try:
            zygote._await_start(_START_SECONDS, errors)
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

        The child sees `fds` as 3, 4, 5, ...; the caller keeps its own copies. `argument` is at most 64 KiB. For a group
        `fds` are those of rank 0, then as many of rank 1, and so on; each rank sees its own, as 3, 4, 5, ...
        Raises `SandboxRefused` naming the missing layer, `HostError` SANDBOX_ZYGOTE_GONE when the fork server is dead,
        `InternalError` SANDBOX_BAD_SPAWN for arguments out of bounds.
        """
        if len(argument) > ARGUMENT_BYTES or len(fds) > DESCRIPTOR_COUNT or len(fds) + 8 > policy.open_files:
            raise InternalError("SANDBOX_BAD_SPAWN", "too long an argument or too many descriptors for one spawn.")
        if len(fds) % policy.ranks:
            raise InternalError("SANDBOX_BAD_SPAWN", "every rank needs as many descriptors as the others.")
        if entry not in self._entries:
            raise InternalError("SANDBOX_BAD_SPAWN", f"no sandbox entry is called {entry!r}.")
        process, others = self._request(entry, policy, argument=argument, fds=fds)
        _close(others)
        return process

    def start_tool(self, command: Sequence[str], policy: SandboxPolicy) -> tuple[SandboxedProcess, int]:
        """Start a program inside bubblewrap; return it and a descriptor of its /scratch, which the caller closes.

        This is the raw form of `qualify.sandbox.exec_profile`, which also proves the profile on this host. Raises as
        `spawn` does; the layer is "bubblewrap" where the program is missing.
        """
        size = sum(len(os.fsencode(word)) + 1 for word in command)
        if not command or size > ARGUMENT_BYTES or policy.devices or policy.ablate:
            raise InternalError("SANDBOX_BAD_SPAWN", "a tool needs a command of at most 64 KiB, and no device.")
        process, others = self._request("", policy, command=tuple(command))
        return process, others[0]

    def _request(
        self,
        entry: str,
        policy: SandboxPolicy,
        *,
        argument: bytes = b"",
        command: tuple[str, ...] = (),
        fds: Sequence[int] = (),
    ) -> tuple[SandboxedProcess, list[int]]:
        request = SpawnRequest(entry, replace(policy, readonly=(), environment=()), tool=bool(command))
        particulars = write_particulars(Particulars(argument, command, policy.readonly, policy.environment))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                with self._lock:
                    send(self._control, request, (theirs.fileno(), particulars, *fds))
            except OSError as error:
                ours.close()
                raise fork_server_gone(str(error)) from error
            finally:
                os.close(particulars)
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

    def _await_start(self, timeout_seconds: float, errors: int) -> None:
        answered = readable_by(self._control.fileno(), time.monotonic() + timeout_seconds)
        message = receive(self._control) if answered else None
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

    def _await_ready(self, channel: socket.socket, policy: SandboxPolicy) -> tuple[SandboxedProcess, list[int]]:
        if not readable_by(channel.fileno(), time.monotonic() + SETUP_SECONDS + GRACE_SECONDS):
            raise fork_server_gone("it does not answer")
        message, pidfds = receive_client(channel)
        match message:
            case Ready():
                count = 1 + len(message.host_pids)
                return SandboxedProcess(channel, message, pidfds[:count], policy), pidfds[count:]
            case Ended(outcome=outcome) if outcome.kind is OutcomeKind.REFUSED:
                raise SandboxRefused(outcome)
            case Ended(outcome=outcome):
                raise fork_server_gone(outcome.describe())
            case _:
                raise fork_server_gone("it ended during the spawn")


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


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
        raise HostError(
            "SANDBOX_ZYGOTE_FAILED", f"the fork server could not start: {error}", hint=_START_HINT
        ) from error
