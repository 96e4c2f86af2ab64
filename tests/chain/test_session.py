"""One websocket: what a peer may send, and how much of it is kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from chain.session import Gate, RpcSession
from chain.transport_errors import SessionLostError

Talk = Callable[[ServerConnection], Awaitable[None]]
Dial = Callable[[Talk], Awaitable[RpcSession]]


@pytest.fixture(name="dial")
async def _dial() -> AsyncIterator[Dial]:
    """A function that opens a session to a peer that behaves as the test says."""
    servers, sessions = [], []

    async def dial(talk: Talk) -> RpcSession:
        server = await serve(talk, "127.0.0.1", 0, compression=None, max_size=None)
        servers.append(server)
        url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
        sessions.append(await RpcSession.open(url, Gate(1000), 60.0))
        return sessions[-1]

    yield dial
    for session in sessions:
        await session.close()
    for server in servers:
        server.close()
        await server.wait_closed()


def answering(result: str) -> Talk:
    """A peer that answers every request with the same JSON text."""

    async def talk(connection: ServerConnection) -> None:
        async for message in connection:
            await connection.send(f'{{"jsonrpc":"2.0","id":{json.loads(message)["id"]},"result":{result}}}')

    return talk


def notice(name: object, result: object) -> str:
    """One notification."""
    return json.dumps({"jsonrpc": "2.0", "method": "m", "params": {"subscription": name, "result": result}})


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ("[" + "[]," * 300_000 + "1]", "values in one frame"),
        ("[" * 100_000 + "]" * 100_000, "not JSON-RPC"),
        ('"' + "0" * (2**24 + 1) + '"', "hung up"),
    ],
    ids=["many values", "deep", "long"],
)
async def test_an_answer_that_would_fill_the_memory_ends_the_session(dial: Dial, result: str, why: str) -> None:
    """It costs the connection and one sentence."""
    session = await dial(answering(result))
    with pytest.raises(SessionLostError, match=why):
        await session.request("m")
    assert not session.is_open


async def test_a_long_answer_of_few_values_is_read(dial: Dial) -> None:
    """Metadata and the bodies of full blocks are some megabytes of hexadecimal text."""
    session = await dial(answering(json.dumps(["0x" + "ab" * 2_000_000] * 3)))
    assert [len(one) for one in await session.request("m")] == [4_000_002] * 3


async def test_a_notice_that_is_no_header_in_size_ends_the_session(dial: Dial) -> None:
    """A subscription's notices are small; a peer cannot pile up large ones."""

    async def talk(connection: ServerConnection) -> None:
        await connection.send(notice("s", "x" * 2**16))
        await connection.wait_closed()

    session = await dial(talk)
    with pytest.raises(SessionLostError, match="a notice of"):
        await session.request("m")


async def test_notices_of_unknown_subscriptions_do_not_pile_up(dial: Dial) -> None:
    """Of any number of them few are kept, the newest of each name, and an early one reaches its subscription."""

    async def talk(connection: ServerConnection) -> None:
        for number in range(1000):
            await connection.send(notice(f"s{number % 100}", number))
        async for message in connection:
            await connection.send(notice("mine", "early"))
            await connection.send(json.dumps({"jsonrpc": "2.0", "id": json.loads(message)["id"], "result": "mine"}))

    session = await dial(talk)
    feed = await session.subscribe("m", "u")
    kept: dict[Any, Any] = session._strangers
    assert len(kept) == 15
    assert all(value >= 900 for value in kept.values())
    async with asyncio.timeout(60):
        assert await feed.next() == "early"
