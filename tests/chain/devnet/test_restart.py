"""Real processes: kill -9 at any moment, locks across processes, ports and signals."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from chain.devnet.config import DevnetConfig
from chain.devnet.startup import open_chain
from tests.chain.devnet.support import VALIDATOR, Driver, address, sign
from tests.chain.devnet.test_extrinsics import REMARK

pytestmark = pytest.mark.crash


class Process:
    """A devnet in its own process."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self.child = child
        self.ready: dict[str, Any] = {}

    @classmethod
    async def start(cls, *arguments: str) -> Process:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "chain.devnet",
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        )
        process = cls(child)
        assert child.stdout is not None
        line = await asyncio.wait_for(child.stdout.readline(), 120)
        process.ready = json.loads(line) if line else {}
        return process

    async def end(self, number: signal.Signals) -> int:
        if self.child.returncode is None:
            self.child.send_signal(number)
        await asyncio.wait_for(self.child.communicate(), 120)
        assert self.child.returncode is not None
        return self.child.returncode

    async def refusal(self) -> tuple[int, str]:
        _, errors = await asyncio.wait_for(self.child.communicate(), 120)
        assert self.child.returncode is not None
        return self.child.returncode, json.loads(errors)["code"]


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[tuple[Process, Path]]:
    path = tmp_path / "chain.state"
    process = await Process.start("--port", "0", "--state", str(path), "--manual")
    yield process, path
    await process.end(signal.SIGKILL)


async def kill_after(process: Process, blocks: int) -> dict[int, str]:
    """Follow finalized heads, kill the process when `blocks` were announced, and return all announced state roots."""
    announced: dict[int, str] = {}
    with contextlib.suppress(ConnectionClosed):
        async with connect(process.ready["url"]) as connection:
            await connection.send(json.dumps({"id": 1, "method": "chain_subscribeFinalizedHeads", "params": []}))
            async for message in connection:
                header = json.loads(message).get("params", {}).get("result")
                if header:
                    announced[int(header["number"], 16)] = header["stateRoot"]
                if len(announced) == blocks:
                    process.child.kill()
    await process.end(signal.SIGKILL)
    return announced


async def test_sigkill_loses_no_announced_block(tmp_path: Path) -> None:
    """A node that makes blocks as fast as it can is killed at random moments; every announced block is still there."""
    path = tmp_path / "chain.state"
    chooser = random.Random(7)
    genesis, announced = "", dict[int, str]()
    for _ in range(6):
        process = await Process.start(
            "--port", "0", "--state", str(path), "--block-time", "0.0005", "--finality-lag", "1"
        )
        genesis = genesis or process.ready["genesis"]
        assert process.ready["genesis"] == genesis
        assert process.ready["head"] >= max(announced, default=0)
        announced |= await kill_after(process, chooser.randrange(1, 120))
    with open_chain(DevnetConfig(state=path)) as chain:
        roots = {number: chain.blocks[number].header.to_json()["stateRoot"] for number in announced}
    assert roots == announced


async def test_sigkill_between_forks(tmp_path: Path) -> None:
    """A node that forks all the time is killed at random moments: what was final is still there, on a whole branch."""
    path = tmp_path / "chain.state"
    chooser = random.Random(11)
    final: dict[int, str] = {}
    for _ in range(4):
        process = await Process.start("--port", "0", "--state", str(path), "--manual", "--finality-lag", "3")
        assert process.ready["head"] >= max(final, default=0)
        final |= await kill_while_forking(process, chooser.randrange(2, 60))
    with open_chain(DevnetConfig(state=path, finality_lag=3)) as chain:
        assert {number: chain.blocks[number].header.to_json()["stateRoot"] for number in final} == final
        assert chain.finalized.number >= max(final)
        assert [block.number for block in chain.blocks] == list(range(len(chain.blocks)))
        chain.fork(chain.head.number - chain.finalized.number)


async def kill_while_forking(process: Process, blocks: int) -> dict[int, str]:
    """Ask for blocks and forks without pause, kill the process once `blocks` were final, return their state roots."""
    final: dict[int, str] = {}
    with contextlib.suppress(ConnectionClosed):
        async with connect(process.ready["url"]) as connection:
            await connection.send(json.dumps({"id": 1, "method": "chain_subscribeFinalizedHeads", "params": []}))
            for method, params in [("dev_newBlock", [3]), ("dev_fork", [2]), ("dev_fork", [3, 5])] * blocks:
                await connection.send(json.dumps({"id": 2, "method": method, "params": params}))
            async for message in connection:
                header = json.loads(message).get("params", {}).get("result")
                if header:
                    final[int(header["number"], 16)] = header["stateRoot"]
                if len(final) >= blocks:
                    process.child.kill()
    await process.end(signal.SIGKILL)
    return final


async def test_state_file_is_locked_across_processes(running: tuple[Process, Path]) -> None:
    """A second process on the same state file refuses with STATE_IN_USE and exit code 6."""
    _, path = running
    second = await Process.start("--port", "0", "--state", str(path))
    assert await second.refusal() == (6, "STATE_IN_USE")


async def test_port_in_use(running: tuple[Process, Path]) -> None:
    """A second process on the same port refuses with PORT_IN_USE and exit code 6."""
    process, _ = running
    port = process.ready["url"].rpartition(":")[2]
    assert await (await Process.start("--port", port)).refusal() == (6, "PORT_IN_USE")


async def test_sigterm_ends_cleanly(tmp_path: Path) -> None:
    """SIGTERM ends the process with exit code 0 and releases the file."""
    path = tmp_path / "chain.state"
    process = await Process.start("--port", "0", "--state", str(path), "--block-time", "0.01")
    assert await process.end(signal.SIGTERM) == 0
    with open_chain(DevnetConfig(state=path)) as chain:
        assert chain.head.number >= 0


async def test_pending_extrinsics_may_be_lost_but_included_ones_are_not(tmp_path: Path) -> None:
    """An included extrinsic survives a kill right after its announcement."""
    path = tmp_path / "chain.state"
    process = await Process.start(
        "--port", "0", "--state", str(path), "--block-time", "0", "--account", f"{address(VALIDATOR)}=5"
    )
    async with connect(process.ready["url"]) as connection:
        # The signer needs only the genesis hash, which a chain loaded from the (still locked) file cannot give.
        with open_chain(DevnetConfig()) as scratch:
            scratch.blocks[0].__dict__["hash"] = bytes.fromhex(process.ready["genesis"][2:])
            raw = sign(scratch, VALIDATOR, REMARK)
        request = {"jsonrpc": "2.0", "id": 1, "method": "author_submitAndWatchExtrinsic", "params": ["0x" + raw.hex()]}
        await connection.send(json.dumps(request))
        async for message in connection:
            status = json.loads(message).get("params", {}).get("result")
            if isinstance(status, dict) and "inBlock" in status:
                break
        assert await process.end(signal.SIGKILL) == -signal.SIGKILL
    with open_chain(DevnetConfig(state=path)) as chain:
        assert Driver(chain).nonce(VALIDATOR) == 1
        assert raw in chain.blocks[1].extrinsics
