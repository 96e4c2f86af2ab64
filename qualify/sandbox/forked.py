"""A fork server that is a fork of its client, so that both share what one of them imported.

Invariants
1. The fork keeps the socket of the fork server and no other descriptor; its standard streams lead nowhere, its errors
   into the file it is given. It is in a session of its own and never returns into the code of its client.
2. Nothing is cleaned up for the client: what this process opened is the client's and is left to it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import traceback
from typing import NoReturn

from qualify.sandbox.wire import ZygoteConfig

_STEP_SECONDS = 0.005


class Forked:
    """A child of this process, with the part of `subprocess.Popen` that a fork server's client uses."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Reap the child and return its exit code, negative for a signal. Raises `subprocess.TimeoutExpired`."""
        until = None if timeout is None else time.monotonic() + timeout
        while self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
            elif until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired("fork server", timeout or 0.0)
            else:
                time.sleep(_STEP_SECONDS)
        return self._status

    def kill(self) -> None:
        """End it."""
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)


def fork_server(config: ZygoteConfig, errors: int) -> Forked:
    """Fork this single-threaded process; the child serves on `config.control_descriptor` until its client is gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _serve(config, errors)
    return Forked(pid)


def _serve(config: ZygoteConfig, errors: int) -> NoReturn:
    status = 1
    try:
        os.setsid()
        os.chdir("/")
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number, descriptor in ((0, nowhere), (1, nowhere), (2, errors)):
            os.dup2(descriptor, number)
        os.closerange(3, config.control_descriptor)
        os.closerange(config.control_descriptor + 1, os.sysconf("SC_OPEN_MAX"))
        from qualify.sandbox.zygote_main import main

        main(config)
        status = 0
    except SystemExit as ending:
        status = ending.code if isinstance(ending.code, int) else 1
    except BaseException:  # noqa: BLE001 - the end of a process: nothing may run on into the client's code
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)
