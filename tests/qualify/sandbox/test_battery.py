"""The attack battery: what hostile code tries from inside, as root's node and as an ordinary user's."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sandbox_attacks
import sandbox_battery

from qualify.sandbox.client import Zygote
from qualify.sandbox.outcome import OutcomeKind
from qualify.sandbox.policy import SandboxPolicy

ORDINARY_UID = 4242
SIGSYS, SIGSEGV = 31, 11
ROOT = Path(__file__).parent.parent.parent.parent


def _assert_contained(results: dict[str, str]) -> None:
    expected = dict.fromkeys(sandbox_attacks.BLOCKED, ("blocked: ",))
    expected |= dict.fromkeys(sandbox_attacks.FATAL, (f"signal: {SIGSYS}",))
    expected |= {"32-bit call": (f"signal: {SIGSYS}", f"signal: {SIGSEGV}")}  # the latter where no such gate exists
    expected |= dict.fromkeys(sandbox_attacks.BOMBS, ("blocked: ", "limit: "))
    escaped = {
        name: results.get(name) for name, start in expected.items() if not results.get(name, "").startswith(start)
    }
    assert escaped == {}


def test_the_targets_are_real(facts: dict[str, Any]) -> None:
    """From outside, the listener accepts, the abstract socket accepts and the secret can be read."""
    socket.create_connection(("127.0.0.1", facts["port"]), timeout=5).close()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + facts["abstract"])
    assert Path(facts["secret"]).read_text() == "secret"


def test_every_attack_is_contained(zygote: Zygote, facts: dict[str, Any]) -> None:
    """Network, files, processes, privileges and kernel interfaces are out of reach; attack-only calls kill."""
    _assert_contained(sandbox_battery.run_battery(zygote, facts, sandbox_battery.policy_for(facts)))


@pytest.mark.skipif(os.geteuid() != 0, reason="the suite itself runs as an ordinary user already")
def test_every_attack_is_contained_for_an_ordinary_user(open_folder: Path) -> None:
    """The same battery holds when the node is not root."""
    os.chown(open_folder, ORDINARY_UID, ORDINARY_UID)
    command = [sys.executable, sandbox_battery.__file__, "--as-user", str(ORDINARY_UID), "--folder", str(open_folder)]
    environment = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["uid"] == ORDINARY_UID
    _assert_contained(answer["results"])


def test_a_child_sees_exactly_what_it_was_given(zygote: Zygote, facts: dict[str, Any], tmp_path: Path) -> None:
    """Descriptors, environment, processes, interfaces, identity and files inside are the declared ones."""
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "file.txt").write_text("content")
    policy = SandboxPolicy(readonly=((str(tmp_path / "bundle"), "/bundle"),), environment=(("MARK", "1"),), cores=(0,))
    names = sorted(sandbox_attacks.MEASURED)
    results, outcome = sandbox_battery.attack(zygote, facts, names, policy)
    assert outcome.ok, outcome.describe()
    assert results["descriptors"] == "allowed: [0, 1, 2, 3]"
    assert results["pids"] == "allowed: [2]"
    assert results["host load"] == results["host processors' time"] == "allowed: b''"
    assert results["kernel settings"] == "allowed: []"
    assert len(results["processor model"]) > len("allowed: b''")
    assert results["interfaces"].startswith(("allowed: ['lo']", "blocked: "))
    assert results["working folder"] == "allowed: /scratch"
    assert results["host name"] == "allowed: sandbox"
    assert results["cores"] == "allowed: [0]"
    assert results["use a thread"] == "allowed: [1]"
    assert results["use memory"] == "allowed: written"
    assert results["read a bind"] == "allowed: b'content'"
    assert results["list a bind"] == "allowed: ['file.txt']"
    assert results["write to a bind"].startswith("blocked: ")
    assert results["write to scratch"].startswith("allowed: ")
    assert json.loads(results["identity"].removeprefix("allowed: "))[:3] == [60_000] * 3


def test_the_environment_is_allow_listed(
    zygote: Zygote, facts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the node's environment reaches a child; only the fixed list and the policy's additions do."""
    monkeypatch.setenv("CACHEON_SECRET", "wallet password")
    with sandbox_battery.start_zygote() as fresh:
        assert Path(f"/proc/{fresh.pid}/environ").read_bytes() == b""
        policy = SandboxPolicy(environment=(("MARK", "1"),))
        source, sink = os.pipe()
        with fresh.spawn("environment", policy, [sink]) as child:
            os.close(sink)
            assert child.wait().ok
        with os.fdopen(source, "rb") as report:
            seen = json.loads(report.read())
    assert seen == {
        "HOME": "/scratch",
        "TMPDIR": "/scratch",
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "MARK": "1",
    }


def test_bombs_are_bounded(zygote: Zygote, facts: dict[str, Any]) -> None:
    """Threads, memory, descriptors, file size, files and scratch space stop at the policy's numbers, and say so."""
    mib = 1 << 20
    policy = SandboxPolicy(
        processes=8, memory_bytes=1024 * mib, open_files=64, file_bytes=4 * mib, scratch_bytes=8 * mib, wall_seconds=30
    )
    ended = {name: sandbox_battery.attack(zygote, facts, [name], policy) for name in sandbox_attacks.BOMBS}
    kinds = {name: outcome.kind for name, (_, outcome) in ended.items()}
    assert kinds == {
        "start threads without end": OutcomeKind.PROCESS_LIMIT,
        "take memory without end": OutcomeKind.EXITED,
        "take descriptors without end": OutcomeKind.EXITED,
        "write without end": OutcomeKind.DISK_LIMIT,
        "write one large file": OutcomeKind.DISK_LIMIT,
        "make files without end": OutcomeKind.DISK_LIMIT,
    }
    assert ended["take descriptors without end"][0] == {"take descriptors without end": "allowed: 60"}
    taken = ended["take memory without end"][0]["take memory without end"]
    assert int(taken.removeprefix("allowed: ")) <= 1024
