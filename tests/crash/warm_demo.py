"""Demos that have their libraries already: forked, one at a time, from a process that imported them.

Invariants
1. The process that forks imports, and nothing else (`tests.node.cli.command_server`). The demo runs `node.cli.main` as
   `cacheon demo` does, in a process of its own; chain, node and attempts are started by it as ever.
2. A demo that is killed leaves what it leaves: this process only tells how it ended.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.node.cli.command_server import LIBRARIES, become, run_command

ROOT = Path(__file__).parents[2]


class Demo:
    """One demo that was started; the end of it is waited for before the next one starts."""

    def __init__(self, forge: subprocess.Popen[bytes], root: Path, output: Path) -> None:
        assert forge.stdin is not None
        assert forge.stdout is not None
        self._answers = forge.stdout
        self.output = output
        self.code: int | None = None
        arguments = ["demo", "--json", "--state", str(root)]
        request = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
        forge.stdin.write(json.dumps({"output": str(output), **request}).encode() + b"\n")
        self._pid = int(self._answers.readline())

    def has_ended(self, seconds: float) -> bool:
        """Wait so long for its end, and say whether it came; `code` is its exit code then."""
        if self.code is None and select.select([self._answers], [], [], seconds)[0]:
            self.code = int(self._answers.readline())
        return self.code is not None

    def kill(self) -> None:
        """Kill it with SIGKILL, if it still runs, and wait for its end."""
        if not self.has_ended(0):
            with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                os.kill(self._pid, signal.SIGKILL)
            self.code = int(self._answers.readline())


@contextlib.contextmanager
def demos() -> Iterator[subprocess.Popen[bytes]]:
    """Start the process that demos are forked from."""
    command = [sys.executable, "-m", "tests.crash.warm_demo"]
    # Without a buffer, `select` sees all that has not been read.
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as forge:
        assert forge.stdout is not None
        assert forge.stdout.readline() == b"ready\n"
        yield forge


def main() -> None:
    """Import, then fork a demo for each line of standard input: its number is answered, and its exit code."""
    for name in (*LIBRARIES, "node.cli.actions.demo"):
        importlib.import_module(name)
    gc.freeze()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while line := sys.stdin.readline():
        if (pid := os.fork()) == 0:
            request = json.loads(line)
            output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            sys.argv[1:] = become(request, [os.open(os.devnull, os.O_RDONLY), output, os.dup(2)])
            run_command()
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
