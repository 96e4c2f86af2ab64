"""What the referee makes of the messages of an arm, whatever they are: a typed fault, never another exception."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from qualify.arm_handle import Arm, ArmError
from qualify.arm_plan import ArmPlan, decode_plan
from qualify.protocol import FRAME_BYTES, NONCE_BYTES, Failure, FrameKind, Reply, encode_reply
from qualify.sandbox.outcome import Outcome, OutcomeKind
from qualify.sandbox.policy import SandboxPolicy
from qualify.starvation import CoreUse
from scoring.attempt import Incident, Role
from scoring.incidents import consequence

Answer = Callable[[bytes], list[bytes]]  # nonce of the request -> messages
_NONCE = slice(8, 8 + NONCE_BYTES)
DEADLINE_MS = 50


class ScriptedProcess:
    """A process that answers as soon as it is resumed, and ends as it is told to."""

    def __init__(self, channel: socket.socket, pid: int) -> None:
        self.host_pid = pid
        self.answer: Answer | None = None
        self.outcome = Outcome(OutcomeKind.KILLED, signal=9)
        self.lives = True  # until it is killed; else it has ended by itself with `outcome`
        self.killed = False
        self.stopped = True
        self.stops = True  # whether it comes to rest when it is stopped
        self._channel = channel

    def resume(self) -> None:
        self.stopped = False
        if self.answer is None:
            return
        answer, self.answer = self.answer, None
        request = self._channel.recv(FRAME_BYTES + 1)
        for message in answer(request[_NONCE]):
            self._channel.send(message)

    def freeze(self) -> None:
        self.stopped = self.stops

    def is_stopped(self) -> bool:
        return self.stopped

    def kill(self) -> None:
        self.stopped = self.killed = True
        self._channel.close()

    def wait(self, timeout: float | None = None) -> Outcome:
        if self.lives and not self.killed:
            raise TimeoutError
        return self.outcome

    def close(self) -> None:
        self._channel.close()


class NoMemory:
    """Memory that nobody looks at."""

    descriptors: tuple[int, ...] = ()
    closed = False

    def close(self) -> None:
        self.closed = True


@pytest.fixture(scope="module")
def no_process() -> int:
    """The number of a process that is gone: it never uses processor time."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        return process.pid


@pytest.fixture
def arm(no_process: int) -> Iterator[tuple[Arm, ScriptedProcess]]:
    """An arm whose process is scripted."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    process = ScriptedProcess(theirs, no_process)
    memory: Any = NoMemory()
    scripted: Any = process
    made = Arm(scripted, ours, memory, 0)
    yield made, process
    ours.close()
    theirs.close()


def done(nonce: bytes) -> bytes:
    """Return the right answer to a request."""
    return encode_reply(Reply(FrameKind.DONE, nonce))


def failed(failure: Failure) -> Answer:
    """Return an answer that reports `failure`."""
    return lambda nonce: [encode_reply(Reply(FrameKind.FAILED, nonce, failure, "why"))]


def fault_of(made: Arm) -> ArmError:
    """Ask once and return the fault."""
    with pytest.raises(ArmError) as caught:
        made.call(DEADLINE_MS)
    return caught.value


def test_a_right_answer_is_a_duration(arm: tuple[Arm, ScriptedProcess]) -> None:
    """One DONE with the nonce of the request, and the arm is frozen again."""
    made, process = arm
    process.answer = lambda nonce: [done(nonce)]
    assert made.call(DEADLINE_MS) > 0
    assert process.is_stopped()


BAD: dict[str, tuple[Answer, str]] = {
    "malformed": (lambda nonce: [b"\xff" * FRAME_BYTES], "protocol"),
    "truncated": (lambda nonce: [done(nonce)[:-1]], "protocol"),
    "oversized": (lambda nonce: [done(nonce) + b"\0"], "protocol"),
    "far oversized": (lambda nonce: [bytes(60_000)], "protocol"),
    "empty": (lambda nonce: [b""], "crashed"),
    "of another call": (lambda nonce: [done(bytes(NONCE_BYTES))], "protocol"),
    "of another kind": (lambda nonce: [encode_reply(Reply(FrameKind.READY, nonce))], "protocol"),
    "that is a request": (lambda nonce: [done(nonce)[:4] + bytes([FrameKind.PREPARE]) + done(nonce)[5:]], "protocol"),
    "of an unknown kind": (lambda nonce: [done(nonce)[:4] + b"\xee" + done(nonce)[5:]], "protocol"),
    "with bytes behind its text": (lambda nonce: [done(nonce)[:-1] + b"x"], "protocol"),
    "duplicated": (lambda nonce: [done(nonce), done(nonce)], "protocol"),
    "followed by a failure": (
        lambda nonce: [done(nonce), encode_reply(Reply(FrameKind.FAILED, nonce, Failure.EXCEPTION, "x"))],
        "protocol",
    ),
    "missing": (lambda nonce: [], "call_deadline"),
    "exception": (failed(Failure.EXCEPTION), "raised"),
    "out of memory": (failed(Failure.OUT_OF_MEMORY), "resource_limit"),
    "import": (failed(Failure.IMPORT_FAILED), "load_failed"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_message_is_a_fault(arm: tuple[Arm, ScriptedProcess], name: str) -> None:
    """Every message that is not one right answer ends the attempt with a known kind."""
    made, process = arm
    process.answer, kind = BAD[name]
    assert fault_of(made).kind == kind


def test_a_message_between_two_calls_is_a_fault(arm: tuple[Arm, ScriptedProcess]) -> None:
    """An answer that comes late, after the next request was due, is nobody's answer."""
    made, process = arm
    process.answer = lambda nonce: [done(nonce)]
    made.call(DEADLINE_MS)
    process._channel.send(done(bytes(NONCE_BYTES)))
    assert fault_of(made).kind == "protocol"


