"""How children end: each limit and each death has its own outcome, and the log is kept."""

from __future__ import annotations

import os
import signal

import pytest

from qualify.sandbox.client import Zygote
from qualify.sandbox.log_file import LogFile
from qualify.sandbox.outcome import LOG_TAIL_BYTES, Outcome, OutcomeKind, signal_name
from qualify.sandbox.policy import SandboxPolicy


def _misbehave(zygote: Zygote, how: bytes, policy: SandboxPolicy | None = None) -> Outcome:
    with zygote.spawn("misbehave", policy or SandboxPolicy(), argument=how) as child:
        return child.wait()


@pytest.mark.parametrize(
    ("how", "number"),
    [(b"segfault", signal.SIGSEGV), (b"abort", signal.SIGABRT), (b"kill", signal.SIGSYS)],
)
def test_a_crash_names_its_signal(zygote: Zygote, how: bytes, number: int) -> None:
    """A child that dies of a signal is `signaled` with that signal; it cannot pass for one that others killed."""
    outcome = _misbehave(zygote, how)
    assert (outcome.kind, outcome.signal, outcome.exit_status) == (OutcomeKind.SIGNALED, number, None)
    assert signal_name(number) in outcome.describe()


@pytest.mark.parametrize(
    ("how", "status"), [(b"exit", 7), (b"exit immediately", 9), (b"exit text", 1), (b"raise", 1), (b"print", 0)]
)
def test_an_exit_keeps_its_status(zygote: Zygote, how: bytes, status: int) -> None:
    """A child that exits, by itself or by an exception, is `exited` with its status."""
    outcome = _misbehave(zygote, how)
    assert (outcome.kind, outcome.exit_status, outcome.signal) == (OutcomeKind.EXITED, status, None)
    assert outcome.ok == (status == 0)


def test_output_and_traceback_are_in_the_log(zygote: Zygote) -> None:
    """Standard output and error land in one log, whatever the ending."""
    log = _misbehave(zygote, b"raise").log
    assert b"about to raise" in log
    assert b"ValueError: the reason" in log
    assert sorted(_misbehave(zygote, b"print").log.split()) == [b"hello", b"world"]


def test_running_too_long_is_a_wall_limit(zygote: Zygote) -> None:
    """The fork server ends a child at its wall limit although nobody waits for it."""
    with zygote.spawn("sleep", SandboxPolicy(wall_seconds=0.2)) as child:
        outcome = child.wait(10)
    assert outcome.kind is OutcomeKind.WALL_LIMIT
    assert outcome.wall_ns >= 200_000_000


@pytest.mark.parametrize("deaf", [b"", b"deaf"])
def test_burning_cpu_is_a_cpu_limit(zygote: Zygote, deaf: bytes) -> None:
    """CPU time is bounded, also for a child that ignores the warning signal."""
    with zygote.spawn("spin", SandboxPolicy(cpu_seconds=1), argument=deaf) as child:
        outcome = child.wait(30)
    assert outcome.kind is OutcomeKind.CPU_LIMIT
    assert outcome.signal in ({signal.SIGKILL} if deaf else {signal.SIGKILL, signal.SIGXCPU})


def test_eating_memory_is_a_memory_limit(zygote: Zygote) -> None:
    """An uncaught failed allocation is reported as the memory limit."""
    with zygote.spawn("eat_memory", SandboxPolicy(memory_bytes=256 << 20)) as child:
        assert child.wait(10).kind is OutcomeKind.MEMORY_LIMIT


def test_flooding_is_an_output_limit(zygote: Zygote) -> None:
    """Too much output kills; the tail of the log stays."""
    with zygote.spawn("flood", SandboxPolicy(output_bytes=100_000)) as child:
        outcome = child.wait(10)
    assert outcome.kind is OutcomeKind.OUTPUT_LIMIT
    assert outcome.log_bytes > 100_000
    assert len(outcome.log) == LOG_TAIL_BYTES


def test_a_fork_bomb_stays_one_process(zygote: Zygote) -> None:
    """A fork bomb makes no process and ends with the wall limit."""
    with zygote.spawn("fork_bomb", SandboxPolicy(wall_seconds=0.3)) as child:
        assert child.wait(10).kind is OutcomeKind.WALL_LIMIT


def test_a_fork_bomb_is_bounded_even_without_the_filter(zygote: Zygote) -> None:
    """Without the system-call filter the task limit is broken, which is seen, and the namespace dies as a whole."""
    with zygote.spawn("fork_bomb", SandboxPolicy(wall_seconds=10.0, ablate=("seccomp",), processes=16)) as child:
        assert child.wait(20).kind is OutcomeKind.PROCESS_LIMIT


def test_killing_is_reported_as_killed(zygote: Zygote) -> None:
    """A child that the trusted side ends is `killed`, and stays so."""
    with zygote.spawn("sleep", SandboxPolicy()) as child:
        assert child.poll() is None
        with pytest.raises(TimeoutError):
            child.wait(0.01)
        child.kill()
        child.kill()
        outcome = child.wait(10)
        assert outcome.kind is OutcomeKind.KILLED
        assert outcome.detail == "killed on request"
        assert child.wait() is outcome
        assert child.fileno() == -1
        child.kill()
        child.freeze()


def test_a_log_keeps_everything_in_its_file_and_counts_it() -> None:
    """Chunk by chunk, to the end of the pipe; an empty pipe that is still open is no end."""
    source, sink = os.pipe()
    os.set_blocking(source, False)
    log = LogFile()
    assert not log.take(source)
    for index in range(10):
        os.write(sink, bytes([index]) * 10_000)
        assert log.take(source)
    os.close(sink)
    assert not log.take(source)
    assert log.total_bytes == 100_000
    assert os.pread(log.descriptor, 100_001, 0) == b"".join(bytes([index]) * 10_000 for index in range(10))
    log.close()
    assert not log.take(source)  # a file that takes nothing ends no fork server
    os.close(source)
