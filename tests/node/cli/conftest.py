"""Runs the real command in a subprocess."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.node.cli.command_server import CommandServer


@dataclass(frozen=True)
class Ran:
    """What one process left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON line on standard output."""
        lines = self.out.splitlines()
        assert len(lines) == 1, self.out
        document: dict[str, Any] = json.loads(lines[0])
        return document


RunCli = Callable[..., Ran]


def plain_environment(**extra: str) -> dict[str, str]:
    """The caller's environment without anything that would change settings or colour."""
    unwanted = ("CACHEON_", "BT_", "NO_COLOR", "FORCE_COLOR")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(unwanted)}
    return kept | extra


@pytest.fixture(scope="session")
def commands() -> Iterator[CommandServer]:
    """Starts processes that have their libraries already."""
    server = CommandServer(plain_environment())
    yield server
    server.close()


@pytest.fixture
def cli(tmp_path: Path, commands: CommandServer) -> RunCli:
    """Run `cacheon ARGUMENTS...` in a process of its own, inside `tmp_path`."""

    def run(*arguments: str, env: dict[str, str] | None = None, timeout: float = 300) -> Ran:
        return Ran(*commands.run(arguments, tmp_path, plain_environment(**(env or {})), timeout))

    return run


def run_process(command: Sequence[str], folder: Path, env: dict[str, str] | None, timeout: float) -> Ran:
    done = subprocess.run(
        command,
        cwd=folder,
        env=plain_environment(**(env or {})),
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="session")
def wallets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two wallets: `miner` is registered on the chain below, `stranger` is not."""
    from chain.wallet import create_wallet

    folder = tmp_path_factory.mktemp("wallets")
    for name in ("miner", "stranger"):
        create_wallet(folder, name, "default", seed=f"//{name}")
    return folder


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory: pytest.TempPathFactory, wallets: Path) -> Iterator[str]:
    """The URL of a local chain that `cacheon devnet` serves."""
    from chain.devnet.genesis_document import Genesis, NeuronSpec
    from chain.wallet import create_wallet

    miner = create_wallet(wallets, "miner", "default", seed="//miner")
    genesis = Genesis(netuid=2, neurons=(NeuronSpec(miner.hotkey_address, miner.coldkey_address),))
    file = tmp_path_factory.mktemp("chain") / "genesis.json"
    file.write_bytes(msgspec.json.encode(genesis))
    command = [
        sys.executable,
        "-m",
        "node.cli.main",
        "devnet",
        "--port",
        "0",
        "--block-time",
        "0.1",
        "--genesis",
        str(file),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as chain:
        assert chain.stdout is not None
        yield chain.stdout.readline().strip()
        chain.terminate()
        assert chain.wait(30) == 0


@pytest.fixture
def listens() -> Iterator[None]:
    """Let programs that are started here hear SIGINT, which a test run in the background ignores and passes on."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
