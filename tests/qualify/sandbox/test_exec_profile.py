"""The profile for compilers: real ones work, hostile ones reach nothing, and every ending has its type."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sandbox_attacks
import sandbox_battery
import sandbox_tools

from config.errors import HostError, InternalError
from qualify.sandbox.client import SandboxRefused, Zygote
from qualify.sandbox.exec_profile import OUTPUT, ExecProfile, run_tool
from qualify.sandbox.layers import LAYERS
from qualify.sandbox.outcome import Outcome, OutcomeKind
from qualify.sandbox.policy import SandboxPolicy, nvidia_devices
from qualify.sandbox.tool_stage import BUBBLEWRAP

pytestmark = pytest.mark.skipif(
    not any(os.access(path, os.X_OK) for path in BUBBLEWRAP), reason="bubblewrap is not installed"
)
ORDINARY_UID = 4242
SIGSYS, SIGSEGV = 31, 11
NVCC = os.path.realpath("/usr/local/cuda/bin/nvcc")  # the links on the way may lie outside the sandbox
SHELL = "/bin/sh"


@pytest.fixture(scope="module")
def profile() -> Iterator[ExecProfile]:
    """A proved profile on a fork server without any preload."""
    with sandbox_battery.start_zygote() as fork_server:
        yield ExecProfile(fork_server)


def _shell(profile: ExecProfile, script: str, output: Path | None = None, **limits: Any) -> Outcome:
    fields: dict[str, Any] = {"wall_seconds": 30.0, "processes": 8, "scratch_bytes": 8 << 20, **limits}
    return profile.run((SHELL, "-c", script), SandboxPolicy(**fields), output=output)


@pytest.mark.skipif(not os.access(sandbox_tools.COMPILER, os.X_OK), reason="there is no gcc")
def test_a_c_compiler_works(profile: ExecProfile, tmp_path: Path) -> None:
    """A compiler starts its passes, reads its input and leaves an object file, which is copied out."""
    outcome, compiled = sandbox_tools.compile_c(profile, tmp_path)
    assert outcome.ok, outcome.log
    assert compiled.startswith(b"\x7fELF")
    assert {"bubblewrap", "pidns", "mount", "no_new_privs", "verify"} <= set(outcome.layers)


@pytest.mark.skipif(not os.access(NVCC, os.X_OK), reason="there is no nvcc")
def test_a_cuda_compiler_works(profile: ExecProfile, tmp_path: Path) -> None:
    """`nvcc -cubin` runs its many programs and leaves device code."""
    for name in ("in", "out"):
        (tmp_path / name).mkdir(mode=0o755)
    (tmp_path / "in" / "unit.cu").write_text('extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }\n')
    policy = SandboxPolicy(memory_bytes=8 << 30, processes=32, wall_seconds=60.0)
    command = (NVCC, "-cubin", "-arch=sm_90", "/in/unit.cu", "-o", f"{OUTPUT}/unit.cubin")
    outcome = profile.run(command, policy, inputs=((str(tmp_path / "in"), "/in"),), output=tmp_path / "out")
    assert outcome.ok, outcome.log
    assert (tmp_path / "out" / "unit.cubin").read_bytes().startswith(b"\x7fELF")


def _assert_contained(results: dict[str, str]) -> None:
    blocked = set(sandbox_attacks.BLOCKED) - {*sandbox_tools.OPEN_TO_TOOLS, *sandbox_tools.NOT_RUN}
    expected: dict[str, tuple[str, ...]] = dict.fromkeys(blocked, ("blocked: ",))
    expected |= dict.fromkeys(sandbox_attacks.FATAL, (f"signal: {SIGSYS}",))
    expected |= {"32-bit call": (f"signal: {SIGSYS}", f"signal: {SIGSEGV}")}
    expected |= dict.fromkeys(sandbox_attacks.BOMBS, ("blocked: ", "limit: "))
    escaped = {
        name: results.get(name) for name, start in expected.items() if not results.get(name, "").startswith(start)
    }
    assert escaped == {}


def test_a_hostile_compiler_is_contained(profile: ExecProfile, facts: dict[str, Any]) -> None:
    """Network, home, wallet, other bundles, the node's processes and the kernel's doors are closed to tools too."""
    _assert_contained(sandbox_tools.hostile_battery(profile, facts))


@pytest.mark.skipif(os.geteuid() != 0, reason="the suite itself runs as an ordinary user already")
def test_a_hostile_compiler_is_contained_for_an_ordinary_user(open_folder: Path) -> None:
    """The same holds, and compilers work, when the node is not root."""
    os.chown(open_folder, ORDINARY_UID, ORDINARY_UID)
    command = [sys.executable, sandbox_tools.__file__, "--as-user", str(ORDINARY_UID), "--folder", str(open_folder)]
    environment = {"PYTHONPATH": str(sandbox_battery.ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["uid"] == ORDINARY_UID
    _assert_contained(answer["attacks"])
    if os.access(sandbox_tools.COMPILER, os.X_OK):
        assert answer["compiled"] == "exited with status 0"
        assert answer["bytes"] > 0


@pytest.mark.parametrize(
    ("script", "kind", "limits"),
    [
        ("exit 7", OutcomeKind.EXITED, {}),
        ("kill -SEGV $$", OutcomeKind.SIGNALED, {}),
        ("sleep 60", OutcomeKind.WALL_LIMIT, {"wall_seconds": 0.3}),
        ("sleep 60 & sleep 60 & exec sleep 60", OutcomeKind.WALL_LIMIT, {"wall_seconds": 0.3}),
        ("while :; do :; done", OutcomeKind.CPU_LIMIT, {"cpu_seconds": 1}),
        ("while :; do :; done & while :; do :; done & wait", OutcomeKind.CPU_LIMIT, {"cpu_seconds": 1}),
        ("while :; do echo flood; done", OutcomeKind.OUTPUT_LIMIT, {"output_bytes": 10_000}),
        ("for i in 1 2 3 4 5 6 7 8; do sleep 60 & done; wait", OutcomeKind.PROCESS_LIMIT, {}),
        ("cat /dev/zero > one; cat /dev/zero > two; sleep 60", OutcomeKind.DISK_LIMIT, {"file_bytes": 6 << 20}),
        ("exec dd if=/dev/zero of=one bs=1M", OutcomeKind.DISK_LIMIT, {"file_bytes": 2 << 20}),
    ],
)
def test_every_ending_has_its_type(
    profile: ExecProfile, script: str, kind: OutcomeKind, limits: dict[str, Any]
) -> None:
    """Limits hold for the whole tree of a tool, and the outcome names the one that was broken."""
    assert _shell(profile, script, **limits).kind is kind


def test_memory_is_counted_over_all_processes(profile: ExecProfile) -> None:
    """Several processes that stay below the limit one by one do not share more than it."""
    program = "import os, time; [os.fork() for _ in range(2)]; x = bytearray(b'x') * (96 << 20); time.sleep(60)"
    policy = SandboxPolicy(memory_bytes=256 << 20, wall_seconds=30.0)
    assert profile.run((sys.executable, "-I", "-S", "-c", program), policy).kind is OutcomeKind.MEMORY_LIMIT


def test_only_regular_files_of_a_finished_tool_come_back(profile: ExecProfile, tmp_path: Path) -> None:
    """Links, pipes and unreadable files stay behind, names cannot leave the folder, and copies cannot be executed."""
    script = (
        "mkdir -p out/a/b; echo yes > out/a/b/file; ln -s /etc/passwd out/link; mkfifo out/pipe; ln -s / out/folder;"
        " echo no > out/hidden; chmod 0 out/hidden; chmod 4777 out/a/b/file"
    )
    outcome = _shell(profile, script, tmp_path)
    assert outcome.ok, outcome.log
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file() or path.is_symlink()}
    assert found - {"hidden"} == {"a/b/file"}  # root may read what its owner may not
    assert (tmp_path / "a/b/file").read_text() == "yes\n"
    assert not (tmp_path / "a/b/file").stat().st_mode & 0o7111


@pytest.mark.parametrize(
    "script", ["echo x > out/file; exit 1", "rm -r out; ln -s /usr out", "rm -r out; echo x > out"]
)
def test_nothing_comes_back_from_a_tool_that_failed_or_cheated(
    profile: ExecProfile, tmp_path: Path, script: str
) -> None:
    """A failed tool, and one that replaced the folder, deliver nothing."""
    _shell(profile, script, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_output_that_cannot_be_stored_is_the_hosts_fault(profile: ExecProfile, tmp_path: Path) -> None:
    """A target folder that cannot be written is reported as such."""
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError) as caught:
        _shell(profile, "echo x > out/x", tmp_path / "file")
    assert caught.value.code == "SANDBOX_OUTPUT_UNWRITABLE"


def test_many_runs_leave_nothing_behind(profile: ExecProfile, tmp_path: Path) -> None:
    """Good and bad tools leave no process, descriptor, mount or file; the next one works."""
    fork_server = profile._fork_server
    limits: dict[str, Any] = {"wall_seconds": 0.2, "output_bytes": 8192, "processes": 4}
    assert _shell(profile, "exit 0").ok
    before = sandbox_battery.footprint(fork_server)
    for _ in range(4):
        for script in ("exit 0", "kill -9 $$", "setsid sleep 60 & exit 0", "while :; do echo x; done", "sleep 60"):
            _shell(profile, script, **limits)
    sandbox_battery.wait_until(lambda: sandbox_battery.footprint(fork_server) == before)
    assert _shell(profile, "exit 0").ok


def test_a_missing_bubblewrap_is_named(tmp_path: Path) -> None:
    """Where the program is not installed nothing runs, and the error says how to get it."""
    (tmp_path / "hides_bubblewrap.py").write_text(
        "from qualify.sandbox import tool_stage\ntool_stage.BUBBLEWRAP = ('/nonexistent/bwrap',)\n"
    )
    with Zygote.start(("hides_bubblewrap",), extra_python_path=[str(tmp_path)]) as fork_server:
        with pytest.raises(SandboxRefused) as caught:
            run_tool(fork_server, (SHELL, "-c", "exit 0"), SandboxPolicy())
    assert caught.value.outcome.layer == "bubblewrap"
    assert caught.value.hint == LAYERS["bubblewrap"].fix


@pytest.mark.parametrize(
    ("command", "policy"),
    [
        ((), SandboxPolicy()),
        (("/bin/echo", "x" * 70_000), SandboxPolicy()),
        ((SHELL,), SandboxPolicy(devices=nvidia_devices(0))),
        ((SHELL,), SandboxPolicy(ablate=("netns",))),
    ],
)
def test_a_tool_gets_no_device_and_keeps_every_layer(
    profile: ExecProfile, command: tuple[str, ...], policy: SandboxPolicy
) -> None:
    """Requests that make no sense for a tool are errors of the caller."""
    with pytest.raises(InternalError) as caught:
        profile.run(command, policy)
    assert caught.value.code == "SANDBOX_BAD_SPAWN"