def test_a_flood_is_one_fault(arm: tuple[Arm, ScriptedProcess]) -> None:
    """More messages than the channel holds change nothing."""
    made, process = arm

    def flood(nonce: bytes) -> list[bytes]:
        process._channel.setblocking(False)
        try:
            while True:
                process._channel.send(b"\0" * FRAME_BYTES)
        except BlockingIOError:
            return []

    process.answer = flood
    assert fault_of(made).kind == "protocol"


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (Outcome(OutcomeKind.EXITED, exit_status=0), "crashed"),
        (Outcome(OutcomeKind.SIGNALED, signal=11), "crashed"),
        (Outcome(OutcomeKind.SIGNALED, signal=31), "forbidden_call"),
        (Outcome(OutcomeKind.SIGNALED, signal=9), "machine"),
        (Outcome(OutcomeKind.MEMORY_LIMIT), "resource_limit"),
        (Outcome(OutcomeKind.OUTPUT_LIMIT), "resource_limit"),
        (Outcome(OutcomeKind.CPU_LIMIT), "resource_limit"),
        (Outcome(OutcomeKind.WALL_LIMIT), "call_deadline"),
        (Outcome(OutcomeKind.KILLED, signal=9), "machine"),
    ],
)
def test_an_arm_that_hangs_up_is_asked_how_it_ended(
    arm: tuple[Arm, ScriptedProcess], outcome: Outcome, kind: str
) -> None:
    """The end of the channel is an answer; what it means is what the sandbox saw."""
    made, process = arm
    process.outcome, process.lives = outcome, False

    def hang_up(nonce: bytes) -> list[bytes]:
        process._channel.close()
        return []

    process.answer = hang_up
    assert fault_of(made).kind == kind


def test_an_arm_that_is_gone_before_the_call_is_a_fault(arm: tuple[Arm, ScriptedProcess]) -> None:
    """Nothing is sent into a closed channel."""
    made, process = arm
    process.outcome, process.lives = Outcome(OutcomeKind.SIGNALED, signal=11), False
    process._channel.close()
    assert fault_of(made).kind == "crashed"


def test_an_arm_that_hangs_up_and_lives_on_is_a_fault(arm: tuple[Arm, ScriptedProcess]) -> None:
    """It is killed for it, which is no excuse."""
    made, process = arm
    process._channel.close()
    assert fault_of(made).kind == "crashed"
    assert process.killed


def test_an_arm_that_runs_although_it_was_stopped_is_a_fault(arm: tuple[Arm, ScriptedProcess]) -> None:
    """It is not even asked."""
    made, process = arm
    process.stopped = False
    assert fault_of(made).kind == "protocol"


