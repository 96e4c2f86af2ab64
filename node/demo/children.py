"""The demo's child processes: real `cacheon` commands, tethered to this process, each with its own log.

Invariants
1. No child outlives the demo, not even one killed with SIGKILL (`node.demo.tether`).
2. A child that ends by itself is noticed and becomes one error that quotes what the child said last.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import node
from config.errors import (
    CacheonError,
    ChainError,
    ConfigurationError,
    ExitCode,
    HostError,
    InternalError,
    NetworkError,
)

STOP_SECONDS = 20.0
_FAMILIES: dict[int, type[CacheonError]] = {
    ExitCode.USAGE: ConfigurationError,
    ExitCode.CHAIN: ChainError,
    ExitCode.NETWORK: NetworkError,
    ExitCode.HOST: HostError,
}
_SAID = re.compile(r"error\[[A-Z0-9_]+\]: .*")


class Child:
    """One running `cacheon` command."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def check(self) -> None:
        """Raise the child's own failure, in the family of its exit code, when it has ended."""
        if self._process.returncode is not None:
            raise self._failure(self._process.returncode)

    async def stop(self) -> None:
        """Ask it to stop, and kill it when it does not."""
        if self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), STOP_SECONDS)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    def _failure(self, code: int) -> CacheonError:
        family = _FAMILIES.get(code, InternalError)
        said = _SAID.findall(self.log.read_text("utf-8", errors="replace"))
        message = f"the {self.name} ended with exit code {code}" + (f": {said[-1]}" if said else "")
        return family("DEMO_PROCESS_ENDED", message, hint=f"its log is {self.log}")


@asynccontextmanager
async def running(name: str, arguments: Sequence[str], log: Path, keep: Sequence[int] = ()) -> AsyncIterator[Child]:
    """Run `cacheon ARGUMENTS...` for the length of the block.

    `name` is how it is called in messages; the descriptors in `keep` stay open in it.
    """
    command = [sys.executable, "-m", "node.cli.main", *arguments]
    # settings come from the demo's own files alone: a CACHEON_ variable of the caller would override them
    environment = {key: text for key, text in os.environ.items() if not key.startswith("CACHEON_")}
    with log.open("wb") as stream:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "node.demo.tether",
            str(os.getpid()),
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env=environment,
            pass_fds=tuple(keep),
            start_new_session=True,  # Ctrl-C reaches the demo alone, which then stops its children in order
            cwd=Path(node.__file__).parent.parent,
        )
    child = Child(name, process, log)
    try:
        yield child
    finally:
        await asyncio.shield(child.stop())
