"""The page that `--help` prints.

Invariants
1. Help is answered before anything is parsed or converted: it loads neither the validation nor the printing library.
2. A page depends on the declarations and the width alone, and keeps the width.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from node.cli import declared

NARROWEST, WIDEST = 40, 110

HELP_WORDS = ("--help", "-h")


class Asked(NamedTuple):
    """Whose page answers a command line, and whether it was asked for in so many words."""

    path: str
    command: Any
    by_word: bool


def asked(tree: Any, arguments: Sequence[str]) -> Asked | None:
    """Return the help that `arguments` want; None when they call something, or something that does not exist.

    Help is asked for by `--help` or `-h` anywhere before `--`, and by a group that is named without a command.
    """
    path, rest = ["cacheon"], [word for word in arguments if word != "--debug"]
    while rest and rest[0] in (commands := getattr(tree, "commands", {})):
        tree = commands[rest[0]]
        path.append(rest.pop(0))
    is_group = hasattr(tree, "commands")
    by_word = any(word in HELP_WORDS for word in rest)
    unknown = is_group and rest and not rest[0].startswith("-")
    if unknown or not (by_word or (is_group and not rest)):
        return None
    return Asked(" ".join(path), tree, by_word)


def page(path: str, command: Any, width: int) -> str:
    """Return the help of one command or group, in lines of at most `width` columns."""
    width = max(NARROWEST, min(width, WIDEST))
    blocks = [_fill(f"Usage: {declared.usage(path, command)}", width, "    ")]
    blocks += [_fill(text, width) for text in declared.paragraphs(command.help)]
    named = declared.parameters(command)
    blocks += _section("Arguments", _arguments(named), width)
    for title, rows in _groups(command):
        blocks += _section(title, rows, width)
    blocks += _section("Options", [*_options(named), ("-h, --help", "Show this page.")], width)
    blocks += [_fill(text, width) for text in declared.paragraphs(command.epilog)]
    return "\n\n".join(blocks) + "\n"


def show(path: str, command: Any) -> None:
    """Print the page in the width of the terminal, 80 columns where there is none."""
    print(page(path, command, shutil.get_terminal_size().columns), end="")


def _arguments(named: Iterable[Any]) -> list[tuple[str, str]]:
    return [(declared.argument_name(one), declared.meaning(one)) for one in named if declared.is_argument(one)]


def _options(named: Iterable[Any]) -> list[tuple[str, str]]:
    return [(_spelt(one), declared.meaning(one)) for one in named if not declared.is_argument(one)]


def _spelt(option: Any) -> str:
    names = sorted(option.opts, key=lambda name: name.startswith("--"))
    return f"{', '.join(names)} {declared.value_name(option)}".rstrip()


def _groups(command: Any) -> list[tuple[str, list[tuple[str, str]]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for name, one in getattr(command, "commands", {}).items():
        panel = getattr(one, "rich_help_panel", None)
        title = panel if isinstance(panel, str) else "Commands"
        found.setdefault(title, []).append((name, (declared.paragraphs(one.help) or [""])[0]))
    return list(found.items())


def _wrap(text: str, width: int, first: str = "", then: str = "") -> list[str]:
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=then, break_on_hyphens=False)


def _fill(text: str, width: int, then: str = "") -> str:
    return "\n".join(_wrap(text, width, "", then))


def _section(title: str, rows: Sequence[tuple[str, str]], width: int) -> list[str]:
    if not rows:
        return []
    room = width * 3 // 8  # longer names stand on a line of their own
    column = 2 + max((len(name) for name, _ in rows if len(name) <= room), default=0) + 2
    lines = [f"{title}:"]
    for name, text in rows:
        head = f"  {name}".ljust(column)
        if len(name) > room:
            lines.append(head.rstrip())
            head = " " * column
        lines += _wrap(text, width, head, " " * column) or [head.rstrip()]
    return ["\n".join(lines)]
