"""Container runtimes and accelerators, by what their programs print."""

from __future__ import annotations

import pytest

from node.doctor.check import Finding, State, Subject
from node.doctor.containers import judge_runtimes, look_containers
from node.doctor.device import Driver, driver_version, judge_driver, judge_health, look_device
from node.doctor.tools import Answer, ask_tool, find_tool, version_in

GPU = "0, NVIDIA H200, 580.159.04, 143771, 0, 31, 0, 0x0000000000000000, Disabled"  # as an H200 says it
VERSION = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (builder@)  \n"
    "GCC version:  gcc version 15.3.0 (GCC) \n"
)


@pytest.mark.parametrize(
    ("versions", "contained", "state"),
    [
        ({}, False, State.PASS),
        ({}, True, State.SKIP),
        ({"runc": (1, 1, 12)}, True, State.PASS),
        ({"runc": (1, 1, 11)}, True, State.FAIL),
        ({"runc": (1, 1, 11)}, False, State.WARN),
        ({"nvidia-ctk": (1, 17, 7)}, True, State.FAIL),
        ({"nvidia-ctk": (1, 17, 8), "nvidia-container-cli": (1, 18, 0)}, True, State.PASS),
        ({"runc": ()}, True, State.PASS),
    ],
)
def test_runtimes(versions: dict[str, tuple[int, ...]], contained: bool, state: State) -> None:
    """Below the floor a runtime refuses a node inside a container, elsewhere it warns; its weakness is named."""
    finding = judge_runtimes(versions, contained=contained)
    assert finding.state is state
    if state is State.FAIL:
        assert finding.error is not None
        assert finding.error.code == "RUNTIME_VULNERABLE"
        assert "CVE-" in finding.seen


def test_this_machines_runtimes_are_looked_at() -> None:
    """Looking gives one line."""
    (finding,) = look_containers(Subject())
    assert finding.name == "machine.containers"


@pytest.mark.parametrize(
    ("driver", "kind", "state"),
    [
        (Driver("", ()), "cpu", State.SKIP),
        (Driver("", ()), "cuda", State.FAIL),
        (Driver("580.159.04", ()), "cuda", State.FAIL),
        (Driver("", ("nvidia0",)), "cpu", State.SKIP),
        (Driver("580.159.04", ("nvidia0",)), "cpu", State.PASS),
        (Driver("580.159.04", ("nvidia0",)), "cuda", State.PASS),
        (Driver("580.159.04", ("nvidia0",), ("nvidia-uvm",)), "cuda", State.FAIL),
        (Driver("580.159.04", ("nvidia0",), ("nvidia-uvm",)), "cpu", State.SKIP),
    ],
)
def test_driver(driver: Driver, kind: str, state: State) -> None:
    """No device is of no interest to a CPU arena and refuses any other."""
    assert judge_driver(driver, kind).state is state


@pytest.mark.parametrize(
    ("line", "state"),
    [
        (GPU, State.PASS),
        (GPU.replace(" 31,", " 88,"), State.WARN),
        (GPU.replace(" 31, 0,", " 31, 3,"), State.WARN),
        (GPU.replace(" 31, 0,", " 31, [N/A],"), State.PASS),
        (GPU.replace("0x0000000000000000", "0x0000000000000040"), State.WARN),
        (GPU.replace("0x0000000000000000", "0x0000000000000001"), State.PASS),
        (GPU.replace("Disabled", "Enabled"), State.PASS),
        ("what", State.WARN),
    ],
)
def test_health(line: str, state: State) -> None:
    """Heat, memory errors and throttling warn; idling does not."""
    (finding,) = judge_health(Answer(True, line))
    assert finding.state is state


def test_a_failing_tool_is_a_warning() -> None:
    """A tool that hangs or fails is itself what was seen."""
    (finding,) = judge_health(Answer(False, "no answer within 20 s"))
    assert finding.state is State.WARN
    assert "no answer" in finding.seen
    assert len(judge_health(Answer(True, f"{GPU}\n{GPU.replace('0, NV', '1, NV', 1)}"))) == 2


def test_the_drivers_own_file() -> None:
    """The version is read out of the driver's text, whichever kind of module it is."""
    assert driver_version(VERSION) == "580.159.04"
    assert driver_version("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54  Tue\n") == "535.54"
    assert driver_version("nothing") == ""
    findings: list[Finding] = list(look_device(Subject()))
    assert findings[0].name == "device.driver"


def test_tools() -> None:
    """Programs are found without PATH, cut short, and never waited for too long."""
    shell = find_tool("sh")
    assert shell is not None
    assert find_tool("no-such-program") is None
    assert ask_tool(shell, "-c", "echo runc version 1.1.12-ds1; echo no >&2").text == "runc version 1.1.12-ds1"
    assert not ask_tool(shell, "-c", "exit 3").ok
    assert not ask_tool(shell, "-c", "sleep 30", seconds=0.2).ok
    assert not ask_tool("/etc/hostname").ok
    assert version_in("runc version 1.1.12-ds1") == (1, 1, 12)
    assert version_in("none") == ()
