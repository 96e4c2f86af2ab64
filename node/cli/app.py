"""The command tree, put together from the groups in `node.cli.commands`; a new command is a new file there.

Invariants
1. Nothing here imports torch, the chain SDK, the store or a room other than `config`.
2. The order of the groups is the order in which `cacheon --help` lists them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from node.cli.commands import chain, cost, lookup, miner, operator, review

EPILOGUE = """\
Exit codes: 0 done; 1 defect of ours; 2 command line or settings; 3 rejected (FAIL); 4 chain or wallet; \
5 network, try again; 6 this machine is not ready; 7 pending or not found; 130 interrupted.

Standard output carries data, standard error carries talk. `cacheon explain CODE` explains any error."""

app = typer.Typer(
    name="cacheon", no_args_is_help=True, epilog=EPILOGUE, context_settings={"help_option_names": ["-h", "--help"]}
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"cacheon {version('cacheon')}")
        raise typer.Exit


@app.callback()
def root(
    debug: Annotated[bool, typer.Option("--debug", help="Print tracebacks of defects.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Validator node of a subnet that pays miners for faster GPU kernels, and its miners' tools.

    New here? `cacheon demo` shows the whole system at work on this machine in a few minutes.
    """


for _group in (miner, chain, cost, operator, review, lookup):
    _group.register(app)


def command_tree() -> Any:
    """Return the parser built from the declarations above."""
    return typer.main.get_command(app)


def command_name(tree: Any, arguments: Sequence[str]) -> str:
    """Return the command that `arguments` call, such as `node status`; "" when they call none."""
    words: list[str] = []
    for word in arguments:
        commands = getattr(tree, "commands", {})
        if word in commands:
            words.append(word)
            tree = commands[word]
        elif not word.startswith("-"):
            break
    return " ".join(words)
