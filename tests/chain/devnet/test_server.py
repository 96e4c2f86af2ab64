"""The server: where it listens, timers, slow clients and failures."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from chain.devnet.config import DevnetConfig
from chain.devnet.server import Devnet
from config.errors import ConfigurationError, HostError
from tests.chain.devnet.support import RawClient, genesis


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "localhost", "", "::"])
def test_only_loopback_addresses(host: str) -> None:
    """Anything but a literal loopback address is refused."""
    with pytest.raises(ConfigurationError) as caught:
        DevnetConfig(host=host)
    assert caught.value.code == "DEVNET_SETTINGS_INVALID"


@pytest.mark.parametrize("change", [{"port": 70_000}, {"port": -1}, {"block_time": -1.0}, {"finality_lag": -1}])
def test_impossible_numbers(change: dict[str, Any]) -> None:
    """Negative and too large numbers are refused."""
    with pytest.raises(ConfigurationError):
        DevnetConfig(**change)


async def test_port_in_use(devnet: Devnet) -> None:
    """A second node on the same port fails with PORT_IN_USE and leaves the first alone."""
    with pytest.raises(HostError) as caught:
        await Devnet(DevnetConfig(port=devnet.port)).start()
    assert caught.value.code == "PORT_IN_USE"
    async with connect(devnet.url) as connection:
        assert await RawClient(connection).result("system_name") == "cacheon-devnet"


@pytest.mark.parametrize("devnet", [{"block_time": 0.005}], indirect=True)
async def test_timer_makes_blocks(devnet: Devnet, raw: RawClient) -> None:
    """With a block time blocks come by themselves and are announced."""
    await raw.result("chain_subscribeNewHeads")
    numbers = []
    while len(numbers) < 4:
        numbers += [int(head["number"], 16) for head in await raw.drain()]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


async def test_clients_come_and_go(devnet: Devnet) -> None:
    """Connections that vanish with open subscriptions leave nothing behind."""
    for _ in range(5):
        async with connect(devnet.url) as connection:
            await RawClient(connection).result("chain_subscribeNewHeads")
        devnet.produce_block()
    async with connect(devnet.url) as connection:
        await RawClient(connection).result("system_name")
        await asyncio.sleep(0)
    for _ in range(100):
        if not devnet.hub._open:
            break
        await asyncio.sleep(0.01)
    assert not devnet.hub._open


async def test_failure_to_write_ends_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a block cannot be made durable, `wait` raises and the asker gets an error, not a block."""
    config = DevnetConfig(port=0, manual=True, state=tmp_path / "chain.state", genesis=genesis())
    async with Devnet(config) as node, connect(node.url) as connection:

        def refuse(*_: Any) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.pwrite", refuse)
        answer = await RawClient(connection).ask("dev_newBlock")
        assert "STATE_UNWRITABLE" in answer["error"]["message"]
        with pytest.raises(HostError) as caught:
            await asyncio.wait_for(node.wait(), 5)
        assert (caught.value.code, node.chain.head.number) == ("STATE_UNWRITABLE", 0)
        monkeypatch.undo()
