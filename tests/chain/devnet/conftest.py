"""Fixtures of the devnet's tests: a chain in memory, a running node, and the unmodified SDK connected to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from chain.devnet.config import DevnetConfig
from chain.devnet.server import Devnet
from chain.devnet.startup import open_chain
from tests.chain.devnet.support import Driver, RawClient, Wallet, genesis


@pytest.fixture(scope="session")
def sdk_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the SDK's caches, shared so that metadata is fetched once."""
    return tmp_path_factory.mktemp("sdk")


@pytest.fixture(autouse=True)
def sdk_environment(sdk_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the SDK's caches out of the home folder."""
    monkeypatch.setenv("BITTENSOR_RUNTIME_CACHE_DIR", str(sdk_home / "runtime"))
    monkeypatch.setenv("BTCLI_TOKEN_SYMBOLS_CACHE", str(sdk_home / "symbols.json"))


@pytest.fixture
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    """A chain in memory; `@pytest.mark.parametrize("driver", [changes], indirect=True)` changes its genesis."""
    changes = getattr(request, "param", {})
    with open_chain(DevnetConfig(genesis=genesis(**changes))) as chain:
        yield Driver(chain)


@pytest.fixture
async def devnet(request: pytest.FixtureRequest) -> AsyncIterator[Devnet]:
    """A running node in instant mode; parametrise it indirectly with changes to its settings."""
    settings = {"port": 0, "block_time": 0, "genesis": genesis()} | getattr(request, "param", {})
    async with Devnet(DevnetConfig(**settings)) as node:
        yield node


@pytest.fixture
async def sdk(devnet: Devnet) -> AsyncIterator[Any]:
    """The unmodified SDK's async client, connected to the node."""
    import bittensor

    async with bittensor.Subtensor(devnet.url, fallback_endpoints=[], archive_endpoints=[]) as client:
        yield client


@pytest.fixture
async def raw(devnet: Devnet) -> AsyncIterator[RawClient]:
    """A bare JSON-RPC connection to the node."""
    async with connect(devnet.url, max_size=None) as connection:
        yield RawClient(connection)


@pytest.fixture
def validator() -> Wallet:
    """The permitted validator's keys."""
    return Wallet("//Bob")


@pytest.fixture
def miner() -> Wallet:
    """The miner's keys."""
    return Wallet("//Charlie")


@pytest.fixture
def outsider() -> Wallet:
    """A funded person without a registered hotkey."""
    return Wallet("//Dave")
