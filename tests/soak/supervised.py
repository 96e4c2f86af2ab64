"""The node's process as the soak sees it: started, listened to, killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from pathlib import Path

import msgspec

from tests.soak.node_process import NodeOptions

_ROOT = Path(__file__).parents[2]


class NodeProcess:
    """One node after another on the same state folder; what the latest one told is kept."""

    def __init__(self, options: NodeOptions, log: Path) -> None:
        self._options = options
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self._listener: asyncio.Task[None] | None = None
        self._moved = asyncio.Event()
        self.cursor = -1
        self.published = -1
        self.started = 0
        self.exits: list[int] = []  # of nodes that ended without being killed
        self.steps: set[int] = set()  # blocks that publication has dealt with
        self.waits: list[tuple[int, str]] = []  # (block, code) whenever publication waited

    @property
    def is_up(self) -> bool:
        """Whether a process runs."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start a process."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.soak.node_process", msgspec.json.encode(self._options).decode(),
                stdout=asyncio.subprocess.PIPE, stderr=log, cwd=_ROOT,
            )
        self._listener = asyncio.create_task(self._listen(self._process))
        self.started += 1

    async def kill(self) -> None:
        """Kill it with SIGKILL and wait for its end."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if self._listener is not None:
            await self._listener

    async def reaches(self, block: int, seconds: float) -> bool:
        """Wait until both services have dealt with `block`, at most `seconds`; say whether they have."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.is_up and min(self.cursor, self.published) < block:
                    self._moved.clear()
                    await self._moved.wait()
        return min(self.cursor, self.published) >= block

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            told = json.loads(line)
            self.cursor = told.get("cursor", self.cursor)
            if "published" in told:
                self.published = told["published"]
                self.steps.add(self.published)
                if told["waiting"]:
                    self.waits.append((told["published"], told["waiting"]))
            self._moved.set()
        await process.wait()
        if process is self._process:
            self.exits.append(process.returncode or 0)
        self._moved.set()
