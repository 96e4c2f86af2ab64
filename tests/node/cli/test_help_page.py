"""The page that `--help` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from node.cli import declared, help_page
from node.cli.app import command_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.node.cli.conftest import RunCli


def _all(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, one in getattr(command, "commands", {}).items():
        yield from _all(f"{path} {name}", one)


PAGES = dict(_all("cacheon", command_tree()))


@pytest.mark.parametrize("width", [1, 40, 80, 110, 200])
@pytest.mark.parametrize("path", PAGES)
def test_pages_keep_their_width_and_say_everything(path: str, width: int) -> None:
    """Every option, argument and command is named, and no line is longer than the terminal, within reason."""
    text = help_page.page(path, PAGES[path], width)
    assert max(map(len, text.splitlines())) <= max(help_page.NARROWEST, min(width, help_page.WIDEST))
    words = "".join(text.split())
    for parameter in declared.parameters(PAGES[path]):
        assert all(name in words for name in parameter.opts if name.startswith("-"))
        assert "".join(declared.meaning(parameter).split()) in words
    for name in getattr(PAGES[path], "commands", {}):
        assert f"\n  {name} " in text


def test_a_flag_takes_no_value() -> None:
    """A flag is shown without a type, an option with what it takes."""
    text = help_page.page("cacheon chain-submit", PAGES["cacheon chain-submit"], 80)
    assert "\n  --json    " in text
    assert "\n  --netuid N  " in text
    assert "<" not in text


def test_nothing_has_an_empty_default() -> None:
    """No text ends with `Default: .`, and every default that exists is told once."""
    for command in PAGES.values():
        for parameter in declared.parameters(command):
            assert not declared.meaning(parameter).endswith("Default: .")
            assert declared.meaning(parameter).count("Default:") <= 1


@pytest.mark.parametrize(
    ("arguments", "path", "by_word"),
    [
        ([], "cacheon", False),
        (["--help"], "cacheon", True),
        (["--debug", "node", "-h"], "cacheon node", True),
        (["node"], "cacheon node", False),
        (["node", "credits"], "cacheon node credits", False),
        (["scan", "somewhere", "--help"], "cacheon scan", True),
    ],
)
def test_help_that_is_asked_for(arguments: list[str], path: str, *, by_word: bool) -> None:
    """By word, or by naming a group and no command."""
    found = help_page.asked(command_tree(), arguments)
    assert found is not None
    assert (found.path, found.by_word) == (path, by_word)


@pytest.mark.parametrize(
    "arguments", [["scan"], ["nope", "--help"], ["node", "nope"], ["--version"], ["node", "--nope"]]
)
def test_help_that_is_not_asked_for(arguments: list[str]) -> None:
    """What calls something, or something that does not exist, is for the parser."""
    assert help_page.asked(command_tree(), arguments) is None


def test_exit_codes(cli: RunCli) -> None:
    """Help that was asked for is a success; a group without a command is a usage error that shows it."""
    asked, bare = cli("node", "--help"), cli("node")
    assert (asked.code, bare.code) == (0, 2)
    assert asked.out == bare.out
    assert asked.out.startswith("Usage: cacheon node COMMAND\n")
