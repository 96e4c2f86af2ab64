"""A second process that scans half of the files changes nothing about what is found."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import intake.python_files
from config.errors import IntakeError
from intake.beside import beside, spare_processor
from intake.refusal import BundleRefused
from intake.report import IntakeReport
from intake.screen import screen_files
from tests.intake.support import KERNEL, bundle

_BROKEN: dict[str, bytes | None] = {
    "a.py": b"import b, c, d, e\n",
    "b.py": b"import os\nos.system('x')\n",
    "c.py": b"def f(:\n",
    "d.py": b"import b\nb.os.getpid()\nimport torch\ntorch.load = 1\n",
    "e.py": b"import ctypes\n" + b"x = 1\n" * 100,
}


def _outcome(files: dict[str, bytes], *, may_fork: bool) -> object:
    try:
        return screen_files(files, served=None, may_fork=may_fork).report
    except BundleRefused as refusal:
        return refusal.findings


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let small bundles be shared, whatever this machine has; return the processes that were begun."""
    begun: list[int] = []

    @contextmanager
    def counted(work: object) -> Iterator[object]:
        begun.append(os.getpid())
        with beside(work) as answer:  # type: ignore[arg-type]
            yield answer

    monkeypatch.setattr(intake.python_files, "_SHARED_BYTES", 1)
    monkeypatch.setattr(intake.python_files, "spare_processor", lambda: True)
    monkeypatch.setattr(intake.python_files, "beside", counted)
    return begun


def test_findings_are_the_same_and_in_the_same_order(shared: list[int]) -> None:
    alone = _outcome(bundle(**_BROKEN), may_fork=False)
    assert shared == []
    assert _outcome(bundle(**_BROKEN), may_fork=True) == alone
    assert shared == [os.getpid()]
    assert isinstance(alone, tuple)
    assert len(alone) > 5


def test_reports_are_the_same(shared: list[int]) -> None:
    part = b"import torch\nSIZE = %d\n\ndef f(x):\n    return x + SIZE\n"
    parts: dict[str, bytes | None] = {f"kernels/part{number}.py": part % number for number in range(6)}
    imports = "".join(f"import kernels.part{number}\n" for number in range(6)).encode()
    calls = "".join(f"    kernels.part{number}.f(x)\n" for number in range(6)).encode()
    files = bundle(**{"kernels/kernel.py": imports + KERNEL + calls}, **parts)
    alone = _outcome(files, may_fork=False)
    assert isinstance(alone, IntakeReport)
    assert _outcome(files, may_fork=True) == alone
    assert shared == [os.getpid()]


def test_what_the_other_process_could_not_do_is_done_here(shared: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    alone = _outcome(bundle(**_BROKEN), may_fork=False)

    def fail(*_: object) -> bytes:
        raise IntakeError("PYTHON_SYNTAX", "no.")

    monkeypatch.setattr(intake.python_files.PythonFiles, "_answers", fail)
    assert _outcome(bundle(**_BROKEN), may_fork=True) == alone
    assert shared == [os.getpid()]


def test_an_answer_may_be_larger_than_a_pipe() -> None:
    with beside(lambda: b"x" * 3_000_000) as answer:
        assert answer() == b"x" * 3_000_000


def test_a_process_that_dies_has_no_answer() -> None:
    with beside(lambda: os._exit(3)) as answer:
        assert answer() is None


def test_nobody_is_left_behind_by_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    children: list[int] = []
    fork = os.fork

    def noted() -> int:
        children.append(fork())
        return children[-1]

    monkeypatch.setattr(os, "fork", noted)
    with pytest.raises(KeyError), beside(lambda: b"x" * 3_000_000):
        raise KeyError
    with pytest.raises(ChildProcessError):
        os.waitpid(children[0], os.WNOHANG)


def test_without_a_process_there_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", refuse)
    with beside(lambda: b"x") as answer:
        assert answer() is None


def test_one_processor_is_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert not spare_processor()
