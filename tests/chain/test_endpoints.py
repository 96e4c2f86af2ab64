"""Endpoints that lie, babble, stay silent or belong to another chain."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from chain.client import ChainClient
from config.errors import CacheonError, NetworkError

GENESIS = "0x" + "ab" * 32
Reply = Callable[[dict[str, Any]], str | bytes | None]


def after_genesis(request: dict[str, Any], reply: str | bytes | None, genesis: str = GENESIS) -> str | bytes | None:
    """Name the genesis when asked for it, and answer everything else with `reply`."""
    if request["method"] == "chain_getBlockHash":
        return json.dumps({"id": request["id"], "result": genesis})
    return reply


@pytest.fixture(name="endpoint")
async def _endpoint() -> AsyncIterator[Callable[[Reply], Any]]:
    async with contextlib.AsyncExitStack() as stack:

        async def make(reply: Reply) -> str:
            async def handle(connection: ServerConnection) -> None:
                async for message in connection:
                    answer = reply(json.loads(message))
                    if answer is not None:
                        await connection.send(answer)

            server = await stack.enter_async_context(serve(handle, "127.0.0.1", 0))
            return f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"

        yield make


@pytest.fixture(name="deaf")
async def _deaf() -> AsyncIterator[str]:
    """Takes TCP connections and never says a word."""

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # the client's handshake is never answered; this ends when the client leaves
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    async with server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def client_of(world: Any, *endpoints: str, **options: Any) -> ChainClient:
    """A client that tries `endpoints` in order."""
    client: ChainClient = world.new_client(endpoints[0], **options)
    client._endpoints[:] = endpoints
    return client


BABBLE: dict[str, str | bytes | None] = {
    "no JSON": "hello",
    "a number": "5",
    "a list of numbers": "[1]",
    "bytes that are no text": b"\xff\xfe",
    "an id that cannot be a key": '{"id": [1], "result": 3}',
    "silence": None,
}


@pytest.mark.parametrize("name", BABBLE)
async def test_an_endpoint_that_babbles_is_passed_over_in_the_same_call(world: Any, endpoint: Any, name: str) -> None:
    """Whatever a peer sends instead of JSON-RPC, the next endpoint answers the very call that met it."""
    client = client_of(world, await endpoint(lambda _: BABBLE[name]), world.node.url, request_timeout=8.0)
    assert (await client.finalized_head()).number == 1


@pytest.mark.parametrize("name", BABBLE)
async def test_an_endpoint_that_babbles_later_leaves_no_sockets(world: Any, endpoint: Any, name: str) -> None:
    """Frames that would kill the SDK's receive loop after a good start cost a reconnect, not a descriptor."""
    url = await endpoint(lambda request: after_genesis(request, BABBLE[name]))
    counts = []
    for _ in range(4):
        client = client_of(world, url, request_timeout=0.3)
        with pytest.raises(NetworkError) as caught:
            await client.finalized_head()
        assert caught.value.code in ("CHAIN_TIMEOUT", "CHAIN_UNREACHABLE")
        await client.close()
        for _ in range(20):  # the server notices a moment later
            await asyncio.sleep(0)
        counts.append(len(os.listdir("/proc/self/fd")))
    assert counts[-1] <= counts[0]


async def test_callers_that_wait_for_one_dial_move_on_together(world: Any, deaf: str) -> None:
    """However many callers a deaf endpoint keeps waiting, the next round begins with the next endpoint."""
    client = client_of(world, deaf, deaf, world.node.url, request_timeout=3.0)
    for _ in range(3):
        results = await asyncio.gather(*(client.finalized_head() for _ in range(4)), return_exceptions=True)
        if not any(isinstance(result, BaseException) for result in results):
            break
    assert [getattr(result, "number", result) for result in results] == [1, 1, 1, 1]


@pytest.mark.parametrize("result", [None, [1, 2], 7, "0xzz", {}])
async def test_an_unusable_answer_sends_the_call_to_the_next_endpoint(
    world: Any, endpoint: Any, result: object
) -> None:
    """An endpoint that answers nonsense is not asked for ever while another one could be."""
    genesis = await world.client.genesis_hash()

    def reply(request: dict[str, Any]) -> str | bytes | None:
        return after_genesis(request, json.dumps({"id": request["id"], "result": result}), genesis)

    client = client_of(world, await endpoint(reply), world.node.url)
    assert (await client.finalized_head()).number == 1


