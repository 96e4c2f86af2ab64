"""Container runtimes: below a floor they let a container out, and with it whatever runs inside.

Invariants
1. A runtime is judged when its version can be seen. Inside a container it usually cannot, and the line says so.
2. An old runtime refuses a node that itself runs in a container. Elsewhere it only warns: our sandbox does not use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from config.errors import HostError
from node.doctor.check import Finding, Subject, failed, passed, skipped, warned
from node.doctor.tools import ask_tool, dotted, find_tool, version_in


@dataclass(frozen=True, slots=True)
class Floor:
    """The first safe version of a program, and what older ones are known for."""

    program: str
    version: tuple[int, ...]
    known: str


FLOORS = (
    Floor("runc", (1, 1, 12), "CVE-2024-21626"),
    Floor("nvidia-ctk", (1, 17, 8), "CVE-2024-0132, CVE-2025-23266"),
    Floor("nvidia-container-cli", (1, 17, 8), "CVE-2024-0132, CVE-2025-23266"),
)
_MARKS = ("/.dockerenv", "/run/.containerenv")


def judge_runtimes(versions: Mapping[str, tuple[int, ...]], *, contained: bool) -> Finding:
    """Compare the versions that were seen, by program; an empty version is one that could not be read."""
    name = "machine.containers"
    place = "this is a container" if contained else "no container"
    if not versions:
        if contained:
            return skipped(name, "this is a container; its runtime's version cannot be seen from inside")
        return passed(name, "no container, and no container runtime installed")
    old = [floor for floor in FLOORS if floor.program in versions and () < versions[floor.program] < floor.version]
    seen = ", ".join(f"{program} {dotted(version) or 'of unknown version'}" for program, version in versions.items())
    if not old:
        return passed(name, f"{place}; {seen}")
    complaint = "; ".join(
        f"{floor.program} {dotted(versions[floor.program])} is below {dotted(floor.version)} ({floor.known})"
        for floor in old
    )
    fix = "update " + " and ".join(floor.program for floor in old)
    if contained:
        return failed(name, HostError("RUNTIME_VULNERABLE", f"{place}, and {complaint}", hint=fix))
    return warned(name, f"{place}, but {complaint}", fix)


def look_containers(_: Subject) -> tuple[Finding, ...]:
    """Whether this is a container, and which runtimes can be seen."""
    versions = {}
    for floor in FLOORS:
        path = find_tool(floor.program)
        if path is not None:
            answer = ask_tool(path, "--version")
            versions[floor.program] = version_in(answer.text) if answer.ok else ()
    return (judge_runtimes(versions, contained=_contained()),)


def _contained() -> bool:
    return any(Path(mark).exists() for mark in _MARKS)
