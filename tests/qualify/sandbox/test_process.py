"""Holding a child: freezing, sealed memory, refusals."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import threading
import time
from pathlib import Path

import pytest

from config.errors import HostError, InternalError
from qualify.sandbox.client import SandboxRefused, Zygote
from qualify.sandbox.layers import LAYERS
from qualify.sandbox.outcome import OutcomeKind
from qualify.sandbox.policy import SandboxPolicy
from qualify.sandbox.process import SandboxedProcess

F_SEAL_FUTURE_WRITE = 0x10


def _wait_until(condition: object, seconds: float = 120.0) -> None:
    assert callable(condition)
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "condition never held"
        time.sleep(0.001)


def _freeze(child: SandboxedProcess) -> None:
    child.freeze()
    _wait_until(child.is_stopped)


def test_a_frozen_child_runs_no_thread(zygote: Zygote) -> None:
    """While frozen neither of two counting threads moves; after `resume` both do; a frozen child can be killed."""
    memory = os.memfd_create("counters")
    os.ftruncate(memory, 4096)
    with mmap.mmap(memory, 4096) as area, zygote.spawn("count", SandboxPolicy(processes=4), [memory]) as child:
        os.close(memory)
        _wait_until(lambda: any(area[:8]) and any(area[8:16]))
        assert not child.is_stopped()
        for _ in range(5):
            _freeze(child)
            before = area[:16]
            time.sleep(0.01)
            assert area[:16] == before
            child.resume()
            _wait_until(lambda seen=before: area[:8] != seen[:8] and area[8:16] != seen[8:16])
        _freeze(child)
        child.kill()
        assert child.wait(10).kind is OutcomeKind.KILLED
        assert child.is_stopped()


def test_the_wall_limit_ends_a_frozen_child(zygote: Zygote) -> None:
    """A child that is frozen and forgotten does not stay."""
    with zygote.spawn("sleep", SandboxPolicy(wall_seconds=0.2)) as child:
        child.freeze()
        assert child.wait(10).kind is OutcomeKind.WALL_LIMIT


def test_a_kill_does_not_wait_for_a_waiting_thread(zygote: Zygote) -> None:
    """One thread may wait for the outcome while another ends the child."""
    with zygote.spawn("sleep", SandboxPolicy()) as child:
        outcomes = []
        waiter = threading.Thread(target=lambda: outcomes.append(child.wait(30)))
        waiter.start()
        time.sleep(0.02)
        child.kill()
        waiter.join(120)
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.KILLED]


def test_sealed_memory_can_be_read_and_not_changed(zygote: Zygote) -> None:
    """A memfd sealed against future writes stays as it is, also when reopened through /proc; the owner still writes."""
    memory = os.memfd_create("input", os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, 8192)
    source, sink = os.pipe()
    try:
        with mmap.mmap(memory, 8192) as owner:
            owner[:] = os.urandom(8192)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | F_SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL
            fcntl.fcntl(memory, fcntl.F_ADD_SEALS, seals)
            owner[:16] = b"written-by-owner"
            content = owner[:]
            with zygote.spawn("deface", SandboxPolicy(), [memory, sink]) as child:
                outcome = child.wait(10)
            assert outcome.ok, outcome.log
            results = json.loads(os.read(source, 65536))
            assert owner[:] == content
    finally:
        for descriptor in (memory, source, sink):
            os.close(descriptor)
    assert bytes.fromhex(results.pop("content")) == b"written-by-owner"
    assert {name: said for name, said in results.items() if not said.startswith("blocked: ")} == {}


def test_a_missing_bind_is_refused_by_the_layer_s_name(zygote: Zygote) -> None:
    """What cannot be put in place refuses with the layer, the reason and the fix; nothing foreign runs."""
    policy = SandboxPolicy(readonly=(("/nonexistent/folder", "/bundle"),))
    with pytest.raises(SandboxRefused) as caught:
        zygote.spawn("sleep", policy)
    error = caught.value
    assert error.code == "SANDBOX_LAYER_MISSING"
    assert error.outcome.kind is OutcomeKind.REFUSED
    assert error.outcome.layer == "mount"
    assert "/nonexistent/folder" in error.message
    assert error.hint == LAYERS["mount"].fix


def test_impossible_cores_are_refused(zygote: Zygote) -> None:
    """Pinning to a core that does not exist refuses instead of running somewhere else."""
    with pytest.raises(SandboxRefused) as caught:
        zygote.spawn("sleep", SandboxPolicy(cores=(1000,)))
    assert caught.value.outcome.layer == "cores"


def test_a_refusal_does_not_hurt_the_fork_server(zygote: Zygote) -> None:
    """After refusals the next child runs."""
    with zygote.spawn("misbehave", SandboxPolicy(), argument=b"print") as child:
        assert child.wait(10).ok


def test_bad_spawns_are_refused_before_they_are_sent(zygote: Zygote) -> None:
    """An unknown entry, a long argument and too many descriptors are errors of the caller."""
    for arguments in (("unknown", (), b""), ("sleep", (), bytes(100_000)), ("sleep", tuple(range(70)), b"")):
        entry, descriptors, argument = arguments
        with pytest.raises(InternalError) as caught:
            zygote.spawn(entry, SandboxPolicy(), descriptors, argument)
        assert caught.value.code == "SANDBOX_BAD_SPAWN"


def test_a_descriptor_at_any_number_arrives_at_three(zygote: Zygote) -> None:
    """Declared descriptors are 3, 4, ... inside, in the order given, whatever their numbers outside."""
    source, sink = os.pipe()
    high = fcntl.fcntl(sink, fcntl.F_DUPFD_CLOEXEC, 200)
    null = os.open("/dev/null", os.O_RDWR)
    try:
        with zygote.spawn("attack", SandboxPolicy(), [high, null], b'{"attacks": ["descriptors"]}') as child:
            assert child.wait(10).ok
        assert json.loads(os.read(source, 4096)) == {"descriptors": "allowed: [0, 1, 2, 3, 4]"}
    finally:
        for descriptor in (source, sink, high, null):
            os.close(descriptor)


def test_children_run_side_by_side(zygote: Zygote) -> None:
    """Several live children have their own uids (for a root node), pids and outcomes."""
    children = [zygote.spawn("sleep", SandboxPolicy()) for _ in range(4)]
    try:
        owners = {Path(f"/proc/{child.host_pid}").exists() and _real_uid(child.host_pid) for child in children}
        assert len(owners) == (4 if os.geteuid() == 0 else 1)
        children[2].kill()
        assert children[2].wait(10).kind is OutcomeKind.KILLED
        assert [child.poll() for child in (children[0], children[1], children[3])] == [None] * 3
    finally:
        for child in children:
            child.close()


def _real_uid(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Uid:")).split()[1])


def test_a_module_that_leaves_a_thread_cannot_be_preloaded(tmp_path: Path) -> None:
    """A fork server with a second thread does not serve."""
    (tmp_path / "leaves_thread.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    )
    with pytest.raises(HostError) as caught:
        Zygote.start(("leaves_thread",), extra_python_path=[str(tmp_path)])
    assert caught.value.code == "SANDBOX_ZYGOTE_THREADS"


@pytest.mark.parametrize("program", ["raise RuntimeError('broken module')", "import os\nos.abort()"])
def test_a_module_that_fails_names_its_failure(tmp_path: Path, program: str) -> None:
    """A preload that raises or crashes ends in one error, not in a hang."""
    (tmp_path / "broken_preload.py").write_text(program)
    with pytest.raises(HostError) as caught:
        Zygote.start(("broken_preload",), extra_python_path=[str(tmp_path)])
    assert caught.value.code == "SANDBOX_ZYGOTE_FAILED"
