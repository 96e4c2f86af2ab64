"""How failures reach a person."""

from __future__ import annotations

import errno
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from config.errors import Blame, ErrorDocument, ExitCode, IntakeError, SourceLocation
from node.cli import boundary, main
from node.cli.app import command_name, command_tree


def test_every_part_of_an_error_is_shown() -> None:
    """Code, sentence, place, hint and blame each have their own line."""
    error = IntakeError(
        "SOURCE_REFUSED", "imports subprocess", hint="remove the import", location=SourceLocation("kernels/k.py", 3)
    )
    stream = io.StringIO()
    Console(file=stream, width=200).print(boundary.render(error.to_document()))
    assert stream.getvalue().splitlines() == [
        "error[SOURCE_REFUSED]: imports subprocess",
        "  --> kernels/k.py:3",
        "  hint: remove the import",
        "  blame: miner (the bundle; its author can fix it)",
        "  more: cacheon explain SOURCE_REFUSED",
    ]


def test_hostile_text_is_not_markup() -> None:
    """Square brackets in a message are shown, not interpreted."""
    stream = io.StringIO()
    Console(file=stream, width=200).print(boundary.render(ErrorDocument("X", "name [red]evil[/red] [link=x]")))
    assert "[red]evil[/red] [link=x]" in stream.getvalue()


@pytest.mark.parametrize("blame", list(Blame))
def test_every_blame_has_words(blame: Blame) -> None:
    """Each kind of blame says whose turn it is."""
    assert boundary.BLAME_TEXT[blame]


def test_a_defect_is_one_error_and_a_file(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An unforeseen exception becomes UNEXPECTED with exit code 1; the traceback is in the file that the hint names."""

    def explode(code: str | None, *, as_json: bool) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr("node.cli.actions.explain.run", explode)
    assert main.run(["explain"]) == ExitCode.INTERNAL
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "error[UNEXPECTED]" in shown.err
    assert "Traceback" not in shown.err
    log = Path(re.search(r"the log is (\S+);", shown.err).group(1))  # type: ignore[union-attr]
    assert "ZeroDivisionError: boom" in log.read_text("utf-8")
    assert log.stat().st_mode & 0o077 == 0
    log.unlink()


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`--debug` prints the traceback as well."""

    def explode(code: str | None, *, as_json: bool) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr("node.cli.actions.explain.run", explode)
    main.run(["--debug", "explain"])
    err = capsys.readouterr().err
    assert "Traceback" in err
    Path(re.search(r"the log is (\S+);", err).group(1)).unlink()  # type: ignore[union-attr]


def test_an_interrupt_is_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C says so in one word and exits with 130."""

    def stop(code: str | None, *, as_json: bool) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("node.cli.actions.explain.run", stop)
    assert main.run(["explain"]) == ExitCode.INTERRUPTED
    assert capsys.readouterr().err.strip() == "interrupted"


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ([], ""),
        (["explain", "CODE"], "explain"),
        (["--debug", "node", "status", "--json"], "node status"),
        (["node"], "node"),
        (["nonsense", "node"], ""),
        (["explain", "targets"], "explain"),
    ],
)
def test_the_command_is_known_even_when_parsing_fails(arguments: list[str], name: str) -> None:
    """The envelope of a failure names the command that was called."""
    assert command_name(command_tree(), arguments) == name


def test_a_full_disk_is_no_defect(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A write that the system refuses is the host's error, with the file's name."""

    def fill(code: str | None, *, as_json: bool) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/data/x")

    monkeypatch.setattr("node.cli.actions.explain.run", fill)
    assert main.run(["explain"]) == ExitCode.HOST
    assert "error[HOST_IO_FAILED]: the operating system refused to write (/data/x)" in capsys.readouterr().err


def test_a_folder_that_is_gone_is_no_defect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command started in a deleted folder says so."""
    lost = tmp_path / "lost"
    lost.mkdir()
    monkeypatch.chdir(lost)
    lost.rmdir()
    assert main.run(["init", "new", "--target", "norm.rmsnorm"]) == ExitCode.HOST
    assert "error[HOST_IO_FAILED]: the folder in which" in capsys.readouterr().err


def leaves(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command with its path."""
    for name, command in getattr(tree, "commands", {}).items():
        yield from leaves(command, (*path, name))
    if not hasattr(tree, "commands"):
        yield path, tree


def test_every_command_that_answers_can_answer_in_json() -> None:
    """All commands but the three that serve until they are stopped have --json."""
    without = {
        " ".join(path)
        for path, command in leaves(command_tree())
        if not any("--json" in parameter.opts for parameter in command.params)
    }
    assert without == {"devnet", "node run", "signer run"}


def test_every_command_has_a_sentence() -> None:
    """Every command and every option is explained."""
    for path, command in leaves(command_tree()):
        assert command.help, path
        assert all(parameter.help for parameter in command.params), path


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("kernels/k.py:3", SourceLocation("kernels/k.py", 3)),
        ("kernels/k.py", SourceLocation("kernels/k.py")),
        ("a:b", SourceLocation("a:b")),
        ("a:\u00b2", SourceLocation("a:\u00b2")),
        (f"a:{'9' * 5000}", SourceLocation(f"a:{'9' * 5000}")),
        (":7", SourceLocation(":7")),
    ],
)
def test_a_place_is_read_back_whatever_a_file_is_called(text: str, place: SourceLocation) -> None:
    """A path may end like a line number and be none."""
    assert SourceLocation.read(text) == place
