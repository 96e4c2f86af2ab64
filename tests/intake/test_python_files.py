"""Files that helpers scan are known and refused as if one process had scanned them all."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

import intake.python_files
from intake.beside import spread
from intake.refusal import BundleRefused
from intake.report import IntakeReport
from intake.screen import screen_files
from tests.intake.support import KERNEL, bundle
from tests.intake.test_quiet import CORPUS

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
    """Let small bundles be shared, whatever this machine has; return the numbers of helpers, one for each bundle.

    This process does only what is left over, so that helpers surely have their part.
    """
    begun: list[int] = []
    mine = os.getpid()

    def counted(here: Callable[[int], Any], there: Callable[[int], Any], pieces: int, helpers: int) -> list[Any]:
        begun.append(helpers)
        started_r, started_w = os.pipe()
        done = False

        def patient(number: int) -> Any:
            nonlocal done
            if not done:
                os.read(started_r, 1)
                done = True
            return here(number)

        def helping(number: int) -> Any:
            assert os.getpid() != mine
            os.write(started_w, b"x")
            return there(number)

        try:
            return spread(patient, helping, pieces, helpers)
        finally:
            os.close(started_r)
            os.close(started_w)

    monkeypatch.setattr(intake.python_files, "_SHARED_BYTES", 1)
    monkeypatch.setattr(intake.python_files, "spare_processors", lambda: 3)
    monkeypatch.setattr(intake.python_files, "spread", counted)
    return begun


def test_findings_are_the_same_and_in_the_same_order(shared: list[int]) -> None:
    """A bundle with something wrong in most files."""
    alone = _outcome(bundle(**_BROKEN), may_fork=False)
    assert shared == []
    assert _outcome(bundle(**_BROKEN), may_fork=True) == alone
    assert shared == [3]
    assert isinstance(alone, tuple)
    assert len(alone) > 5


def test_reports_are_the_same(shared: list[int]) -> None:
    """A bundle that is accepted."""
    part = b"import torch\nSIZE = %d\n\ndef f(x):\n    return x + SIZE\n"
    parts: dict[str, bytes | None] = {f"kernels/part{number}.py": part % number for number in range(6)}
    imports = "".join(f"import kernels.part{number}\n" for number in range(6)).encode()
    calls = "".join(f"    kernels.part{number}.f(x)\n" for number in range(6)).encode()
    files = bundle(**{"kernels/kernel.py": imports + KERNEL + calls}, **parts)
    alone = _outcome(files, may_fork=False)
    assert isinstance(alone, IntakeReport)
    assert _outcome(files, may_fork=True) == alone
    assert shared == [3]


@pytest.mark.parametrize("seed", range(12))
def test_any_files_get_the_same_answer(shared: list[int], seed: int) -> None:
    """Sources of every kind the project has an opinion about, large and small ones mixed."""
    dice = random.Random(seed)
    sources = [dice.choice(CORPUS).encode("utf-8", "surrogatepass") for _ in range(10)]
    files = bundle(
        **{f"part{number}.py": source + b"\n#" * dice.choice([0, 0, 9_000]) for number, source in enumerate(sources)}
    )
    assert _outcome(files, may_fork=True) == _outcome(files, may_fork=False)
    assert shared == [3]


def test_more_findings_than_are_reported_are_the_same(shared: list[int]) -> None:
    """Of files full of breaches the first findings in the order of the paths are told, whoever read them."""
    loud = b"".join(b"import ctypes%d\n" % number for number in range(150))
    files = bundle(**{f"part{number:02}.py": loud for number in range(20)}, **{"zz.py": loud * 20, "aa.py": loud * 20})
    alone = _outcome(files, may_fork=False)
    assert _outcome(files, may_fork=True) == alone
    assert shared == [3]


def test_what_helpers_could_not_do_is_done_here(shared: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Helpers that all fail change nothing."""
    alone = _outcome(bundle(**_BROKEN), may_fork=False)
    mine = os.getpid()
    scan = intake.python_files.scan_file

    def fail(*arguments: Any, **named: Any) -> Any:
        if os.getpid() != mine:
            raise MemoryError
        return scan(*arguments, **named)

    monkeypatch.setattr(intake.python_files, "scan_file", fail)
    assert _outcome(bundle(**_BROKEN), may_fork=True) == alone
    assert shared == [3]


@pytest.mark.parametrize("lost", [{0}, {0, 1, 2}, {3, 7}, set(range(0, 24, 2)), set(range(24))])
def test_findings_of_files_done_last_are_told(lost: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a helper had in hand when it died is done after all else; its findings are still those of its place."""
    loud = b"".join(b"import ctypes%d\n" % number for number in range(30))
    files = bundle(**{f"part{number:02}.py": loud for number in range(20)})
    alone = _outcome(files, may_fork=False)

    def later(here: Callable[[int], Any], there: Callable[[int], Any], pieces: int, helpers: int) -> list[Any]:
        order = sorted(range(pieces), key=lambda number: (number in lost, number))
        answers = {number: here(number) for number in order}
        return [answers[number] for number in range(pieces)]

    monkeypatch.setattr(intake.python_files, "_SHARED_BYTES", 1)
    monkeypatch.setattr(intake.python_files, "spare_processors", lambda: 3)
    monkeypatch.setattr(intake.python_files, "spread", later)
    assert _outcome(files, may_fork=True) == alone


def test_large_files_are_scanned_by_fewer(shared: list[int]) -> None:
    """Together they hold no more text than one process may have to: 8 MiB."""
    files = bundle(**{f"part{number}.py": b"#" * (3 << 20) for number in range(6)})
    _outcome(files, may_fork=True)
    assert shared == [1]
    _outcome(bundle(**{"a.py": b"#" * (5 << 20), "b.py": b"x = 1\n"}), may_fork=True)
    assert shared == [1]


def test_little_python_is_not_shared(shared: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork costs more than it saves there."""
    monkeypatch.undo()
    monkeypatch.setattr(intake.python_files, "spare_processors", lambda: 3)
    monkeypatch.setattr(intake.python_files, "spread", lambda *_: pytest.fail("shared"))
    assert isinstance(_outcome(bundle(), may_fork=True), IntakeReport)