def test_an_arm_that_does_not_come_to_rest_is_a_fault(
    arm: tuple[Arm, ScriptedProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer is worth nothing while a thread runs."""
    monkeypatch.setattr("qualify.arm_handle._STOP_PATIENCE_NS", 1_000_000)
    made, process = arm
    process.answer, process.stops = lambda nonce: [done(nonce)], False
    assert fault_of(made).kind == "call_deadline"


def test_an_arm_that_the_machine_keeps_from_resting_is_no_fault_of_its_own(
    arm: tuple[Arm, ScriptedProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread sleeps in the kernel all the while, and no stop reaches it there."""
    monkeypatch.setattr("qualify.arm_handle._STOP_PATIENCE_NS", 1_000_000)
    monkeypatch.setattr("qualify.arm_handle._RESTLESS_NS", 0)
    stuck = frozenset({("7", 4)})
    readings = iter([CoreUse(0, 0, 0, 0, stuck=stuck), CoreUse(10**9, 0, 0, 10**9, stuck=stuck)])
    monkeypatch.setattr("qualify.arm_handle.read_use", lambda pid, core: next(readings))
    made, process = arm
    process.answer, process.stops = lambda nonce: [done(nonce)], False
    assert fault_of(made).kind == "machine"
    assert process.killed


def test_an_arm_that_has_the_core_and_does_not_rest_is_at_fault_on_a_busy_machine_too(
    arm: tuple[Arm, ScriptedProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It undoes the stop; others had the core most of the time, but it had it for long enough to come to rest."""
    monkeypatch.setattr("qualify.arm_handle._STOP_PATIENCE_NS", 1_000_000)
    monkeypatch.setattr("qualify.arm_handle._RESTLESS_NS", 0)
    readings = iter([CoreUse(0, 0, 0, 0), CoreUse(10**9, 2 * 10**8, 8 * 10**8, 0)])
    monkeypatch.setattr("qualify.arm_handle.read_use", lambda pid, core: next(readings))
    made, process = arm
    process.answer, process.stops = lambda nonce: [done(nonce)], False
    assert fault_of(made).kind == "call_deadline"


def test_an_arm_that_outlives_its_kill_is_the_machines(
    arm: tuple[Arm, ScriptedProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill that does not come through is no exception of its own, and everything is let go all the same."""

    def never(timeout: float | None = None) -> Outcome:
        raise TimeoutError

    made, process = arm
    monkeypatch.setattr(process, "wait", never)
    with pytest.raises(ArmError) as caught:
        made.close()
    assert caught.value.kind == "machine"
    assert made.memory.closed  # type: ignore[attr-defined]  # the stand-in


def test_an_arm_that_ran_while_it_was_stopped_is_a_fault(
    arm: tuple[Arm, ScriptedProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks as stopped as before, and its processor time moved."""
    made, process = arm
    process.answer = lambda nonce: [done(nonce)]
    made.call(DEADLINE_MS)
    monkeypatch.setattr("qualify.arm_handle.ran_since", lambda pid, rest: 5_000_000)
    fault = fault_of(made)
    assert (fault.kind, fault.detail) == ("protocol", "the arm ran for 5000 us while it had to stand still")


class ScriptedZygote:
    """A fork server whose one child says what it is told to say as soon as it is started."""

    def __init__(self, pid: int, answer: Answer) -> None:
        self.process: ScriptedProcess | None = None
        self._pid = pid
        self._answer = answer

    def spawn(
        self, entry: str, policy: SandboxPolicy, descriptors: tuple[int, ...], argument: bytes
    ) -> ScriptedProcess:
        channel = socket.socket(fileno=os.dup(descriptors[0]))
        for message in self._answer(bytes.fromhex(decode_plan(argument).hello)):
            channel.send(message)
        self.process = ScriptedProcess(channel, self._pid)
        return self.process


BAD_STARTS: dict[str, tuple[Answer, str]] = {
    "nothing": (lambda hello: [], "call_deadline"),
    "another nonce": (lambda hello: [encode_reply(Reply(FrameKind.READY, bytes(NONCE_BYTES)))], "protocol"),
    "another kind": (lambda hello: [done(hello)], "protocol"),
    "ready twice": (lambda hello: [encode_reply(Reply(FrameKind.READY, hello))] * 2, "protocol"),
    "ready and done": (lambda hello: [encode_reply(Reply(FrameKind.READY, hello)), done(hello)], "protocol"),
    "noise": (lambda hello: [b"\x00" * 7], "protocol"),
    "no entry": (failed(Failure.ENTRY_MISSING), "load_failed"),
    "another signature": (failed(Failure.SIGNATURE), "signature"),
}


@pytest.mark.parametrize("name", BAD_STARTS)
def test_a_bad_start_is_a_fault(no_process: int, name: str) -> None:
    """An arm is taken only after exactly one READY with the nonce it was started with."""
    answer, kind = BAD_STARTS[name]
    zygote: Any = ScriptedZygote(no_process, answer)
    memory: Any = NoMemory()
    plan = ArmPlan("norm.rmsnorm", "bfloat16", 1, bytes(range(NONCE_BYTES)).hex(), ())
    with pytest.raises(ArmError) as caught:
        Arm.start(zygote, plan, SandboxPolicy(), memory, deadline_ms=DEADLINE_MS)
    assert caught.value.kind == kind
    assert memory.closed


@pytest.mark.parametrize("kind", sorted({kind for _, kind in (*BAD.values(), *BAD_STARTS.values())}))
def test_every_fault_is_a_failure_of_the_candidate_or_a_repetition(kind: str) -> None:
    """A candidate fails by it; by the same fault of the baseline nobody does."""
    roles: tuple[Role, ...] = ("candidate", "baseline")
    for role in roles:
        meaning = consequence(Incident("block", 0, role, kind, "", None))
        assert meaning.outcome == ("FAIL" if role == "candidate" else "RETRY")
