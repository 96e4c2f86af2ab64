"""The server: where it listens, timers, slow clients and failures."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from chain.devnet.codec import codec
from chain.devnet.config import DevnetConfig
from chain.devnet.server import Devnet
from config.errors import ConfigurationError, HostError, InternalError
from tests.chain.devnet.support import NETUID, VALIDATOR, RawClient, genesis, sign
from tests.chain.devnet.test_extrinsics import REMARK


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "localhost", "", "::"])
def test_only_loopback_addresses(host: str) -> None:
    """Anything but a literal loopback address is refused."""
    with pytest.raises(ConfigurationError) as caught:
        DevnetConfig(host=host)
    assert caught.value.code == "DEVNET_SETTINGS_INVALID"


NUMBERS = [
    {"port": 70_000},
    {"port": -1},
    {"block_time": -1.0},
    {"block_time": math.nan},
    {"block_time": math.inf},
    {"ban_seconds": -1.0},
    {"finality_lag": -1},
]


@pytest.mark.parametrize("change", NUMBERS)
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
            await asyncio.wait_for(node.wait(), 120)
        assert (caught.value.code, node.chain.head.number) == ("STATE_UNWRITABLE", 0)
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("headers", "served"),
    [
        ({"Origin": "https://polkadot.example"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": "http://localhost.evil.example:3000"}, False),
        ({"Origin": "http://127.0.0.1@evil.example"}, False),
        ({"Origin": "http://localhost:3000"}, True),
        ({"Origin": "http://[::1]:3000"}, True),
        ({"Host": "rebound.example:9944"}, False),
        ({"Host": "localhost"}, True),
        ({}, True),
    ],
)
async def test_only_programs_of_this_machine_are_served(devnet: Devnet, headers: dict[str, str], served: bool) -> None:
    """A web page from elsewhere, or a name rebound to loopback, gets 403 before it can ask anything."""
    lines = {"Host": f"127.0.0.1:{devnet.port}", "Upgrade": "websocket", "Connection": "Upgrade"} | headers
    lines |= {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version": "13"}
    request = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    reader, writer = await asyncio.open_connection("127.0.0.1", devnet.port)
    writer.write(f"GET / HTTP/1.1\r\n{request}\r\n".encode())
    status = (await reader.readline()).split()[1]
    writer.transport.abort()
    assert status == (b"101" if served else b"403")


async def test_an_oversized_request_costs_only_its_own_connection(devnet: Devnet, raw: RawClient) -> None:
    """A frame beyond the limit is refused with the close code for it; others are served on."""
    connection = await connect(devnet.url)
    with pytest.raises(ConnectionClosed):
        await asyncio.gather(connection.send(" " * (2**24 + 1)), connection.recv())
    await connection.wait_closed()
    assert connection.close_code == 1009
    assert await raw.result("system_name") == "cacheon-devnet"


async def test_a_batch_cannot_make_an_endless_answer(raw: RawClient) -> None:
    """Once the answers are large enough, the rest of the batch is refused, each with its id."""
    batch = [{"jsonrpc": "2.0", "id": number, "method": "state_getMetadata"} for number in range(60)]
    await raw.connection.send(json.dumps(batch))
    answers = json.loads(await raw.connection.recv())
    assert [answer["id"] for answer in answers] == list(range(60))
    refused = [answer for answer in answers if answer.get("error", {}).get("code") == -32011]
    assert 0 < len(refused) < 60
    assert all("error" in answer for answer in answers[-len(refused) :])


async def test_who_does_not_read_is_not_answered_further(devnet: Devnet, raw: RawClient) -> None:
    """Answers that nobody reads do not pile up in the node's memory; once read, the rest comes, in order."""
    async with connect(devnet.url, max_size=None, max_queue=1) as lazy:
        for number in range(120):
            await lazy.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": "state_getMetadata"}))
        for _ in range(3):
            assert await raw.result("system_name") == "cacheon-devnet"
        assert [json.loads(await lazy.recv())["id"] for _ in range(120)] == list(range(120))


async def test_many_blocks_at_once_cut_off_no_subscriber(devnet: Devnet, raw: RawClient) -> None:
    """Who asks for many blocks in one request hears of every one in every subscription, and stays connected."""
    for _ in range(21):
        await raw.result("chain_subscribeNewHeads")
    await raw.drain()
    await raw.result("dev_newBlock", 500)
    assert len(await raw.drain()) == 21 * 500


async def test_subscriptions_of_a_connection_are_bounded_and_its_own(devnet: Devnet, raw: RawClient) -> None:
    """The last one too many is refused, ending one makes room, and nobody ends another's."""
    names = [await raw.result("chain_subscribeNewHeads") for _ in range(1_024)]
    assert (await raw.ask("chain_subscribeNewHeads"))["error"]["code"] == -32006
    async with connect(devnet.url) as connection:
        assert await RawClient(connection).result("chain_unsubscribeNewHeads", names[0]) is False
    assert await raw.result("chain_unsubscribeNewHeads", names[0]) is True
    assert await raw.result("chain_subscribeNewHeads")
    await raw.drain()
    devnet.produce_block()
    assert len(await raw.drain()) == 1_024


@pytest.mark.parametrize("devnet", [{"block_time": 0, "manual": True}], indirect=True)
async def test_an_unwatched_extrinsic_leaves_no_watcher(devnet: Devnet, raw: RawClient) -> None:
    """Ending the subscription of an extrinsic forgets it at once, not when it is included."""
    text = "0x" + sign(devnet.chain, VALIDATOR, REMARK).hex()
    name = await raw.result("author_submitAndWatchExtrinsic", text)
    assert await raw.result("author_unwatchExtrinsic", name) is True
    assert devnet.hub._watched == {}


async def test_a_notification_is_obeyed_and_not_answered(devnet: Devnet, raw: RawClient) -> None:
    """A request without id gets no answer, alone or in a batch; NaN is not JSON."""
    await raw.connection.send(json.dumps({"jsonrpc": "2.0", "method": "dev_newBlock"}))
    await raw.connection.send(json.dumps([{"jsonrpc": "2.0", "method": "dev_newBlock"}]))
    assert await raw.result("system_name") == "cacheon-devnet"
    assert (devnet.chain.head.number, raw.notes) == (2, [])
    await raw.connection.send('{"id": NaN, "method": "system_name"}')
    assert json.loads(await raw.connection.recv())["error"]["code"] == -32700


@pytest.mark.parametrize("devnet", [{"block_time": 0.01}], indirect=True)
async def test_storage_that_breaks_a_hook_ends_the_node_with_a_reason(devnet: Devnet, raw: RawClient) -> None:
    """Raw storage that no block can be made on: the node says so and ends, instead of living on without blocks."""
    key = "0x" + codec().key("SubtensorModule", "Tempo", (NETUID,)).hex()
    await raw.result("dev_setStorage", [[key, "0x01"]])
    with pytest.raises(InternalError) as caught:
        await asyncio.wait_for(devnet.wait(), 120)
    assert caught.value.code == "DEVNET_BLOCK_FAILED"
