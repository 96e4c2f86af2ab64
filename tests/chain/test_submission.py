"""A submission leaves once, has a deadline, and what is not known of it is not guessed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from chain.abi import Call
from tests.chain.relay import Relay


@pytest.fixture(name="relay")
async def _relay(world: Any) -> AsyncIterator[Relay]:
    made = Relay(world.node.url)
    await made.start()
    yield made
    await made.stop()


async def signed_row(world: Any) -> Any:
    """A signed call that sets weights."""
    arguments = {"netuid": world.netuid, "mecid": 0, "dests": [0], "weights": [1], "version_key": 0}
    at = await world.client.finalized_head()
    return await world.client.sign(Call.SET_WEIGHTS, arguments, world.validator, nonce=0, at=at, period=16)


async def test_a_pool_that_never_answers_is_unknown_after_the_deadline(world: Any, relay: Relay) -> None:
    """The call that used to hang for ever ends; the extrinsic went out once, and the chain tells what became of it."""
    signed = await signed_row(world)
    client = world.new_client(relay.url)
    await client.open()
    relay.bend = lambda request, answer: None if request["method"] == "author_submitExtrinsic" else answer
    client.request_timeout = 0.5
    answer = await client.submit(signed.data)
    client.request_timeout = 20.0
    assert answer.fate == "unknown"
    assert relay.asked.count("author_submitExtrinsic") == 1
    assert await client.next_nonce(world.validator.ss58_address) == 1
    block = world.blocks()
    assert await client.extrinsic_index(block, signed.hash) is not None


async def test_a_broken_pipe_under_a_submission_never_sends_it_twice(world: Any, make_wire: Any) -> None:
    """On an idle connection that was cut, a read is answered after one reconnect; a submission waits for its caller,
    who looks at the nonce first."""
    wire, url = await make_wire(world.node.url)
    signed = await signed_row(world)
    client = world.new_client(url)
    assert (await client.finalized_head()).number == 1
    wire.cut()
    answer = await client.submit(signed.data)
    assert answer.fate in ("unknown", "accepted")  # noticed while sending, or before: then it is dialled first
    sent = await client.next_nonce(world.validator.ss58_address)
    assert sent == (1 if answer.fate == "accepted" else sent)
    if sent == 0:
        assert (await client.submit(signed.data)).fate == "accepted"
    world.blocks(2)
    assert await world.extrinsics_of(world.validator) == 1


async def test_an_endpoint_that_lies_about_success_is_no_success(world: Any) -> None:
    """An accepted answer says that the pool took it, and nothing about the chain."""
    from chain.devnet.fault_plan import Fault

    world.node.faults.inject(Fault(kind="false_success", probability=1.0))
    signed = await signed_row(world)
    assert (await world.client.submit(signed.data)).fate == "accepted"
    block = world.blocks()
    assert await world.client.extrinsic_index(block, signed.hash) is None
    assert await world.client.next_nonce(world.validator.ss58_address) == 0
