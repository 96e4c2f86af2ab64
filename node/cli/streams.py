"""The standard streams of the process, as a caller may leave them: closed, full, or read by somebody who goes away.

Rules
1. Descriptors 0 to 2 are open before anything else is: a file that took number 1 would receive what is printed.
2. A reader that closes the pipe (`| head`) ends the command the way it ends other programs, by SIGPIPE.
3. Output that could not be written is an error of the host, never a success and never a traceback.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Callable

from config.errors import HostError


def open_missing() -> None:
    """Open what the caller closed among standard input, output and error on the null device."""
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor <= 2:  # the lowest free number is taken each time
        os.set_inheritable(descriptor, True)
        descriptor = os.dup(descriptor)
    os.close(descriptor)
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", errors="replace", closefd=False))  # noqa: SIM115


def finish(code: int, report: Callable[[HostError], int]) -> int:
    """Flush both streams and return the exit code: `code`, or that of the error which `report` shows.

    Does not return when the reader of a stream has gone.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            _forget(stream.fileno())
            if isinstance(error, BrokenPipeError):
                end_by_broken_pipe()
            failed = HostError(
                "HOST_IO_FAILED",
                f"the output could not be written: {error.strerror}",
                hint="make room, or send the output elsewhere",
            )
            with contextlib.suppress(OSError):
                code = report(failed) if code == 0 else code
    return code


def output_identity() -> tuple[int, int]:
    """Return what standard output is connected to, to be compared by `reader_is_gone`."""
    found = os.fstat(1)
    return found.st_dev, found.st_ino


def reader_is_gone(before: tuple[int, int]) -> bool:
    """Say whether a write met a closed pipe: nobody reads it, or the printing library has already turned it away."""
    if output_identity() != before:
        return True
    poll = select.poll()
    for descriptor in (1, 2):
        poll.register(descriptor, 0)  # POLLERR and POLLHUP are always reported
    return bool(poll.poll(0))


def end_by_broken_pipe() -> None:
    """End this process as the kernel ends a program that ignores nothing: killed by SIGPIPE."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)


def _forget(descriptor: int) -> None:
    """Send what is still buffered to the null device, so that the interpreter does not try again at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)
