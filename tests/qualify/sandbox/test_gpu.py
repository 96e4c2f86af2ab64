"""The GPU profile on a real device: CUDA works inside, and nothing else opens."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sandbox_attacks
import sandbox_battery
import sandbox_cuda

from qualify.sandbox import cgroup
from qualify.sandbox.client import Zygote
from qualify.sandbox.outcome import OutcomeKind

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not os.path.exists("/dev/nvidia0"), reason="no /dev/nvidia0 on this machine"),
]


@pytest.fixture(scope="module")
def gpu_zygote() -> Iterator[Zygote]:
    """A fork server with torch, which has never touched a device."""
    with sandbox_cuda.start_zygote() as server:
        yield server


def test_cuda_works_inside(gpu_zygote: Zygote) -> None:
    """A child initialises the driver and multiplies matrices on the device, in its own cgroup leaf."""
    report, outcome = sandbox_cuda.run(gpu_zygote, "matmul", sandbox_cuda.policy())
    assert outcome.ok, outcome.log
    assert report["correct"]
    assert "devices" in outcome.layers
    assert ("cgroup" in outcome.layers) == (cgroup.find_parent() is not None)


def test_the_battery_holds_beside_a_live_context(gpu_zygote: Zygote, facts: dict[str, Any]) -> None:
    """With CUDA initialised in the same process all attacks fail but making a Unix socket, which leads nowhere."""
    names = [name for name in sandbox_attacks.BLOCKED if name != "use inherited descriptors"]  # the driver opens some
    results, outcome = sandbox_cuda.attack_beside_cuda(gpu_zygote, facts, names)
    assert outcome.ok, outcome.log
    through = {name for name, said in results.items() if not said.startswith("blocked: ")}
    assert through == {"make a Unix socket"}


def test_attack_only_calls_still_kill(gpu_zygote: Zygote, facts: dict[str, Any]) -> None:
    """The GPU filter kills on the same calls."""
    policy = sandbox_cuda.policy(facts)
    for name in sandbox_attacks.FATAL:
        said, outcome = sandbox_battery.attack(gpu_zygote, facts, [name], policy)
        assert said == {}, said
        assert outcome.signal in (31, 11), name


def test_an_endless_kernel_ends_with_its_process(gpu_zygote: Zygote, tmp_path: Path) -> None:
    """A kernel that never ends is ended by the wall limit, and the device serves the next child."""
    cubin = sandbox_cuda.compile_kernels(gpu_zygote, tmp_path)
    policy = sandbox_cuda.policy(cubin=cubin, wall_seconds=3.0)
    _, outcome = sandbox_cuda.run(gpu_zygote, "endless_kernel", policy, b"/cubin/kernels.cubin")
    assert outcome.kind is OutcomeKind.WALL_LIMIT
    report, outcome = sandbox_cuda.run(gpu_zygote, "cubin", sandbox_cuda.policy(cubin=cubin), b"/cubin/kernels.cubin")
    assert outcome.ok, outcome.log
    assert report["correct"]


def test_host_memory_is_bounded(gpu_zygote: Zygote) -> None:
    """Filling host memory ends in a memory limit although the address space is not limited."""
    _, outcome = sandbox_cuda.run(gpu_zygote, "touch_memory", sandbox_cuda.policy(memory_bytes=1 << 30))
    assert outcome.kind is OutcomeKind.MEMORY_LIMIT


def test_without_its_nodes_there_is_no_device(gpu_zygote: Zygote) -> None:
    """The CPU profile shows no device on a machine that has one."""
    _, outcome = sandbox_cuda.run(gpu_zygote, "matmul", sandbox_cuda.policy(devices=(), memory_bytes=64 << 30))
    assert outcome.kind is OutcomeKind.EXITED
    assert not outcome.ok
