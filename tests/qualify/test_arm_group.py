"""What the referee makes of the messages and ends of ranks: one fault, of the rank that caused it."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from qualify import arm_group
from qualify.arm_group import ArmGroup
from qualify.arm_handle import ArmError
from qualify.protocol import FRAME_BYTES, NONCE_BYTES, Failure, FrameKind, Reply, decode_call, encode_reply
from qualify.sandbox.outcome import Outcome, OutcomeKind
from qualify.starvation import CoreUse

Answer = Callable[[bytes], list[bytes]]  # nonce of the request -> messages
_NONCE = slice(8, 8 + NONCE_BYTES)
DEADLINE_MS = 60


def done(nonce: bytes) -> list[bytes]:
    """Answer rightly."""
    return [encode_reply(Reply(FrameKind.DONE, nonce))]


def nothing(_: bytes) -> list[bytes]:
    """Stay silent."""
    return []


def failing(text: str, failure: Failure = Failure.EXCEPTION) -> Answer:
    """Return an answer that reports a failure."""
    return lambda nonce: [encode_reply(Reply(FrameKind.FAILED, nonce, failure, text))]


class ScriptedRanks:
    """Two ranks that answer as soon as they are resumed. `ends` is how the group has ended, None while it lives."""

    def __init__(self, channels: list[socket.socket], pid: int) -> None:
        self.channels = channels
        self.host_pids = (pid, pid)
        self.host_pid = pid
        self.answers: list[Answer] = []
        self.hang_up: set[int] = set()
        self.ends: Outcome | None = None
        self.stopped = True
        self.requests: list[bytes] = []

    def resume(self) -> None:
        self.stopped = False
        answers, self.answers = self.answers, []
        for rank, (channel, answer) in enumerate(zip(self.channels, answers, strict=False)):
            request = channel.recv(FRAME_BYTES + 1)
            self.requests.append(request)
            for message in answer(request[_NONCE]):
                channel.send(message)
            if rank in self.hang_up:
                channel.close()

    def freeze(self) -> None:
        self.stopped = True

    def is_stopped(self) -> bool:
        return self.stopped

    def kill(self) -> None:
        self.ends = self.ends or Outcome(OutcomeKind.KILLED, signal=9)

    def wait(self, timeout: float | None = None) -> Outcome:
        if self.ends is None:
            raise TimeoutError
        return self.ends

    def close(self) -> None:
        pass


class NoMemory:
    """Memory that nobody looks at."""

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def no_process() -> int:
    """The number of a process that is gone: it never uses processor time."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        return process.pid


@pytest.fixture
def group(no_process: int) -> Iterator[tuple[ArmGroup, ScriptedRanks]]:
    """A group whose ranks are scripted."""
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    for ours, _ in pairs:
        ours.setblocking(False)
    ranks = ScriptedRanks([theirs for _, theirs in pairs], no_process)
    scripted: Any = ranks
    memory: Any = NoMemory()
    yield ArmGroup(scripted, [ours for ours, _ in pairs], memory, 0), ranks
    for pair in pairs:
        for end in pair:
            end.close()


def fault_of(made: ArmGroup) -> ArmError:
    """Ask once and return the fault."""
    with pytest.raises(ArmError) as caught:
        made.call(DEADLINE_MS)
    return caught.value


def test_right_answers_of_all_ranks_are_one_duration(group: tuple[ArmGroup, ScriptedRanks]) -> None:
    """Both were asked the same, and both stand still afterwards."""
    made, ranks = group
    ranks.answers = [done, done]
    assert made.call(DEADLINE_MS) > 0
    assert ranks.is_stopped()
    assert ranks.requests[0] == ranks.requests[1]


def test_every_rank_is_placed_where_its_own_tensors_lie(group: tuple[ArmGroup, ScriptedRanks]) -> None:
    """Offsets of all ranks in a row are dealt out in order."""
    made, ranks = group
    ranks.answers = [done, done]
    made.place(0, [8, 1024], [64, 128, 192, 256], DEADLINE_MS)
    assert [decode_call(request).offsets for request in ranks.requests] == [(64, 128), (192, 256)]


