"""The tutorial does what it says: its files are written, its commands are run, and its output is compared."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from node.cli import main
from qualify.arm_server import start_arm_server
from tests.node.cli.referees import judge_inside

PAGE = Path(__file__).parents[3] / "docs" / "tutorial.md"
BLOCK = re.compile(r"(?:<!-- file: (?P<file>\S+) -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)```", re.DOTALL)
EXIT = re.compile(r"\s+# exits with (\d)$")


class Command(NamedTuple):
    """One command of the page, its exit code, and the beginnings of lines it prints."""

    arguments: list[str]
    code: int
    shown: list[str]


def commands_of(block: str) -> Iterator[Command]:
    """Read a console block: `$ cacheon ...`, then what is shown of its output."""
    for part in block.split("$ cacheon ")[1:]:
        line, *shown = part.strip().splitlines()
        exits = EXIT.search(line)
        yield Command(shlex.split(EXIT.sub("", line)), int(exits[1]) if exits else 0, shown)


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in an empty folder, with one fork server of arms for all commands."""
    monkeypatch.chdir(tmp_path)
    with start_arm_server() as arms:
        judge_inside(monkeypatch, arms)
        yield


@pytest.mark.timeout(300)  # three verifications, each of which may wait for the core that is measured on
def test_the_tutorial_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From init to the archive, in the order of the page, with nothing left out."""
    ran = []
    for block in BLOCK.finditer(PAGE.read_text("utf-8")):
        if block["file"]:
            (tmp_path / block["file"]).write_text(block["text"])
            continue
        assert block["kind"] == "console", "a block is neither a file nor a console"
        for command in commands_of(block["text"]):
            code = main.run(command.arguments)
            printed, talk = capsys.readouterr()
            assert code == command.code, talk
            lines = [" ".join(line.split()) for line in printed.splitlines()]
            for shown in command.shown:
                words = " ".join(shown.split())
                assert any(words in line for line in lines), (command.arguments, shown, printed)
            ran.append(command.arguments[0])
    assert ran == ["init", "scan", "verify", "verify", "verify", "chain-package"]
    assert len(list(tmp_path.glob("*.tar.gz"))) == 1
