"""`qualify.sandbox.policy`: only sensible policies exist."""

from __future__ import annotations

import math
import resource
from typing import Any

import pytest

from config.errors import InternalError
from qualify.sandbox.policy import SandboxPolicy, nvidia_devices
from qualify.sandbox.resource_limits import hard_limits


@pytest.mark.parametrize(
    "fields",
    [
        {"memory_bytes": 0},
        {"cpu_seconds": 0},
        {"cpu_seconds": True},
        {"cpu_seconds": 1.5},
        {"wall_seconds": 0.0},
        {"wall_seconds": math.inf},
        {"wall_seconds": math.nan},
        {"output_bytes": 1},
        {"processes": 0},
        {"open_files": 3},
        {"cores": (-1,)},
        {"readonly": (("relative", "/bundle"),)},
        {"readonly": (("/tmp/../etc", "/bundle"),)},
        {"readonly": (("/tmp", "/usr/lib"),)},
        {"readonly": (("/tmp", "/"),)},
        {"readonly": (("/tmp", "/proc"),)},
        {"readonly": tuple((f"/tmp/{n}", f"/{n}") for n in range(65))},
        {"waive": ("userns",)},
        {"waive": ("no such layer",)},
        {"waive": ("devices",)},
        {"waive": ("bubblewrap",)},
        {"devices": ("/dev/mem",)},
        {"devices": ("/dev/nvidia0/../mem",)},
        {"devices": ("/dev/nvidia-caps/nvidia-cap1",)},
        {"devices": ("nvidia0",)},
    ],
)
def test_nonsense_is_refused(fields: dict[str, Any]) -> None:
    """A policy with a limit, path or waiver that makes no sense cannot be made."""
    with pytest.raises(InternalError) as caught:
        SandboxPolicy(**fields)
    assert caught.value.code == "SANDBOX_BAD_POLICY"


def test_waived_layers_are_not_required_but_tried() -> None:
    """Waiving a layer accepts its absence and still uses it where it exists."""
    policy = SandboxPolicy(waive=("landlock",))
    assert not policy.requires("landlock")
    assert policy.attempts("landlock")
    assert policy.requires("seccomp")


def test_the_nodes_of_a_device_are_a_closed_list() -> None:
    """A GPU's own node and the driver's three, and a policy accepts exactly such names."""
    nodes = nvidia_devices(0, 3)
    assert nodes == ("/dev/nvidia0", "/dev/nvidia3", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
    assert SandboxPolicy(devices=nodes).devices == nodes


def test_verification_expects_what_was_left_out_silently() -> None:
    """A layer left out is not expected, unless the gap is there to be found; a waived one never is."""
    assert not SandboxPolicy(ablate=("netns",)).expects("netns")
    assert SandboxPolicy(ablate=("netns",), ablate_silently=True).expects("netns")
    assert not SandboxPolicy(waive=("seccomp",)).expects("seccomp")


@pytest.mark.parametrize("devices", [(), nvidia_devices(0)])
def test_no_crash_wakes_a_handler_of_the_host(devices: tuple[str, ...]) -> None:
    """Where crashes are piped to a program, a limit of 0 does not keep the kernel from running it; 1 does."""
    assert hard_limits(SandboxPolicy(devices=devices), 2, 0, 0)[resource.RLIMIT_CORE] == (1, 1)
