"""The process that measures: whether it can start at all, and on which core.

Invariants
1. torch is loaded by a process of its own, with the environment of an attempt, and never by this one.
2. An installation that cannot judge is the operator's to mend; no candidate is ever judged by it.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from importlib import resources
from pathlib import Path

import msgspec

from config.errors import HostError
from node.doctor.check import Finding, Subject, failed, passed, warned

START_SECONDS = 200.0  # less than its check's deadline; on a crowded machine torch takes half a minute to load
_STEADY = ("performance", "none", "")  # "" where the kernel offers no choice, as in most virtual machines


class WorkerAnswer(msgspec.Struct, frozen=True):
    """What `node.doctor.worker_probe` prints; `code` is empty when the core can be used."""

    torch: str
    core: int = -1
    siblings: str = ""
    governor: str = ""
    code: str = ""
    message: str = ""
    hint: str = ""


def require_torch() -> None:
    """Raise `HostError` (TORCH_MISSING) unless attempts will find torch. Nothing is imported."""
    if importlib.util.find_spec("torch") is None:
        raise HostError(
            "TORCH_MISSING", "torch is not installed beside this node",
            hint="install it into the same environment: pip install torch",
        )


def judge_worker(answer: WorkerAnswer, allowed: frozenset[int]) -> tuple[Finding, ...]:
    """Judge the answer of the probe; `allowed` are the processors that the node may use."""
    torch = passed("worker.torch", f"torch {answer.torch} loads in a process of its own")
    if answer.code:
        return torch, failed("worker.core", HostError(answer.code, answer.message, hint=answer.hint))
    core = passed("worker.core", f"arms run on processor {answer.core}")
    return torch, core, judge_siblings(answer.core, cpu_list(answer.siblings), allowed), judge_governor(answer)


def judge_siblings(core: int, threads: frozenset[int], allowed: frozenset[int]) -> Finding:
    """Say whether a hardware thread beside the arms' processor can be given other work."""
    others = sorted(threads - {core})
    if not others:
        return passed("worker.siblings", f"processor {core} shares its physical core with no other")
    seen = f"processor {core} shares its physical core with {', '.join(map(str, others))}"
    if allowed <= threads:
        return warned("worker.siblings", f"{seen}, and the node has nothing else", "give it a second physical core")
    return warned("worker.siblings", seen, "keep other work off it: isolate it, or switch SMT off")


def judge_governor(answer: WorkerAnswer) -> Finding:
    """Say whether the frequency of the arms' processor is steady."""
    if answer.governor in _STEADY:
        return passed("worker.governor", answer.governor or "the kernel offers none to choose")
    return warned(
        "worker.governor", f"processor {answer.core} uses {answer.governor!r}: its clock moves with the load",
        f"cpupower -c {answer.core} frequency-set -g performance",
    )


def cpu_list(text: str) -> frozenset[int]:
    """Return the numbers of a kernel list such as `0-2,7`; what cannot be read is left out."""
    numbers: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and (last or first).isdigit():
            numbers.update(range(int(first), int(last or first) + 1))
    return frozenset(numbers)


def look_worker(subject: Subject) -> tuple[Finding, ...]:
    """Start a process as an attempt does and ask it."""
    require_torch()
    cores = subject.settings.qualify.arm_cores if subject.settings is not None else ()
    return judge_worker(_ask(cores), frozenset(os.sched_getaffinity(0)))


def _ask(cores: tuple[int, ...]) -> WorkerAnswer:
    root = Path(str(resources.files("qualify"))).parent
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/", "PYTHONNOUSERSITE": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "node.doctor.worker_probe", *map(str, cores)], cwd=root, env=environment,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=START_SECONDS, check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _unusable(f"it was not ready after {START_SECONDS:g} s") from error
    except OSError as error:
        raise _unusable(f"{error.strerror or error} ({error.filename or sys.executable})") from error
    try:
        return msgspec.json.decode(done.stdout, type=WorkerAnswer)
    except msgspec.DecodeError as error:
        last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:300]
        raise _unusable(last or f"it ended with status {done.returncode}") from error


def _unusable(reason: str) -> HostError:
    return HostError(
        "WORKER_UNUSABLE", f"the process that measures cannot start: {reason}",
        hint="mend the installation of torch and its libraries: pip install --force-reinstall torch",
    )
