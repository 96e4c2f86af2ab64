"""Real cgroup v2 leaves, where a subtree is delegated: kernel-counted memory and tasks, and nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sandbox_battery
import sandbox_delegated

from qualify.sandbox import cgroup
from qualify.sandbox.client import SandboxRefused, Zygote
from qualify.sandbox.policy import SandboxPolicy, nvidia_devices

ORDINARY_UID = 4242
without_subtree = pytest.mark.skipif(cgroup.find_parent() is None, reason="no cgroup v2 subtree is delegated here")


def _run(*options: str) -> dict[str, Any]:
    command = [sys.executable, sandbox_delegated.__file__, *options]
    environment = {"PYTHONPATH": str(sandbox_battery.ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _assert_counted(results: dict[str, Any]) -> None:
    kinds = {name: said["kind"] for name, said in results.items() if isinstance(said, dict)}
    assert kinds == {
        "honest": "exited",
        "memory of a passed file": "memory_limit",
        "threads": "process_limit",
        "threads without the look": "process_limit",
    }
    assert all(said["cgroup"] for said in results.values() if isinstance(said, dict))
    assert results["memory of a passed file"]["detail"] == "the kernel killed it for memory"
    assert results["left behind"] == []


@without_subtree
def test_a_leaf_counts_what_limits_of_one_process_cannot() -> None:
    """Memory of passed files and short bursts of tasks end a run with their own type; the leaves are removed."""
    _assert_counted(_run()["results"])


@without_subtree
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can delegate a subtree to somebody else")
def test_an_ordinary_user_gets_leaves_in_a_delegated_subtree() -> None:
    """The same holds for a node that is not root and was given a subtree."""
    answer = _run("--as-user", str(ORDINARY_UID))
    assert answer["uid"] == ORDINARY_UID
    _assert_counted(answer["results"])


def _cgroup2_folder() -> Path | None:
    own = cgroup._own_folder()
    return Path(own[1]) if own is not None and os.access(own[1], os.W_OK) and os.geteuid() == 0 else None


@pytest.mark.skipif(_cgroup2_folder() is None, reason="no cgroup v2 folder is writable here")
def test_a_child_can_be_born_in_a_leaf() -> None:
    """A forked child is in the leaf from its first moment, forks on, starts threads and is reaped like any other."""
    folder = _cgroup2_folder()
    assert folder is not None
    leaf = folder / f"born-{os.getpid()}"
    leaf.mkdir()
    program = (
        "import os, sys, threading\n"
        "from qualify.sandbox.cgroup import Leaf\n"
        "pid = Leaf(sys.argv[1]).fork()\n"
        "if pid == 0:\n"
        "    inside = Leaf(sys.argv[1]).holds(os.getpid())\n"
        "    inner = os.fork()\n"
        "    if inner == 0:\n"
        "        thread = threading.Thread(target=int)\n"
        "        thread.start()\n"
        "        thread.join()\n"
        "        os._exit(5)\n"
        "    os._exit(os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]) + inside)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    environment = {"PYTHONPATH": str(sandbox_battery.ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        command = [sys.executable, "-c", program, str(leaf)]
        done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stderr) == (6, "")
    finally:
        leaf.rmdir()


@without_subtree
def test_leaves_of_a_dead_fork_server_are_swept(tmp_path: Path) -> None:
    """A leaf whose fork server is gone disappears when the next one starts; a living one's stays."""
    parent = cgroup.find_parent()
    assert parent is not None
    with subprocess.Popen(["/bin/true"]) as ended:
        ended.wait()
    dead, living = (Path(parent) / f"cacheon-{pid}-1" for pid in (ended.pid, os.getpid()))
    for leaf in (dead, living):
        leaf.mkdir()
    try:
        with Zygote.start():
            assert (dead.exists(), living.exists()) == (False, True)
    finally:
        living.rmdir()


@pytest.mark.skipif(cgroup.find_parent() is not None, reason="this host delegates a cgroup v2 subtree")
def test_a_device_without_a_memory_limit_is_refused(zygote: Zygote) -> None:
    """The GPU profile needs the cgroup's memory limit: without one it refuses, and names the layer."""
    with pytest.raises(SandboxRefused) as caught:
        zygote.spawn("sleep", SandboxPolicy(devices=nvidia_devices(0)))
    assert caught.value.outcome.layer == "cgroup"


@pytest.mark.skipif(os.path.exists("/dev/nvidia0"), reason="this host has such a device")
def test_a_missing_device_is_refused(zygote: Zygote) -> None:
    """A device that is not there refuses with the layer's name, also when the cgroup is waived."""
    with pytest.raises(SandboxRefused) as caught:
        zygote.spawn("sleep", SandboxPolicy(devices=nvidia_devices(0), waive=("cgroup",)))
    assert caught.value.outcome.layer == "devices"