BAD: dict[str, tuple[list[Answer], str, str]] = {
    "one raises, the other waits": ([nothing, failing("odd")], "raised", "rank 1: odd"),
    "one raises, the other is done": ([done, failing("odd")], "raised", "rank 1: odd"),
    "both raise": ([failing("first"), failing("second")], "raised", "rank 0: first"),
    "one has no memory": ([failing("big", Failure.OUT_OF_MEMORY), nothing], "resource_limit", "rank 0: big"),
    "one babbles": ([done, lambda nonce: [b"x"]], "protocol", "rank 1: message of 1 bytes"),
    "one answers another call": ([done, lambda nonce: done(bytes(NONCE_BYTES))], "protocol", "rank 1"),
    "one answers twice": ([lambda nonce: done(nonce) * 2, done], "protocol", "rank 0 sent a message"),
    "one is ready again": ([done, lambda n: [encode_reply(Reply(FrameKind.READY, n))]], "protocol", "rank 1 answered"),
    "one is silent": ([done, nothing], "call_deadline", "no answer from rank 1 within 60 ms"),
    "both are silent": ([nothing, nothing], "call_deadline", "no answer from any rank within 60 ms"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_rank_is_one_fault(group: tuple[ArmGroup, ScriptedRanks], name: str) -> None:
    """The kind is the same as for one arm, and the text names the rank."""
    made, ranks = group
    ranks.answers, kind, words = BAD[name]
    fault = fault_of(made)
    assert (fault.kind, words in fault.detail) == (kind, True), fault.detail


def test_a_complaint_does_not_hide_the_death_that_caused_it(group: tuple[ArmGroup, ScriptedRanks]) -> None:
    """Rank 0 loses its connection because rank 1 was killed by the host: that is what counts."""
    made, ranks = group
    ranks.answers, ranks.hang_up = [failing("connection closed by peer"), nothing], {1}
    ranks.ends = Outcome(OutcomeKind.SIGNALED, signal=9, rank=1)
    fault = fault_of(made)
    assert fault.kind == "machine"
    assert "rank 1 was killed by signal SIGKILL" in fault.detail


def test_a_rank_that_said_why_it_ends_is_believed(group: tuple[ArmGroup, ScriptedRanks]) -> None:
    """Rank 1 gives up, ends, and takes rank 0 with it, which had no time to say anything."""
    made, ranks = group
    ranks.answers, ranks.hang_up = [nothing, failing("no such entry", Failure.ENTRY_MISSING)], {0, 1}
    ranks.ends = Outcome(OutcomeKind.EXITED, exit_status=0, rank=1)
    fault = fault_of(made)
    assert (fault.kind, fault.detail) == ("load_failed", "rank 1: no such entry")


def test_a_rank_that_ends_without_a_word_is_named(group: tuple[ArmGroup, ScriptedRanks]) -> None:
    """Its status is what is told, whatever the other one says."""
    made, ranks = group
    ranks.answers, ranks.hang_up = [done, nothing], {1}
    ranks.ends = Outcome(OutcomeKind.EXITED, exit_status=3, rank=1)
    fault = fault_of(made)
    assert (fault.kind, "rank 1 exited with status 3" in fault.detail) == ("crashed", True)


def test_a_rank_that_hangs_up_and_lives_on_is_ended(group: tuple[ArmGroup, ScriptedRanks]) -> None:
    """Without its channel it is as good as gone."""
    made, ranks = group
    ranks.answers, ranks.hang_up = [done, nothing], {1}
    fault = fault_of(made)
    assert (fault.kind, "rank 1 hung up" in fault.detail) == ("crashed", True)
    assert ranks.ends is not None


def test_ranks_that_never_got_the_core_are_the_machines(
    group: tuple[ArmGroup, ScriptedRanks], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deadline that passed while others had the core is nobody's fault, as for one arm."""
    made, ranks = group
    readings = iter([CoreUse(now, 0, now, 0) for now in (0, 0, 10**9, 10**9)])  # before and after, of both ranks
    monkeypatch.setattr(arm_group, "read_use", lambda pid, core: next(readings))
    ranks.answers = [done, nothing]
    assert fault_of(made).kind == "machine"


def test_a_word_between_two_calls_is_a_fault(group: tuple[ArmGroup, ScriptedRanks]) -> None:
    """A rank that speaks while it has to stand still is named."""
    made, ranks = group
    ranks.answers = [done, done]
    made.call(DEADLINE_MS)
    ranks.channels[1].send(b"late")
    fault = fault_of(made)
    assert (fault.kind, "rank 1 sent a message" in fault.detail) == ("protocol", True)


def test_a_rank_that_moved_is_a_fault(group: tuple[ArmGroup, ScriptedRanks]) -> None:
    """A group of which one process is seen running is not asked anything."""
    made, ranks = group
    ranks.stopped = False
    assert fault_of(made).kind == "protocol"
