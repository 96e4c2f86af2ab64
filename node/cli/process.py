"""One command line as one process.

Rules
1. `run` is the only process boundary of the command: whatever happens below, a person gets one rendered error and one
   documented exit code.
2. Importing this module and printing help imports neither torch nor the chain SDK nor the store; help is printed before
   anything is parsed.
3. The standard streams are put in order before the command and settled after it (`node.cli.streams`).
4. `cacheon scan BUNDLE`, which editors run at every save, is begun without the parser: loading it takes longer than the
   scan. Every other way to write that command is the parser's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from config.errors import CacheonError, ExitCode
from node.cli import boundary, streams


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return the exit code; without `arguments`, as the whole process."""
    if arguments is not None:
        return _invoke(list(arguments))
    streams.open_missing()
    given, before = sys.argv[1:], streams.output_identity()
    try:
        code = _invoke(given)
    except BrokenPipeError:
        streams.end_by_broken_pipe()
        raise
    except SystemExit as ending:  # how the parser and the printing library end when a write meets a closed pipe
        if streams.reader_is_gone(before):
            streams.end_by_broken_pipe()
        code = boundary.report(boundary.unexpected(ending, given, debug=False), "", as_json="--json" in given)
    return streams.finish(code, lambda error: boundary.report(error, "", as_json=False))


def _invoke(given: list[str]) -> int:
    own = given[: given.index("--")] if "--" in given else given
    if (bundle := _plainly_scanned(given)) is not None:
        return _guarded(lambda: _scan(bundle, own), "scan", given, own)
    from node.cli import help_page
    from node.cli.app import command_name, command_tree

    tree = command_tree()
    if (wanted := help_page.asked(tree, own)) is not None:
        help_page.show(wanted.path, wanted.command)
        return int(ExitCode.OK if wanted.by_word else ExitCode.USAGE)
    name = command_name(tree, own)
    return _guarded(lambda: _parse(tree, given, name, own), name, given, own)


def _guarded(command: Callable[[], object], name: str, given: list[str], own: list[str]) -> int:
    """Run a command and return its exit code; whatever it raises is told."""
    as_json, debug = "--json" in own, "--debug" in own
    try:
        result = command()
    except CacheonError as error:
        return boundary.report(error, name, as_json=as_json)
    except KeyboardInterrupt:
        return boundary.interrupted(as_json=as_json)
    except OSError as error:
        refused = boundary.host_refusal(error) or boundary.unexpected(error, given, debug=debug)
        return boundary.report(refused, name, as_json=as_json)
    except Exception as error:  # noqa: BLE001 - the process boundary: no traceback may reach a person
        return boundary.report(boundary.unexpected(error, given, debug=debug), name, as_json=as_json)
    if result == ExitCode.INTERRUPTED:
        return boundary.interrupted(as_json=as_json)
    return int(result) if isinstance(result, int) else int(ExitCode.OK)


def _parse(tree: Any, given: list[str], name: str, own: list[str]) -> object:
    import typer

    try:
        return tree.main(args=given, prog_name="cacheon", standalone_mode=False)
    except typer.TyperException as error:
        return boundary.report(boundary.usage_error(error), name, as_json="--json" in own)
    except typer.Abort:
        return ExitCode.INTERRUPTED


def _plainly_scanned(given: Sequence[str]) -> str | None:
    """Return the bundle of `scan BUNDLE`, with or without `--json` in any place; None for all else."""
    words = [word for word in given[1:] if word != "--json"]
    is_plain = given[:1] == ["scan"] and len(words) == 1 and words[0] and not words[0].startswith("-")
    return words[0] if is_plain else None


def _scan(bundle: str, own: Sequence[str]) -> int:
    from node.cli.actions.scan import run as scan

    return scan(bundle, as_json="--json" in own)
