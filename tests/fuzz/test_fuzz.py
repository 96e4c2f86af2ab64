"""A short, repeatable slice of `make fuzz`, and the engine itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.errors import IntakeError
from tests.fuzz.engine import Target, fuzz
from tests.fuzz.run import main
from tests.fuzz.targets import TARGETS

MUTANTS = 200


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_only_refusals_come_out(target: Target) -> None:
    """Every known input and a few hundred mutants are accepted or refused with one documented, printable sentence."""
    report = fuzz(target, "1", executions=len(target.seeds()) + MUTANTS)
    assert not list(report.failures.values())
    assert report.accepted
    assert len(report.shapes) > 1


def _read(data: bytes) -> str:
    if data == b"ok":
        return ""
    if data.startswith(b"no"):
        raise IntakeError("NAME_INVALID", "the name is refused.")
    if data.startswith(b"??"):
        raise IntakeError("NO_SUCH_CODE", "the name is refused.")
    if b"k" in data:
        raise IntakeError("NAME_INVALID", "two\nlines.")
    raise KeyError(data)


SICK = Target("sick", lambda: [b"ok", b"no"], _read, (b"??",))


def test_whatever_is_not_a_refusal_is_found() -> None:
    """Another exception, an undocumented code and an unprintable sentence are failures, once each; seeds repeat."""
    report = fuzz(SICK, "1", executions=400)
    assert sorted(what[:8] for what in report.failures.values()) == ["KeyError", "the code", "the refu"]
    assert fuzz(SICK, "1", executions=400).failures == report.failures


def test_a_failing_input_becomes_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run prints its seed, writes the input, says how to read it again, and exits with 1."""
    monkeypatch.setattr("tests.fuzz.run.TARGETS", (SICK,))
    assert main(["--seconds", "0.2", "--seed", "x", "--out", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("seed x, ")
    for path in tmp_path.iterdir():
        assert f"--replay {path}" in printed
        assert main(["--target", "sick", "--replay", str(path)]) == 1
    assert main(["--target", "nothing"]) == 2
