"""Entry point of the `cacheon` command.

Rules
1. `run` is the only process boundary of the command: whatever happens below, a person gets one rendered error and one
   documented exit code.
2. Importing this module and printing help imports neither torch nor the chain SDK nor the store; help is printed before
   anything is parsed.
3. The standard streams are put in order before the command and settled after it (`node.cli.streams`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from config.errors import CacheonError, ExitCode
from node.cli import boundary, help_page, streams
from node.cli.app import command_name, command_tree


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
    tree = command_tree()
    own = given[: given.index("--")] if "--" in given else given
    as_json, debug = "--json" in own, "--debug" in own
    if (wanted := help_page.asked(tree, own)) is not None:
        help_page.show(wanted.path, wanted.command)
        return int(ExitCode.OK if wanted.by_word else ExitCode.USAGE)
    name = command_name(tree, own)
    try:
        result = tree.main(args=given, prog_name="cacheon", standalone_mode=False)
    except CacheonError as error:
        return boundary.report(error, name, as_json=as_json)
    except typer.TyperException as error:
        return boundary.report(boundary.usage_error(error), name, as_json=as_json)
    except (KeyboardInterrupt, typer.Abort):
        return boundary.interrupted(as_json=as_json)
    except OSError as error:
        refused = boundary.host_refusal(error) or boundary.unexpected(error, given, debug=debug)
        return boundary.report(refused, name, as_json=as_json)
    except Exception as error:  # noqa: BLE001 - the process boundary: no traceback may reach a person
        return boundary.report(boundary.unexpected(error, given, debug=debug), name, as_json=as_json)
    if result == ExitCode.INTERRUPTED:
        return boundary.interrupted(as_json=as_json)
    return int(result) if isinstance(result, int) else int(ExitCode.OK)


if __name__ == "__main__":
    sys.exit(run())
