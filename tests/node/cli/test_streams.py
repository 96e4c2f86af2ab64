"""Standard streams that are closed, full, or no longer read."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from config.errors import ExitCode
from tests.node.cli.conftest import plain_environment

COMMAND = [sys.executable, "-m", "node.cli.main"]


def shell(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `script` in a shell; `"$@"` is the command."""
    return subprocess.run(
        ["/bin/bash", "-c", script, "-", *COMMAND, *arguments],
        env=plain_environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&- <&-"])
@pytest.mark.parametrize("arguments", [("explain",), ("explain", "--json"), ("--version",)])
def test_closed_streams_are_no_defect(closed: str, arguments: tuple[str, ...]) -> None:
    """A command whose streams were closed by its caller does its work and says so by its exit code."""
    done = shell(f'"$@" {closed}', *arguments)
    assert (done.returncode, done.stderr) == (ExitCode.OK, "")


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_full_output_is_the_hosts_error(flags: tuple[str, ...]) -> None:
    """Output that could not be written is reported once, on standard error, with the exit code of the host."""
    done = shell('"$@" >/dev/full', "explain", *flags)
    assert done.returncode == ExitCode.HOST
    assert done.stderr.count("error[HOST_IO_FAILED]") == 1
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_full_error_stream_keeps_the_exit_code() -> None:
    """An error that nobody can read still ends the command with its own exit code."""
    assert shell('"$@" 2>/dev/full', "explain", "NO_SUCH_CODE").returncode == ExitCode.NOT_FOUND


@pytest.mark.parametrize("arguments", [("--help",), ("explain",), ("explain", "--json")])
def test_a_reader_that_leaves_ends_the_command_silently(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """`cacheon ... | head` ends the command as SIGPIPE ends others: no message and no exit code of a defect."""
    errors = tmp_path / "errors"
    with errors.open("wb") as stream:
        process = subprocess.Popen(
            [*COMMAND, *arguments], env=plain_environment(), stdout=subprocess.PIPE, stderr=stream
        )
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(60) == -signal.SIGPIPE
    assert errors.read_bytes() == b""
