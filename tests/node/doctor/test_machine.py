"""The machine: values in, findings out; and this machine, really looked at."""

from __future__ import annotations

from importlib import metadata

import pytest

from node.doctor import machine
from node.doctor.check import Finding, State, Subject
from node.doctor.machine import MEMORY_FLOOR, MEMORY_REFUSED, OPEN_FILES_FLOOR
from node.doctor.versions import Requirement, parse_requirement, satisfies


def code(finding: Finding) -> str:
    """The code of a failure."""
    return finding.error.code if finding.error is not None else ""


@pytest.mark.parametrize(
    ("finding", "state", "expected_code"),
    [
        (machine.judge_kernel("6.18.44-fc-v857"), State.PASS, ""),
        (machine.judge_kernel("6.7.0"), State.PASS, ""),
        (machine.judge_kernel("6.6.99-lts"), State.WARN, ""),
        (machine.judge_kernel("5.15.0-100-generic"), State.WARN, ""),
        (machine.judge_cores(2, devnet=False), State.PASS, ""),
        (machine.judge_cores(1, devnet=False), State.FAIL, "CORES_TOO_FEW"),
        (machine.judge_cores(1, devnet=True), State.WARN, ""),
        (machine.judge_load(0.3, 2), State.PASS, ""),
        (machine.judge_load(1.1, 2), State.WARN, ""),
        (machine.judge_load(7.0, 16), State.PASS, ""),
        (machine.judge_memory(MEMORY_FLOOR, 0), State.PASS, ""),
        (machine.judge_memory(MEMORY_FLOOR - 1, 0), State.WARN, ""),
        (machine.judge_memory(MEMORY_REFUSED - 1, 0), State.FAIL, "MEMORY_TOO_LITTLE"),
        (machine.judge_memory(MEMORY_FLOOR, 1 << 30), State.WARN, ""),
        (machine.judge_memory(8 << 30, 0, 8 << 30), State.PASS, ""),
        (machine.judge_memory((8 << 30) - 1, 0, 8 << 30), State.WARN, ""),
        (machine.judge_open_files(1024, OPEN_FILES_FLOOR), State.PASS, ""),
        (machine.judge_open_files(1024, 1024), State.WARN, ""),
        (machine.judge_open_files(1024, -1), State.PASS, ""),
        (machine.judge_user(0), State.WARN, ""),
        (machine.judge_user(4242), State.PASS, ""),
        (machine.judge_home("/home/node", 4242), State.PASS, ""),
        (machine.judge_home("", 4242), State.FAIL, "HOME_UNKNOWN"),
    ],
)
def test_values(finding: Finding, state: State, expected_code: str) -> None:
    """Each value is judged as the table of the operator's guide says, and trouble comes with its fix."""
    assert (finding.state, code(finding)) == (state, expected_code)
    assert bool(finding.fix) == (state is not State.PASS)


def test_packages() -> None:
    """A missing package refuses, a strange version warns, and both are named."""
    wanted = (Requirement("torch", "<2.14,>=2.13"), Requirement("msgspec", "<0.24,>=0.23"))
    (fine,) = machine.judge_packages(wanted, {"torch": "2.13.0+cpu", "msgspec": "0.23.1"})
    assert fine.state is State.PASS
    (strange,) = machine.judge_packages(wanted, {"torch": "2.14.1", "msgspec": "0.23.1"})
    assert strange.state is State.WARN
    assert "torch 2.14.1 (made for <2.14,>=2.13)" in strange.seen
    (missing,) = machine.judge_packages(wanted, {"torch": "2.13.0"})
    assert (missing.state, code(missing)) == (State.FAIL, "PACKAGE_MISSING")
    assert "msgspec" in missing.seen


@pytest.mark.parametrize(
    ("version", "specifier", "fits"),
    [
        ("2.13.0+cpu", ">=2.13,<2.14", True), ("2.14.0", ">=2.13,<2.14", False), ("2.9", ">=2.13", False),
        ("11.3.0", "==11.3.0", True), ("11.3", "==11.3.0", True), ("11.3.1", "==11.3.0", False),
        ("1.0", "!=1.0", False), ("1.4.9", "~=1.4.2", True), ("1.5.0", "~=1.4.2", False), ("1.0", "", True),
        ("1.1", ">1.0", True), ("1.0", "<=1.0.0", True), ("3rc1", ">=3", True),
    ],
)
def test_versions(version: str, specifier: str, fits: bool) -> None:
    """Release numbers are compared as numbers; local parts do not count."""
    assert satisfies(version, specifier) is fits


def test_every_requirement_of_this_project_is_understood() -> None:
    """No requirement of the base installation is left out, and extras are."""
    asked = metadata.requires("cacheon") or []
    parsed = {text: parse_requirement(text) for text in asked}
    assert {text for text, one in parsed.items() if one is None} == {text for text in asked if "extra ==" in text}
    assert {one.name for one in parsed.values() if one is not None} >= {"torch", "msgspec", "bittensor"}


def test_this_machine() -> None:
    """Looking at a real machine gives each line once and no failure."""
    looks = (machine.look_machine, machine.look_home, machine.look_packages, machine.look_cores, machine.look_memory)
    found = [finding for look in looks for finding in look(Subject())]
    assert len({finding.name for finding in found}) == len(found) == 8
    assert not [finding for finding in found if finding.state is State.FAIL and finding.name != "machine.cores"]
