"""Endpoints that ask for less traffic get less, and nobody is asked in a tight loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from chain.devnet.fault_plan import Fault
from config.errors import NetworkError
from tests.chain.relay import Relay


class Gatekeeper:
    """Refuses handshakes with 429 and counts them."""

    def __init__(self) -> None:
        self.knocks = 0
        self.retry_after = ""

    def __call__(self, connection: ServerConnection, request: Request) -> Response:
        """Refuse."""
        self.knocks += 1
        response = connection.respond(HTTPStatus.TOO_MANY_REQUESTS, "slow down\n")
        if self.retry_after:
            response.headers["Retry-After"] = self.retry_after
        return response


@pytest.fixture(name="gate")
async def _gate() -> AsyncIterator[tuple[Gatekeeper, str]]:
    keeper = Gatekeeper()

    async def nobody(connection: ServerConnection) -> None:
        await connection.wait_closed()

    async with serve(nobody, "127.0.0.1", 0, process_request=keeper) as server:
        yield keeper, f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"


@pytest.fixture(name="relay")
async def _relay(world: Any) -> AsyncIterator[Relay]:
    made = Relay(world.node.url)
    await made.start()
    yield made
    await made.stop()


def limited(**data: Any) -> Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]:
    """Answer everything but the first look at the chain with -32005."""

    def bend(request: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        if request["method"] == "chain_getBlockHash":
            return answer
        error = {"code": -32005, "message": "busy"} | ({"data": data} if data else {})
        return {"jsonrpc": "2.0", "id": request["id"], "error": error}

    return bend


async def test_tight_retries_against_429_do_not_happen(world: Any, gate: tuple[Gatekeeper, str]) -> None:
    """An endpoint that refused the handshake and named a pause is not knocked at again before it is over."""
    keeper, url = gate
    keeper.retry_after = "60"
    client = world.new_client(url, request_timeout=5.0)
    for _ in range(20):
        with pytest.raises(NetworkError) as caught:
            await client.finalized_head()
        assert caught.value.code == "CHAIN_RATE_LIMITED"
        assert "429" in caught.value.message
    assert keeper.knocks == 1


async def test_429_at_one_endpoint_lets_the_next_one_answer(world: Any, gate: tuple[Gatekeeper, str]) -> None:
    """The same call that met the refusal is answered by another endpoint."""
    keeper, url = gate
    client = world.new_client(url)
    client._endpoints.append(world.node.url)
    assert (await client.finalized_head()).number == 1
    assert keeper.knocks == 1


async def test_a_request_refused_with_a_pause_is_not_repeated_within_it(world: Any, relay: Relay) -> None:
    """-32005 with a retry-after longer than the deadline fails the call, and the following ones without a request."""
    client = world.new_client(relay.url, request_timeout=5.0)
    await client.open()
    relay.bend = limited(retry_after=120)
    relay.asked.clear()
    for _ in range(20):
        with pytest.raises(NetworkError) as caught:
            await client.finalized_head()
        assert caught.value.code == "CHAIN_RATE_LIMITED"
    assert relay.asked == ["chain_getFinalizedHead"]


async def test_a_short_pause_is_waited_for_within_the_call(world: Any, relay: Relay) -> None:
    """When the endpoint is free again in time, the caller gets its answer and never hears of the refusal."""
    client = world.new_client(relay.url)
    await client.open()
    refused = limited(retry_after_ms=50)

    def once(request: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        relay.bend = lambda request, answer: answer
        return refused(request, answer)

    relay.bend = once
    assert (await client.finalized_head()).number == 1


async def test_a_busy_endpoint_hands_over(world: Any, relay: Relay) -> None:
    """-32005 without a pause makes another endpoint answer the very call."""
    client = world.new_client(relay.url)
    client._endpoints.append(world.node.url)
    await client.open()
    relay.bend = limited()
    assert (await client.finalized_head()).number == 1
    assert client._connection.endpoint == world.node.url


async def test_other_errors_are_not_retried(world: Any, relay: Relay) -> None:
    """Only recognised throttling is asked again; an error of another kind goes to the caller at once."""
    client = world.new_client(relay.url)
    await client.open()
    relay.bend = lambda request, answer: {"id": request["id"], "error": {"code": -32000, "message": "no idea"}}
    relay.asked.clear()
    with pytest.raises(Exception, match="no idea") as caught:
        await client.next_nonce(world.hotkey("Ann"))
    assert caught.value.code == "CHAIN_REQUEST_FAILED"
    assert relay.asked == ["account_nextIndex"]


async def test_a_devnet_that_throttles_is_survived(world: Any) -> None:
    """Whatever part of the requests is refused, every call of a stretch ends with its answer."""
    world.node.faults.inject(Fault(kind="rpc_error", probability=0.2, code=-32005, message="busy", limit=10, seed=3))
    client = world.new_client(request_timeout=60.0)
    heads = await asyncio.gather(*(client.head() for _ in range(20)))
    assert {head.number for head in heads} == {1}


async def test_counted_requests_are_the_ones_that_left(world: Any, relay: Relay) -> None:
    """The client's own count of requests is what the endpoint received, reconnects included."""
    client = world.new_client(relay.url)
    for _ in range(3):
        await client.read(await client.finalized_head(), [])
        await client._drop(client._connection)
    await client.close()
    assert client.rpc_calls == len(relay.asked)
    assert json.dumps(relay.asked)
