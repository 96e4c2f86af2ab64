"""Processes of the `cacheon` command that have their libraries already: forked from one that imported them.

Importing what a command needs takes seconds of processor time, and the tests run hundreds of commands. A command of
this server is a process of its own all the same, with its own arguments, environment, folder, streams and exit.

Invariants
1. The server imports, and nothing else: it reads no settings and starts no thread. `node.cli.main` itself is run by
   each command, as `python -m node.cli.main` runs it.
2. A command ends as any Python process does: its threads are waited for, exit functions run, streams are flushed. Only
   the libraries are not taken down one by one, which takes longer than most commands.
3. The server ends when its socket closes, so it does not outlive the tests.

What a command imports is the business of `test_startup.py`, which starts interpreters.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parents[3]
LIBRARIES = (
    "aiohttp", "alembic.command", "bittensor", "rich.console", "rich.table", "sqlalchemy", "structlog", "typer",
    "websockets.asyncio.client", "chain.client", "chain.commitments", "chain.devnet.server", "node.cli.app",
    "node.daemon", "node.store.engine",
)
_LARGEST = 1 << 20  # bytes of a request


class CommandServer:
    """A client of the server process, which it starts; `close` ends it."""

    def __init__(self, environment: dict[str, str]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", "tests.node.cli.command_server", str(theirs.fileno())]
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
            )
        self._socket = ours

    def run(
        self, arguments: Sequence[str], folder: Path, environment: dict[str, str], timeout: float
    ) -> tuple[int, str, str]:
        """Run one command in `folder` and return exit code (a signal as its negative number), output and errors.

        Raises `subprocess.TimeoutExpired` after `timeout` seconds; the command is killed then.
        """
        request = json.dumps({"arguments": list(arguments), "folder": str(folder), "environment": environment})
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with ours, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            with theirs, open(os.devnull, "rb") as nothing:
                files = [theirs.fileno(), nothing.fileno(), out.fileno(), err.fileno()]
                socket.send_fds(self._socket, [request.encode()], files)
            answers = ours.makefile("r")
            ours.settimeout(timeout)
            pid = 0
            try:
                pid = int(answers.readline())
                code = int(answers.readline())
            except TimeoutError:
                if pid:
                    os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(arguments), timeout) from None
            return code, _text(out), _text(err)

    def close(self) -> None:
        """End the server; its commands have ended."""
        self._socket.close()
        self._process.wait(60)


def _text(file: Any) -> str:
    file.seek(0)
    return str(file.read().decode().replace("\r\n", "\n"))


def _serve(requests: socket.socket) -> list[str]:
    """Fork a process for each request and return in it, as the command it is; exit when nobody can ask any more."""
    while True:
        data, files, _, _ = socket.recv_fds(requests, _LARGEST, 4)
        if not data:
            sys.exit(0)
        if os.fork() == 0:
            requests.close()
            answer, *streams = files
            command = os.fork()
            if command == 0:
                os.close(answer)
                return become(json.loads(data), streams)
            _await(command, answer)
        for number in files:
            os.close(number)
        _reap()


def _await(command: int, answer: int) -> NoReturn:
    """Tell the asker the number and then the end of its command."""
    os.write(answer, b"%d\n" % command)
    _, status = os.waitpid(command, 0)
    os.write(answer, b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def become(request: dict[str, Any], streams: list[int]) -> list[str]:
    """Take over the streams, folder and environment of a command in a process forked for it; return its arguments."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[0] = request["folder"]
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        errors = "backslashreplace" if number == 2 else "strict"
        stream = open(number, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    return list(request["arguments"])


def main() -> None:
    """Import, serve, and run the command in each process that comes out of that."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    requests.set_inheritable(False)
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.freeze()
    sys.argv[1:] = _serve(requests)
    run_command()


def run_command() -> NoReturn:
    """Be `python -m node.cli.main`, with the arguments in `sys.argv`, and end as it does."""
    code = 1
    try:
        runpy.run_module("node.cli.main", run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter does with what nobody catches
        traceback.print_exc()
    _end(code)


def _end(code: int) -> NoReturn:
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
