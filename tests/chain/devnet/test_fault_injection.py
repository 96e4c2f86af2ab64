"""Injected faults as a client meets them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from chain.devnet import beacon
from chain.devnet.codec import codec
from chain.devnet.fault_plan import Fault
from chain.devnet.server import Devnet
from tests.chain.devnet.support import MINER, VALIDATOR, RawClient, commitment, hot, sealed_field, sign
from tests.chain.devnet.test_extrinsics import REMARK

EVENTS = "0x" + codec().key("System", "Events").hex()
SOON = 60.0  # seconds; only a safety net


@pytest.fixture
async def other(devnet: Devnet) -> AsyncIterator[RawClient]:
    """A second connection, on which nothing goes wrong unless asked."""
    async with connect(devnet.url, max_size=None) as connection:
        yield RawClient(connection)


def signed(devnet: Devnet, uri: str = VALIDATOR, call: bytes = REMARK) -> str:
    return "0x" + sign(devnet.chain, uri, call).hex()


async def request(connection: ClientConnection, method: str, *params: Any) -> None:
    await connection.send(json.dumps({"jsonrpc": "2.0", "id": 77, "method": method, "params": list(params)}))


@pytest.mark.parametrize(("kind", "sealed"), [("drop", 0), ("drop_after", 1)])
async def test_a_dropped_socket(devnet: Devnet, raw: RawClient, other: RawClient, kind: Any, sealed: int) -> None:
    """The connection ends without an answer; whether the work was done is what tells the two kinds apart."""
    devnet.faults.inject(Fault(kind=kind, methods=("author_submitExtrinsic",), limit=1))
    with pytest.raises(ConnectionClosed) as caught:
        await raw.ask("author_submitExtrinsic", signed(devnet))
    assert caught.value.rcvd is None
    assert int((await other.result("chain_getHeader"))["number"], 16) == sealed
    assert (await other.ask("author_submitExtrinsic", signed(devnet)))["result"]


async def test_a_half_open_socket(devnet: Devnet, raw: RawClient, other: RawClient) -> None:
    """The socket stays open and nothing comes through it: no answer, no head, no pong; the node goes on."""
    await raw.result("chain_subscribeNewHeads")
    await raw.drain()
    devnet.faults.inject(Fault(kind="half_open", limit=1))
    await request(raw.connection, "system_name")
    for _ in range(3):
        await other.result("dev_newBlock")
    silent = await raw.connection.ping()
    await request(raw.connection, "system_name")
    for _ in range(3):
        await other.result("dev_newBlock")
    assert not silent.done()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(raw.connection.recv(), 0.05)
    assert devnet.hub._open == {}
    raw.connection.transport.abort()
    async with asyncio.timeout(SOON):
        while len(devnet._conversations) > 1:
            await other.result("system_name")
    silent.cancel()


async def test_a_half_open_socket_does_not_hold_up_the_end(devnet: Devnet, other: RawClient) -> None:
    """A node stops at once although a half-open client would never answer its goodbye."""
    connection = await connect(devnet.url)
    devnet.faults.inject(Fault(kind="half_open", methods=("system_chain",)))
    await request(connection, "system_chain")
    async with asyncio.timeout(SOON):
        while not any(conversation.half_open for conversation in devnet._conversations):
            await other.result("system_name")
    await devnet.stop()
    with pytest.raises(ConnectionClosed):
        await connection.recv()


async def test_a_delayed_answer_lets_others_pass(devnet: Devnet, raw: RawClient) -> None:
    """While one answer is held back, later requests of the same connection are carried out and answered."""
    devnet.faults.inject(Fault(kind="delay", seconds=3_600, methods=("system_name",), limit=1))
    await request(raw.connection, "system_name")
    for _ in range(3):
        assert await raw.result("system_name") == "cacheon-devnet"
    assert raw.notes == []


async def test_a_delayed_answer_comes(devnet: Devnet, raw: RawClient) -> None:
    """The work is done at once; its answer comes when the time is over."""
    devnet.faults.inject(Fault(kind="delay", seconds=0.02, methods=("author_submitExtrinsic",)))
    assert await asyncio.wait_for(raw.result("author_submitExtrinsic", signed(devnet)), SOON)
    assert devnet.chain.head.number == 1


async def test_a_delayed_subscription_is_named_before_its_notifications(devnet: Devnet, raw: RawClient) -> None:
    """However late the answer is, the notifications of the subscription it names come after it."""
    devnet.faults.inject(Fault(kind="delay", seconds=0.1, methods=("chain_subscribeNewHeads",)))
    await request(raw.connection, "chain_subscribeNewHeads")
    for _ in range(3):
        devnet.produce_block()
    first, *rest = [json.loads(await asyncio.wait_for(raw.connection.recv(), SOON)) for _ in range(2)]
    assert first["id"] == 77
    assert rest[0]["params"]["subscription"] == first["result"]


async def test_too_many_requests_at_the_door(devnet: Devnet, raw: RawClient) -> None:
    """New handshakes are refused with 429 and a time to wait; open connections go on and can end it."""
    await raw.result("dev_inject", {"kind": "http_429", "seconds": 2.5, "limit": 2})
    for _ in range(2):
        with pytest.raises(InvalidStatus) as caught:
            await connect(devnet.url)
        assert caught.value.response.status_code == 429
        assert caught.value.response.headers["Retry-After"] == "3"
    async with connect(devnet.url):
        pass
    assert await raw.result("dev_faultCounts") == [
        {"id": 1, "kind": "http_429", "offered": 2, "injected": 2, "active": False}
    ]


async def test_an_error_of_a_gateway(devnet: Devnet, raw: RawClient) -> None:
    """The error has the given code and message, and the time to wait where one is given; a batch suffers singly."""
    await raw.result("dev_inject", {"kind": "rpc_error", "methods": ["system_name"], "seconds": 4, "limit": 1})
    error = (await raw.ask("system_name"))["error"]
    assert error == {"code": -32005, "message": "Too many requests", "data": {"retry_after": 4.0}}
    await raw.result("dev_inject", {"kind": "rpc_error", "methods": ["system_name"], "code": -1, "message": "no"})
    batch = [{"jsonrpc": "2.0", "id": name, "method": name} for name in ("system_chain", "system_name")]
    await raw.connection.send(json.dumps(batch))
    good, bad = json.loads(await raw.connection.recv())
    assert good["result"] == "Cacheon devnet"
    assert bad["error"] == {"code": -1, "message": "no"}
    assert await raw.result("dev_clearFaults") == 1
    assert await raw.result("system_name") == "cacheon-devnet"


async def test_discarded_state(devnet: Devnet, raw: RawClient) -> None:
    """Reading state answers as a pruned node does, naming the block; headers are still told."""
    await raw.result("dev_inject", {"kind": "discarded_state"})
    head = devnet.chain.head.hash_hex
    error = (await raw.ask("state_getStorage", EVENTS, head))["error"]
    assert error["code"] == 4003
    assert error["message"].endswith(f"State already discarded for {head}")
    assert (await raw.result("chain_getHeader", head))["number"] == "0x0"


async def test_a_lost_inclusion_subscription(devnet: Devnet, raw: RawClient) -> None:
    """The extrinsic is included, its watcher never hears of it, and other subscriptions live on."""
    heads = await raw.result("chain_subscribeNewHeads")
    await raw.drain()
    await raw.result("dev_inject", {"kind": "lose_subscription", "methods": ["author_submitAndWatchExtrinsic"]})
    text = signed(devnet)
    watch = await raw.result("author_submitAndWatchExtrinsic", text)
    await raw.ask("system_name")
    assert {note["params"]["subscription"] for note in raw.notes} == {heads}
    assert bytes.fromhex(text[2:]) in devnet.chain.head.extrinsics
    assert await raw.result("author_unwatchExtrinsic", watch) is False  # it was over long ago


async def test_a_subscription_lost_on_the_way(devnet: Devnet, raw: RawClient) -> None:
    """A head subscription that loses one notification loses all later ones, even when the fault is taken back."""
    await raw.result("chain_subscribeNewHeads")
    devnet.produce_block()
    await raw.result("dev_inject", {"kind": "lose_subscription", "limit": 1})
    devnet.produce_block()
    await raw.result("dev_clearFaults")
    devnet.produce_block()
    assert [int(head["number"], 16) for head in await raw.drain()] == [0, 1]
    await raw.result("chain_subscribeNewHeads")
    assert [int(head["number"], 16) for head in await raw.drain()] == [3]


@pytest.mark.parametrize("method", ["author_submitExtrinsic", "author_submitAndWatchExtrinsic"])
async def test_success_without_effect(devnet: Devnet, raw: RawClient, method: str) -> None:
    """The answer is that of an accepted extrinsic, but it is gone; a bad one is still refused."""
    await raw.result("dev_inject", {"kind": "false_success", "limit": 1})
    text = signed(devnet)
    assert (await raw.ask(method, text[:-2] + "ff"))["error"]["code"] in (1002, 1010)
    assert await raw.result(method, text)
    await raw.result("dev_newBlock")
    assert await raw.result("author_pendingExtrinsics") == []
    assert (devnet.chain.head.number, len(devnet.chain.head.extrinsics)) == (1, 1)
    assert await raw.drain() == (["ready"] if "Watch" in method else [])
    await raw.result(method, text)
    assert bytes.fromhex(text[2:]) in devnet.chain.head.extrinsics


@pytest.fixture
async def two_reveals(devnet: Devnet) -> list[Any]:
    """A block with two reveals at the head; its true events."""
    fields = [sealed_field(beacon.seal(data), beacon.round_of_block(1)) for data in (b"one", b"two")]
    devnet.chain.submit(sign(devnet.chain, hot(MINER), commitment(*fields)))
    devnet.produce_block()
    while not any(e["event_id"] == "CommitmentRevealed" for e in events_of(devnet)):
        devnet.produce_block()
    return events_of(devnet)


def events_of(devnet: Devnet) -> list[Any]:
    found: list[Any] = devnet.chain.view().get("System", "Events")
    return found


def decoded(text: str) -> list[Any]:
    found: list[Any] = codec().decode_value("System", "Events", bytes.fromhex(text[2:]))
    return found


async def test_events_told_twice(devnet: Devnet, raw: RawClient, two_reveals: list[Any]) -> None:
    """One answer lists every event twice; the next one tells the truth, and other keys are left alone."""
    await raw.result("dev_inject", {"kind": "duplicate_events", "limit": 1})
    head = devnet.chain.head.hash_hex
    number = "0x" + codec().key("System", "Number").hex()
    assert (
        await raw.result("state_getStorage", number, head)
        == "0x" + devnet.chain.head.number.to_bytes(4, "little").hex()
    )
    ((_, text),) = (await raw.result("state_queryStorageAt", [EVENTS], head))[0]["changes"]
    assert decoded(text) == two_reveals * 2
    assert decoded(await raw.result("state_getStorage", EVENTS, head)) == two_reveals


async def test_events_without_one_reveal(devnet: Devnet, raw: RawClient, two_reveals: list[Any]) -> None:
    """One answer lacks one of the reveals; a block without reveals is no occasion."""
    await raw.result("dev_inject", {"kind": "missing_events", "limit": 1})
    genesis_child = devnet.chain.blocks[1].hash_hex
    assert decoded(await raw.result("state_getStorage", EVENTS, genesis_child))
    text = await raw.result("state_getStorageAt", EVENTS, devnet.chain.head.hash_hex)
    missing = [event for event in two_reveals if event["event_id"] == "CommitmentRevealed"]
    assert len(missing) == 2
    left = decoded(text)
    assert len(left) == len(two_reveals) - 1
    assert sum(event["event_id"] == "CommitmentRevealed" for event in left) == 1
    assert decoded(await raw.result("state_getStorage", EVENTS)) == two_reveals
    ((count),) = devnet.faults.counts()
    assert (count.offered, count.injected) == (1, 1)


@pytest.mark.parametrize("document", [None, {"kind": "no"}, {"kind": "drop", "methods": ["chain_getHaeder"]}])
async def test_a_bad_fault_is_refused(raw: RawClient, document: Any) -> None:
    """A document that is no fault of this node changes nothing."""
    assert (await raw.ask("dev_inject", document))["error"]["code"] == -32602
    assert await raw.result("dev_faultCounts") == []


async def test_the_sdk_meets_a_dropped_socket(devnet: Devnet, sdk: Any) -> None:
    """The unmodified SDK reconnects by itself after a dropped read and gets its answer."""
    devnet.faults.inject(Fault(kind="drop", methods=("state_getStorageAt", "state_queryStorageAt"), limit=1))
    devnet.produce_block()
    async with asyncio.timeout(SOON):
        assert await sdk.query(("System", "Number"), [], block=1) == 1
    assert devnet.faults.counts()[0].injected == 1
