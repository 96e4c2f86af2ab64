"""The process that measures: its answer judged, its failures named, and one really started."""

from __future__ import annotations

import os
import sys

import pytest

from config.errors import HostError
from config.settings import QualifySettings, Settings
from node.doctor import worker
from node.doctor.check import State, Subject
from node.doctor.worker import WorkerAnswer, cpu_list, judge_worker, look_worker


def test_a_worker_that_can_measure() -> None:
    """Version, core, hardware threads and governor are shown."""
    findings = judge_worker(WorkerAnswer("2.13.0", 3, "3", "performance"), frozenset({0, 1, 2, 3}))
    assert [finding.name for finding in findings] == [
        "worker.torch", "worker.core", "worker.siblings", "worker.governor"
    ]
    assert {finding.state for finding in findings} == {State.PASS}


@pytest.mark.parametrize(
    ("answer", "allowed", "name"),
    [
        (WorkerAnswer("2", 3, "1,3", ""), {0, 1, 2, 3}, "worker.siblings"),
        (WorkerAnswer("2", 3, "2-3", ""), {2, 3}, "worker.siblings"),
        (WorkerAnswer("2", 3, "3", "powersave"), {2, 3}, "worker.governor"),
    ],
)
def test_what_makes_noise_warns(answer: WorkerAnswer, allowed: set[int], name: str) -> None:
    """Shared physical cores and moving clocks are named with a fix."""
    (warning,) = [one for one in judge_worker(answer, frozenset(allowed)) if one.state is not State.PASS]
    assert (warning.name, warning.state) == (name, State.WARN)
    assert warning.fix


@pytest.mark.parametrize(
    ("text", "numbers"), [("0-2,7", {0, 1, 2, 7}), ("5", {5}), ("", set()), ("x,3-", {3}), ("3-x", set())]
)
def test_kernel_lists(text: str, numbers: set[int]) -> None:
    """Lists of processors are read; what is no number is left out."""
    assert cpu_list(text) == numbers


def test_a_core_that_cannot_be_used_is_refused() -> None:
    """The question is asked by the measuring code itself, in a process of its own, and its code comes through."""
    findings = look_worker(Subject(Settings(qualify=QualifySettings(arm_cores=(4000,)))))
    assert findings[0].state is State.PASS
    assert findings[1].state is State.FAIL
    assert findings[1].error is not None
    assert findings[1].error.code == "ARM_CORE_UNAVAILABLE"


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("raise SystemExit('libtorch.so: undefined symbol')", "libtorch.so: undefined symbol"),
        ("import os; os.abort()", "status -6"),
        ("print('hello')", "status 0"),
        ("import time; time.sleep(60)", "not ready after"),
    ],
)
def test_a_worker_that_cannot_start_is_the_machines_fault(
    program: str, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]
) -> None:
    """A process that ends, crashes, says something else or hangs is one error with its last words."""
    script = os.path.join(tmp_path, "python")
    with open(script, "w", encoding="utf-8") as file:
        file.write(f"#!{sys.executable}\n{program}\n")
    os.chmod(script, 0o755)
    monkeypatch.setattr(worker.sys, "executable", script)
    monkeypatch.setattr(worker, "START_SECONDS", 0.5 if "sleep" in program else 30.0)
    with pytest.raises(HostError) as caught:
        look_worker(Subject())
    assert caught.value.code == "WORKER_UNUSABLE"
    assert said in caught.value.message


def test_an_interpreter_that_may_not_be_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The path that the system refused is named."""
    monkeypatch.setattr(worker.sys, "executable", "/etc/hostname")
    with pytest.raises(HostError) as caught:
        look_worker(Subject())
    assert "/etc/hostname" in caught.value.message
