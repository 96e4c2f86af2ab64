"""Accelerators: what the driver shows, and how they feel.

Invariants
1. A machine without a device serves CPU arenas; only an arena of another kind makes a device required.
2. The driver is asked through its own files and `nvidia-smi`, never through a library that could hang this process.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from config.arena import load_arena
from config.errors import CacheonError, HostError
from node.doctor.check import Finding, Subject, failed, passed, skipped, warned
from node.doctor.tools import Answer, ask_tool, find_tool

FIELDS = (
    "index", "name", "driver_version", "memory.total", "memory.used", "temperature.gpu",
    "ecc.errors.uncorrected.volatile.total", "clocks_throttle_reasons.active", "mig.mode.current",
)
TEMPERATURE_LIMIT = 85
_SLOWED = {0x08: "hardware slowdown", 0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake"}
_CONTROLS = ("nvidiactl", "nvidia-uvm")
_ASK_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Driver:
    """What the kernel driver shows: its version ("" = not loaded), the devices' nodes, and which others are missing."""

    version: str
    nodes: tuple[str, ...]
    absent: tuple[str, ...] = ()


def judge_driver(driver: Driver, kind: str) -> Finding:
    """Judge driver and device nodes for an arena of `kind`."""
    name = "device.driver"
    if driver.version and driver.nodes and not driver.absent:
        return passed(name, f"NVIDIA driver {driver.version}, {', '.join(driver.nodes)}")
    seen = "no NVIDIA device"
    if driver.version and driver.nodes:
        seen = f"{', '.join(driver.nodes)} without {', '.join(driver.absent)}, which CUDA needs"
    elif driver.version:
        seen = f"NVIDIA driver {driver.version} without device nodes"
    elif driver.nodes:
        seen = f"{', '.join(driver.nodes)} without a loaded driver"
    if kind == "cpu":
        return skipped(name, f"{seen}; CPU arenas need none")
    fix = "install the driver, and hand the device to the container (--gpus)"
    return failed(name, HostError("DEVICE_MISSING", f"{seen}, and the arena measures on one", hint=fix))


def judge_health(answer: Answer) -> tuple[Finding, ...]:
    """Judge each device by its line of `nvidia-smi --query-gpu` with `FIELDS`."""
    if not answer.ok:
        return (
            warned("device.health", f"nvidia-smi fails: {answer.text[:200]}", "look at `dmesg` for Xid errors; reboot"),
        )
    return tuple(_judge_device(line) for line in answer.text.splitlines() if line.strip())


def _judge_device(line: str) -> Finding:
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != len(FIELDS):
        return warned("device.health", f"nvidia-smi says what this version cannot read: {line[:120]}", "report it")
    row = dict(zip(FIELDS, cells, strict=True))
    name = f"device.gpu{row['index']}"
    seen = f"{row['name']}, {row['memory.used']} of {row['memory.total']} MiB used, {row['temperature.gpu']} C"
    troubles = []
    if _number(row["ecc.errors.uncorrected.volatile.total"]) > 0:
        troubles.append(f"{row['ecc.errors.uncorrected.volatile.total']} uncorrected memory errors since the start")
    if _number(row["temperature.gpu"]) >= TEMPERATURE_LIMIT:
        troubles.append("too hot")
    throttled = _number(row["clocks_throttle_reasons.active"])
    troubles += [f"slowed down ({reason})" for bit, reason in _SLOWED.items() if throttled & bit]
    if row["mig.mode.current"] == "Enabled":
        seen += ", MIG on"
    if troubles:
        return warned(name, f"{seen}: {'; '.join(troubles)}", "mend cooling or power, or replace the device")
    return passed(name, seen)


def look_device(subject: Subject) -> tuple[Finding, ...]:
    """The driver, and every device where the driver's tool is there."""
    driver = _driver()
    finding = judge_driver(driver, _arena_kind(subject))
    tool = find_tool("nvidia-smi")
    if not (driver.version and driver.nodes):
        return (finding,)
    if tool is None:
        return finding, skipped("device.health", "nvidia-smi is not here, so the device's health cannot be seen")
    question = f"--query-gpu={','.join(FIELDS)}"
    return finding, *judge_health(ask_tool(tool, question, "--format=csv,noheader,nounits", seconds=_ASK_SECONDS))


def driver_version(text: str) -> str:
    """Return the version in the text of /proc/driver/nvidia/version."""
    found = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", text)
    return found.group(1) if found else ""


def _driver() -> Driver:
    try:
        version = driver_version(Path("/proc/driver/nvidia/version").read_text("utf-8", "replace"))
    except OSError:
        version = ""
    nodes = sorted(path.name for path in Path("/dev").glob("nvidia*") if path.name.removeprefix("nvidia").isdigit())
    return Driver(version, tuple(nodes), tuple(name for name in _CONTROLS if not Path("/dev", name).exists()))


def _arena_kind(subject: Subject) -> str:
    if subject.settings is None:
        return "cpu"
    try:
        return load_arena(subject.settings.qualify.arena).kind
    except CacheonError:
        return "cpu"  # the arena's own line says what is wrong with it


def _number(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:  # "[N/A]"
        return 0
