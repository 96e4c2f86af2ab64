"""The one place where an error becomes what a person sees and what the process returns.

Rules
1. Every `CacheonError` is one rendered block: `error[CODE]: sentence`, then where, hint and blame; never a traceback.
2. Anything else is a defect of ours: UNEXPECTED, with the traceback in a private file whose path is printed.
   `--debug` prints the traceback as well.
3. With `--json` the same error is the failure envelope on standard output, and standard error stays silent.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import traceback
from typing import TYPE_CHECKING

from config.errors import CacheonError, ConfigurationError, ErrorDocument, ExitCode, HostError, InternalError
from node.cli.output import talk_console, visible, write_raw
from node.envelope import failure_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    import typer
    from rich.text import Text

BLAME_TEXT = {
    "miner": "the bundle; its author can fix it",
    "operator": "the command, this machine or its settings; you can fix it",
    "chain": "the chain or the network; try again later",
    "internal": "cacheon itself; please report it",
}


def report(error: CacheonError, command: str, *, as_json: bool) -> int:
    """Show `error`, where it can be shown, and return the exit code of its family."""
    try:
        if as_json:
            write_raw(failure_line(command, error.to_document()))
        else:
            _show(error)
    except BrokenPipeError:
        raise
    except OSError:
        if as_json:  # standard output takes no more; standard error may
            report(error, command, as_json=False)
    return int(error.exit_code)


def _show(error: CacheonError) -> None:
    console = talk_console()
    console.print(render(error.to_document()), soft_wrap=True)
    for finding in tuple(getattr(error, "findings", ()))[1:]:
        console.print(render(finding), soft_wrap=True)


def render(error: ErrorDocument) -> Text:
    """Return the block a person reads."""
    from rich.text import Text

    text = Text()
    text.append(f"error[{error.code}]", style="bold red")
    text.append(f": {visible(error.message, lines=True)}", style="bold")
    if error.location:
        text.append(f"\n  --> {visible(error.location)}")
    if error.hint:
        text.append("\n  hint: ", style="cyan")
        text.append(visible(error.hint, lines=True))
    if error.blame:
        text.append("\n  blame: ", style="cyan")
        text.append(f"{error.blame} ({BLAME_TEXT.get(error.blame, 'unknown')})")
    if error.code != "USAGE":
        text.append(f"\n  more: cacheon explain {error.code}", style="dim")
    return text


def usage_error(error: typer.TyperException) -> ConfigurationError:
    """Return the parser's complaint as an error of ours, with the command's own help as the hint."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "cacheon"
    return ConfigurationError("USAGE", _one_line(error.format_message()), hint=f"`{path} --help` shows what it accepts")


def host_refusal(error: OSError) -> HostError | None:
    """Return our error for a full, failing, forbidden or lost place; None for any other `OSError`."""
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in (errno.EACCES, errno.EPERM):
        message = f"the operating system refused access{where}: {error.strerror}"
        return HostError("HOST_IO_FAILED", message, hint="use files and folders of your own")
    if error.errno == errno.ENOENT and _stands_nowhere():
        message = "the folder in which the command was started no longer exists"
        return HostError("HOST_IO_FAILED", message, hint="change to a folder that exists and start the command again")
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO):
        return None
    return HostError(
        "HOST_IO_FAILED",
        f"the operating system refused to write{where}: {error.strerror}",
        hint="make room, or write elsewhere, and start the command again",
    )


def _stands_nowhere() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def unexpected(error: BaseException, arguments: Sequence[str], *, debug: bool) -> InternalError:
    """Keep the traceback of a defect in a private file and return the error that names the file."""
    trace = "".join(traceback.format_exception(error))
    if debug:
        sys.stderr.write(trace)
    kind = type(error).__name__
    return InternalError(
        "UNEXPECTED",
        f"something failed that should not have: {kind}: {_one_line(str(error))[:300]}",
        hint=f"{_keep(trace, arguments)}; run `cacheon --debug ...` to see the traceback",
    )


def _keep(trace: str, arguments: Sequence[str]) -> str:
    try:
        descriptor, path = tempfile.mkstemp(prefix="cacheon-error-", suffix=".log")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(f"arguments: {list(arguments)!r}\npython: {sys.version}\n\n{trace}")
    except OSError:
        return "the log could not be written"
    return f"the log is {path}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def interrupted(*, as_json: bool) -> int:
    """Say that the person stopped the command."""
    if not as_json:
        talk_console().print("interrupted", style="yellow")
    return int(ExitCode.INTERRUPTED)
