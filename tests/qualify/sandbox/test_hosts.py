"""Hosts and deaths: what is missing is named, what dies takes its children along, and nothing stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import sandbox_battery

from config.errors import HostError
from qualify.sandbox.client import Zygote
from qualify.sandbox.doctor_probe import LayerState, probe_layers
from qualify.sandbox.layers import LAYERS
from qualify.sandbox.outcome import OutcomeKind
from qualify.sandbox.policy import SandboxPolicy

PROGRAM = Path(__file__).with_name("sandbox_poor_host.py")
ENVIRONMENT = {"PYTHONPATH": str(sandbox_battery.ROOT), "PYTHONDONTWRITEBYTECODE": "1"}


def _run(mode: str) -> dict[str, Any]:
    command = [sys.executable, str(PROGRAM), mode]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("layer", ["userns", "proc"])
def test_a_host_without_a_layer_is_told_which(layer: str) -> None:
    """Where a layer cannot be had, nothing runs, and the error names the layer and the fix."""
    answer = _run(layer)
    assert answer["code"] == "SANDBOX_LAYER_MISSING"
    assert answer["layer"] == layer
    assert answer["hint"] == LAYERS[layer].fix
    assert answer["probe"][layer] == LayerState.MISSING
    assert answer["probe"]["seccomp"] == LayerState.UNKNOWN


def test_a_container_whose_only_user_is_root_works() -> None:
    """Root of a container without other users runs children too: outside it is an ordinary user."""
    answer = _run("container root")
    assert answer["outcome"] == "exited with status 0"
    assert answer["probe"]["verify"] == LayerState.PRESENT


@pytest.mark.parametrize("links", [1, 2])
def test_an_environment_behind_a_symbolic_link_works(tmp_path: Path, links: int) -> None:
    """The link comes with the folder that it leads to, also through another link."""
    prefix = Path(sys.prefix)
    for number in range(links):
        (tmp_path / f"environment{number}").symlink_to(prefix)
        prefix = tmp_path / f"environment{number}"
    code = (
        "import sys; from qualify.sandbox.doctor_probe import probe_layers\n"
        "print(sys.prefix, *(layer.name for layer in probe_layers() if layer.state in ('missing', 'unknown')))"
    )
    done = subprocess.run(
        [prefix / "bin/python", "-c", code], env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.split() == [str(prefix)], done.stderr


def test_the_probe_reports_every_layer_of_this_host() -> None:
    """On a host that runs the suite every layer is present, except those of profiles that it cannot serve."""
    findings = {finding.name: finding.state for finding in probe_layers()}
    assert list(findings) == list(LAYERS)
    for name in ("cgroup", "devices", "bubblewrap"):
        assert findings.pop(name) in {LayerState.PRESENT, LayerState.ABSENT}
    assert set(findings.values()) == {LayerState.PRESENT}


def test_the_death_of_the_fork_server_kills_its_children() -> None:
    """Children of a killed fork server die, and their holders get an error of the host."""
    zygote = sandbox_battery.start_zygote()
    children = [zygote.spawn("sleep", SandboxPolicy()) for _ in range(3)]
    children[0].freeze()
    tree = sandbox_battery.descendants(zygote.pid)
    assert len(tree) == 9  # stage 1, pid 1 and pid 2 of each
    os.kill(zygote.pid, signal.SIGKILL)
    sandbox_battery.wait_until(lambda: not any(map(sandbox_battery.alive, tree)))
    for child in children:
        with pytest.raises(HostError) as caught:
            child.wait(10)
        assert caught.value.code == "SANDBOX_ZYGOTE_GONE"
        child.close()
    with pytest.raises(HostError) as caught:
        zygote.spawn("sleep", SandboxPolicy())
    assert caught.value.code == "SANDBOX_ZYGOTE_GONE"
    zygote.close()


def test_the_death_of_the_client_ends_everything() -> None:
    """A client killed with SIGKILL leaves neither fork server nor children, frozen ones included."""
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), "client to kill"], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        pids = json.loads(client.stdout.readline())
        tree = [pids["zygote"], *sandbox_battery.descendants(pids["zygote"])]
        assert set(pids["children"]) < set(tree)
        assert all(map(sandbox_battery.alive, tree))
        client.kill()
        client.wait()
    sandbox_battery.wait_until(lambda: not any(map(sandbox_battery.alive, tree)))


def test_closing_the_fork_server_ends_its_children() -> None:
    """`close` returns when nothing is left."""
    zygote = sandbox_battery.start_zygote()
    child = zygote.spawn("spin", SandboxPolicy())
    tree = [zygote.pid, *sandbox_battery.descendants(zygote.pid)]
    zygote.close()
    zygote.close()
    assert not any(map(sandbox_battery.alive, tree))
    assert child.wait(5).kind is OutcomeKind.KILLED


def test_dropping_a_run_ends_it(zygote: Zygote) -> None:
    """Leaving the `with` block of a child kills and reaps it."""
    with zygote.spawn("spin", SandboxPolicy()) as child:
        pid = child.host_pid
        assert sandbox_battery.alive(pid)
    assert not sandbox_battery.alive(pid)


def grown(before: tuple[int, int, int, list[int]], now: tuple[int, int, int, list[int]]) -> bool:
    """Say whether there is more than before: of descriptors, mounts or processes."""
    counts = zip(before[:3], now[:3], strict=True)
    return any(later > first for first, later in counts) or not set(now[3]) <= set(before[3])


def test_a_hundred_bad_children_leave_nothing_behind(zygote: Zygote) -> None:
    """A hundred crashing, hanging and flooding children leave no process, descriptor or mount; the next one runs."""
    quick = SandboxPolicy(wall_seconds=0.05, memory_bytes=64 << 20, output_bytes=8192, processes=4)
    bad = [
        *(("misbehave", how) for how in (b"segfault", b"abort", b"kill", b"raise", b"exit immediately")),
        ("eat_memory", b""),
        ("flood", b""),
        ("fork_bomb", b""),
        ("sleep", b""),
        ("spin", b"deaf"),
    ]
    with zygote.spawn("misbehave", quick, argument=b"exit") as child:
        child.wait(10)
    time.sleep(0.1)  # the fork server closes its end of a run just after it told the outcome; later is no growth
    before = sandbox_battery.footprint(zygote)
    for _ in range(10):
        for entry, argument in bad:
            with zygote.spawn(entry, quick, argument=argument) as child:
                assert not child.wait(10).ok
    sandbox_battery.wait_until(lambda: not grown(before, sandbox_battery.footprint(zygote)))
    with zygote.spawn("misbehave", quick, argument=b"print") as child:
        assert child.wait(10).ok
