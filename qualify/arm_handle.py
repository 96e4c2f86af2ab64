"""One arm as the referee holds it: frozen except while it serves exactly one call, timed from outside.

Invariants
1. The clock starts before the arm may run and stops after every one of its threads is seen stopped. Nothing an arm
   executes after its preparation lies outside a timed or a checked interval: its processor time has to be at the next
   call what it was at the end of the last one.
2. One call, one answer: a message that is missing, late, oversized, malformed, unsolicited or carries another nonce
   is an `ArmError`, never an exception of another kind and never data.
3. A fault names a kind of `scoring.incidents`; whose fault that is depends on the role and is decided there.
4. Closing an arm kills its whole process namespace.
"""

from __future__ import annotations

import math
import os
import secrets
import select
import signal
import socket
import time
from collections.abc import Sequence
from typing import NoReturn

import torch

from qualify.arm_plan import ArmPlan, encode_plan
from qualify.call_memory import CallMemory, Places
from qualify.environment import shares_core
from qualify.protocol import (
    FRAME_BYTES,
    NONCE_BYTES,
    Call,
    Failure,
    FrameKind,
    Malformed,
    Reply,
    decode_reply,
    encode_call,
    encode_go,
)
from qualify.sandbox.client import SandboxedProcess, Zygote
from qualify.sandbox.closing import Closing
from qualify.sandbox.outcome import Outcome, OutcomeKind
from qualify.sandbox.policy import SandboxPolicy
from qualify.starvation import SUSPENDED_NS, CoreUse, hindrance, read_use, wait_for
from qualify.stillness import Rest, ran_since, settle, woke_since
from scoring.attempt import ChildOutcome

_STOP_PATIENCE_NS = 2_000_000_000  # how long a stopped arm may take to come to rest
_RESTLESS_NS = 20_000_000  # from when on it is noted what keeps an arm from coming to rest
_TO_REST_NS = 100_000_000  # of processor time; whoever has used that and runs still does not want to rest
_STUMBLE_NS = 3_000_000  # a single run of a stopped arm that may have been the kernel's accident
_WAKES_MAX = 5  # of one arm; a thread that is preempted on its way into the stop arrives once more to finish it
_REAP_SECONDS = 10.0
WATCH_NS = 5_000_000  # how long an answer is watched for before the referee sleeps; most calls are shorter
PROMPT_PART = 10  # an answer within this part of the deadline is prompt
_END_SECONDS = 1.0  # how long an arm that hung up may take to be dead by itself

FAILURE_KINDS = {
    Failure.IMPORT_FAILED: "load_failed",
    Failure.ENTRY_MISSING: "load_failed",
    Failure.EXCEPTION: "raised",
    Failure.OUT_OF_MEMORY: "resource_limit",
    Failure.SIGNATURE: "signature",
}
_OUTCOME_KINDS = {
    OutcomeKind.EXITED: "crashed",
    OutcomeKind.SIGNALED: "crashed",
    OutcomeKind.WALL_LIMIT: "call_deadline",
    OutcomeKind.CPU_LIMIT: "resource_limit",
    OutcomeKind.MEMORY_LIMIT: "resource_limit",
    OutcomeKind.OUTPUT_LIMIT: "resource_limit",
    OutcomeKind.PROCESS_LIMIT: "resource_limit",
    OutcomeKind.DISK_LIMIT: "resource_limit",
}


class ArmError(Exception):
    """Something an arm did that ends the attempt. `kind` is a kind of `scoring.incidents`."""

    def __init__(self, kind: str, detail: str, outcome: ChildOutcome | None = None) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail
        self.outcome = outcome