async def test_a_pruned_endpoint_hands_over_to_an_archive(world: Any, endpoint: Any) -> None:
    """State that one endpoint discarded is read from the next one, within the same call; alone, it is an error."""
    genesis = await world.client.genesis_hash()

    def reply(request: dict[str, Any]) -> str | bytes | None:
        error = {"code": 4003, "message": "Client error: UnknownBlock: State already discarded for 0xabc"}
        return after_genesis(request, json.dumps({"id": request["id"], "error": error}), genesis)

    pruned = await endpoint(reply)
    with pytest.raises(CacheonError) as caught:
        await client_of(world, pruned, request_timeout=2.0).finalized_head()
    assert caught.value.code == "CHAIN_STATE_PRUNED"
    assert (await client_of(world, pruned, world.node.url).finalized_head()).number == 1


async def test_an_endpoint_of_another_chain_is_never_used(make_world: Any, world: Any) -> None:
    """The first chain binds the client; a foreign endpoint is refused by name, and the right one still serves."""
    other = await make_world(netuid=3)
    client = client_of(world, world.node.url, other.node.url)
    genesis = await client.genesis_hash()
    client._endpoints.reverse()
    await client._disconnect()
    assert await client.genesis_hash() == genesis
    client._endpoints[:] = [other.node.url]
    await client._disconnect()
    with pytest.raises(CacheonError) as caught:
        await client.finalized_head()
    assert caught.value.code == "CHAIN_GENESIS_DIFFERS"
    assert (await other.client.genesis_hash()) in caught.value.message


async def test_a_chain_replaced_behind_a_connection_is_noticed(make_world: Any, world: Any, make_wire: Any) -> None:
    """When the SDK reconnects by itself and finds another chain at the address, no answer of it comes through."""
    other = await make_world(netuid=3)
    wire, url = await make_wire(world.node.url)
    client = client_of(world, url, request_timeout=5.0)
    await client.finalized_head()
    wire._target = ("127.0.0.1", other.node.port)
    wire.cut()
    seen = []
    for _ in range(2):
        with pytest.raises(CacheonError) as caught:
            await client.finalized_head()
        seen.append(caught.value.code)
    assert seen[-1] == "CHAIN_GENESIS_DIFFERS"


async def test_secrets_of_an_endpoint_stay_out_of_messages(endpoint: Any, world: Any) -> None:
    """Paths and credentials of paid endpoints do not show."""
    url = (await endpoint(lambda _: json.dumps({"id": "genesis", "result": 1}))).replace("ws://", "ws://me:pw@")
    with pytest.raises(NetworkError) as caught:
        await client_of(world, f"{url}/key-123").finalized_head()
    assert "127.0.0.1" in caught.value.message
    assert "key-123" not in caught.value.message
    assert "pw" not in caught.value.message


async def test_a_cancelled_caller_does_not_end_the_dial_of_others(world: Any, make_wire: Any) -> None:
    """Cancelling one of two callers leaves the other with its answer."""
    wire, url = await make_wire(world.node.url)
    wire.swallow_answers = True
    client = client_of(world, url, request_timeout=5.0)
    first, second = (asyncio.create_task(client.finalized_head()) for _ in range(2))
    await asyncio.sleep(0.02)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    wire.swallow_answers = False
    wire.cut()
    client._endpoints[:] = [url]
    with contextlib.suppress(CacheonError):
        await second
    assert (await client.finalized_head()).number == 1


async def test_closing_during_a_dial_is_an_error_of_the_waiting_call_not_a_cancellation(world: Any, deaf: str) -> None:
    """A call that waits when the client is closed fails like any lost connection; nothing is left running."""
    client = client_of(world, deaf, request_timeout=5.0)
    before = len(asyncio.all_tasks())
    waiting = asyncio.create_task(client.finalized_head())
    await asyncio.sleep(0.02)
    await client.close()
    with pytest.raises(NetworkError) as caught:
        await waiting
    assert caught.value.code == "CHAIN_UNREACHABLE"
    assert len(asyncio.all_tasks()) <= before + 1  # the deaf server's own handler


async def test_cancelling_calls_at_every_point_leaves_the_client_usable(world: Any) -> None:
    """A call cancelled after any number of loop turns leaves neither a stuck client nor a wrong answer."""
    client = client_of(world, world.node.url)
    for turns in range(40):
        task = asyncio.create_task(client.head())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        if turns % 10 == 9:
            await client.close()
        assert (await client.head()).number == 1
