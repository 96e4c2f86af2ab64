"""Writes `docs/cli.md` from the command tree: `python -m node.cli.reference [FILE]`.

The text depends on nothing but the declarations, so that a test can compare it with what is committed.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from config.errors import ExitCode
from node.cli import declared
from node.cli.app import command_tree

DOCUMENT = Path("docs/cli.md")

EXIT_TEXT = {
    ExitCode.OK: "done",
    ExitCode.INTERNAL: "a defect of ours; for `demo`: something went another way than it must",
    ExitCode.USAGE: "the command line or the settings cannot be used",
    ExitCode.REJECTED: "rejected: the bundle, or the verdict is FAIL",
    ExitCode.CHAIN: "the chain refused, or a wallet is missing or not registered",
    ExitCode.NETWORK: "something upstream is unreachable; the same command may succeed later",
    ExitCode.HOST: "this machine is not ready: a library, an isolation layer, a port, a folder",
    ExitCode.NOT_FOUND: "not found, or still pending",
    ExitCode.INTERRUPTED: "interrupted",
}

PREAMBLE = """\
# The `cacheon` command

<!-- Written by `python -m node.cli.reference`; edit the declarations in node/cli/commands/ instead. -->

Standard output carries data, standard error carries talk. With `--json` a command prints one line,
`{"schema": "cacheon.<command>.v1", "ok": true, "data": ...}`, or, when it fails,
`{"schema": ..., "ok": false, "error": {"code", "message", "hint", "blame", "location"}}`, and never asks anything.
`cacheon explain CODE` explains every code. Colours follow `NO_COLOR` and `FORCE_COLOR`.

## Exit codes

| code | meaning |
|---|---|
"""


def main(arguments: list[str]) -> int:
    """Write the document and return 0."""
    target = Path(arguments[0]) if arguments else DOCUMENT
    target.write_text(document(), "utf-8")
    return 0


def document() -> str:
    """Return the whole reference as Markdown."""
    codes = "".join(f"| {int(code)} | {EXIT_TEXT[code]} |\n" for code in ExitCode)
    return PREAMBLE + codes + "".join(_section(path, command) for path, command in _commands("cacheon", command_tree()))


def _commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name in sorted(command.commands):
        yield from _commands(f"{path} {name}", command.commands[name])


def _section(path: str, command: Any) -> str:
    rows = "".join(_row(parameter) for parameter in declared.parameters(command))
    listing = f"\n| argument or option | meaning |\n|---|---|\n{rows}" if rows else ""
    text = inspect.cleandoc(command.help or "").strip()
    return f"\n## `{path}`\n\n```\n{declared.usage(path, command)}\n```\n\n{text}\n{listing}"


def _row(parameter: Any) -> str:
    if declared.is_argument(parameter):
        name = f"`{declared.argument_name(parameter)}`"
    else:
        value = f" {declared.value_name(parameter)}".rstrip()
        name = ", ".join(f"`{spelling}{value}`" for spelling in parameter.opts)
    return f"| {_cell(name)} | {_cell(declared.meaning(parameter))} |\n"


def _cell(text: str) -> str:
    return text.replace("|", chr(92) + "|")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