class Arm(Closing):
    """A sandboxed process that runs implementations of one role. Use as a context manager."""

    def __init__(self, process: SandboxedProcess, control: socket.socket, memory: CallMemory, core: int) -> None:
        self.process = process
        self.memory = memory
        self.core = core
        self.identity = process_identity(process.host_pid)
        self.calls = 0
        self.prepare_ns = 0  # what its load-time halves took, all together
        self.last_output: tuple[Places, tuple[torch.Tensor, ...]] | None = None  # to be looked at again
        self._control = control
        self._rest = Rest(0, ())  # the reading of when it was last stopped
        self._wakes = 0  # how often it was put on the processor while it was stopped
        self._stumbled_ns = 0  # what it ran, once, while it was stopped
        self._watch = not shares_core(core)
        self._apart = core not in os.sched_getaffinity(0)
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)

    @classmethod
    def start(
        cls, zygote: Zygote, plan: ArmPlan, policy: SandboxPolicy, memory: CallMemory, *, deadline_ms: int
    ) -> Arm:
        """Fork an arm, wait until it has loaded its implementations, and leave it frozen.

        Raises `ArmError` for what the arm does, `HostError` when the sandbox refuses.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs:
            descriptors = (theirs.fileno(), *memory.descriptors)
            try:
                process = zygote.spawn("arm", policy, descriptors, encode_plan(plan))
            except BaseException:
                ours.close()
                raise
        arm = cls(process, ours, memory, policy.cores[0] if policy.cores else 0)
        try:
            arm._await_message(deadline_ms)
            arm._stop()
            arm._settle()
            if arm._take_answer(bytes.fromhex(plan.hello)).kind is not FrameKind.READY:
                raise ArmError("protocol", "the arm answered its start with something else than READY")
            arm._require_silence()
        except BaseException:
            arm.close()
            raise
        return arm

    def place(
        self,
        implementation: int,
        extents: Sequence[int],
        offsets: Sequence[int],
        deadline_ms: int,
        scalars: Sequence[float] = (),
    ) -> int:
        """Have the arguments of the next call built, before its inputs are written. Returns the ns it took.

        Raises `ArmError`.
        """
        nonce = secrets.token_bytes(NONCE_BYTES)
        call = Call(nonce, implementation, tuple(extents), tuple(offsets), scalars=tuple(scalars))
        return self._ask(encode_call(call), nonce, deadline_ms)

    def call(self, deadline_ms: int) -> int:
        """Run the placed call and return how long the arm was allowed to run, in ns. Raises `ArmError`."""
        self.calls += 1
        nonce = secrets.token_bytes(NONCE_BYTES)
        return self._ask(encode_go(nonce), nonce, deadline_ms)

    def prepare(self, implementation: int, extents: Sequence[int], offsets: Sequence[int], deadline_ms: int) -> int:
        """Run the load-time half on one set of weights and return how long it took, in ns. Raises `ArmError`."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        frame = encode_call(Call(nonce, implementation, tuple(extents), tuple(offsets), prepare=True))
        return self._ask(frame, nonce, deadline_ms)

    def _ask(self, frame: bytes, nonce: bytes, deadline_ms: int) -> int:
        """Let the arm run until it answered `frame`. It is frozen before and after."""
        self._require_silence()
        self.require_stillness()
        try:
            self._control.send(frame)
        except OSError:
            self._raise_end("the arm was gone before the call")
        started = time.monotonic_ns()
        self.process.resume()
        self._await_message(deadline_ms)
        self._stop()
        elapsed = time.monotonic_ns() - started
        self._settle()
        reply = self._take_answer(nonce)
        self._require_silence()
        if reply.kind is not FrameKind.DONE:
            raise ArmError("protocol", "the arm answered with something else than DONE")
        return elapsed

    def run_freely(self, seconds: float) -> None:
        """Let the arm run without a call, then freeze it again (to see what it still does)."""
        self.process.resume()
        time.sleep(seconds)
        self._stop()
        self._settle()

    def require_stillness(self) -> None:
        """Raise `ArmError` (protocol) when the arm is not frozen, or has run since it was.

        One short run may be an accident of the kernel's and is only noted (`require_steadiness`), a second one is not.
        """
        if not self.process.is_stopped():
            raise ArmError("protocol", "the arm was running although it had been stopped")
        self._rest = self._require_rest(self.process.host_pid, self._rest, "the arm")

    def _require_rest(self, pid: int, rest: Rest, who: str) -> Rest:
        """Compare a process with the reading of when it was stopped; return the reading to compare with from now on."""
        ran = ran_since(pid, rest)
        if ran > _STUMBLE_NS or (ran and self._stumbled_ns):
            raise ArmError("protocol", f"{who} ran for {ran // 1000} us while it had to stand still")
        if ran:
            self._stumbled_ns = ran
            rest = settle(pid)
        if woke_since(pid, rest):  # too short for a run, but not for an accident
            self._wakes += 1
            if self._wakes > _WAKES_MAX:
                raise ArmError("protocol", f"{who} woke {self._wakes} times while it had to stand still")
        return rest

    def require_steadiness(self) -> None:
        """Raise `ArmError` (machine) when the arm ran once while it had to stand still: its times prove nothing."""
        if self._stumbled_ns:
            raise ArmError("machine", f"a stopped arm was charged {self._stumbled_ns // 1000} us of processor time")

    def close(self) -> ChildOutcome:
        """Kill the arm, reap it and return how it ended. Raises `ArmError` (machine) when it does not end."""
        self.process.kill()
        try:
            return child_outcome(self._reaped())
        finally:
            self.process.close()
            self._hang_up()
            self.memory.close()

    def _reaped(self) -> Outcome:
        """Wait for the end of a process that was killed. Nothing that runs inside can put that off for so long."""
        try:
            return self.process.wait(_REAP_SECONDS)
        except TimeoutError as error:
            raise ArmError("machine", f"a process that was killed was still there {_REAP_SECONDS:g} s later") from error

    def _hang_up(self) -> None:
        self._control.close()

    def _await_message(self, deadline_ms: int) -> None:
        """Wait until the arm sent something, or hung up. Raises `ArmError` when it does neither in time.

        Waking up takes as long as a short call, so the referee watches first, where that takes nothing from the arm.
        """
        watched = time.monotonic_ns() + WATCH_NS if self._watch else 0
        while time.monotonic_ns() < watched:
            if self._poll.poll(0):
                return
        prompt_ms = deadline_ms // PROMPT_PART
        if not wait_for(self._poll, prompt_ms, apart=self._apart)[0]:  # the core's use is read only for slow calls
            use = self._read_use()
            if not wait_for(self._poll, deadline_ms - prompt_ms, apart=self._apart)[0]:
                self._raise_late(use, f"no answer within {deadline_ms} ms")

    def _take_answer(self, nonce: bytes) -> Reply:
        """Read the one message that is there; the arm is stopped by now."""
        try:
            message = self._control.recv(FRAME_BYTES + 1)
        except OSError:
            message = b""
        if not message:
            self._raise_end("the arm ended without an answer")
        reply = decode_reply(message)
        if isinstance(reply, Malformed):
            raise ArmError("protocol", reply.reason)
        if reply.nonce != nonce:
            raise ArmError("protocol", "the answer carries another nonce than the call")
        if reply.failure is not None:
            raise ArmError(FAILURE_KINDS[reply.failure], reply.text)
        return reply

    def _read_use(self) -> CoreUse:
        """Return what its threads and its core have done so far."""
        return read_use(self.process.host_pid, self.core)

    def _raise_late(self, before: CoreUse, what: str, enough_ns: float = math.inf) -> NoReturn:
        """Raise the fault of an arm that is late since the reading `before`: its own, unless the machine kept it.

        An arm that had the core for more than `enough_ns` had it for long enough.
        """
        after = self._read_use()
        reason = hindrance(before, after) if after.ran - before.ran <= enough_ns else ""
        self.process.kill()
        if reason:
            raise ArmError("machine", f"{what}, but {reason}")
        raise ArmError("call_deadline", what)

    def _stop(self) -> None:
        self.process.freeze()
        began = looked = time.monotonic_ns()
        limit, use = began + _STOP_PATIENCE_NS, None
        while not self.process.is_stopped():
            now = time.monotonic_ns()
            if self._apart and now - looked > SUSPENDED_NS:
                limit += now - looked
            looked = now
            if use is None and now - began > _RESTLESS_NS:
                use = self._read_use()
            if looked > limit:
                what = "the arm did not come to rest after it was stopped"
                self._raise_late(use or self._read_use(), what, _TO_REST_NS)

    def _settle(self) -> None:
        """Take the reading of the stopped arm, outside of every timed interval."""
        self._rest = settle(self.process.host_pid)

    def _require_silence(self) -> None:
        """Refuse a message nobody asked for; also notices that the arm is dead."""
        try:
            message = self._control.recv(FRAME_BYTES + 1)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if not message:
            self._raise_end("the arm ended between two calls")
        raise ArmError("protocol", "the arm sent a message that answers nothing")

    def _raise_end(self, what: str) -> None:
        self.process.resume()  # a frozen process cannot be reaped by its own namespace's first process
        kinds = {**_OUTCOME_KINDS, OutcomeKind.KILLED: "machine"}  # by others: an arm cannot reach its first process
        try:
            outcome = self.process.wait(_END_SECONDS)
        except TimeoutError:
            kinds[OutcomeKind.KILLED] = "crashed"  # by us: it hung up and lives on
            self.process.kill()
            outcome = self._reaped()
        kind = kinds.get(outcome.kind, "crashed")
        if outcome.signal == signal.SIGSYS:
            kind = "forbidden_call"
        if outcome.kind is OutcomeKind.SIGNALED and outcome.signal == signal.SIGKILL:
            # the host's memory killer, most likely: the sandbox leaves an arm no way to end like this by itself
            kind = "machine"
        raise ArmError(kind, f"{what}: {_describe_end(outcome, self._name(outcome.rank))}", child_outcome(outcome))

    def _name(self, rank: int) -> str:  # noqa: ARG002 - an arm is one process
        """Return what to call one of its processes."""
        return "it"


def child_outcome(outcome: Outcome) -> ChildOutcome:
    """Return the evidence form of a sandbox outcome."""
    return ChildOutcome(
        kind=str(outcome.kind),
        exit_status=outcome.exit_status if outcome.exit_status is not None else -1,
        signal=outcome.signal or 0,
        layer=outcome.layer,
    )


def _describe_end(outcome: Outcome, who: str) -> str:
    if outcome.kind is OutcomeKind.SIGNALED and outcome.signal is not None:
        name = signal.Signals(outcome.signal).name if outcome.signal in set(signal.Signals) else str(outcome.signal)
        hint = " (inputs are mapped read-only)" if outcome.signal == signal.SIGSEGV else ""
        return f"{who} was killed by signal {name}{hint}"
    if outcome.kind is OutcomeKind.EXITED:
        return f"{who} exited with status {outcome.exit_status}"
    return outcome.detail or f"the sandbox reports {outcome.kind}"


def process_identity(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            started = file.read().rpartition(b")")[2].split()[19].decode("ascii")
    except (OSError, IndexError):
        started = "gone"
    return f"{pid}:{started}"
