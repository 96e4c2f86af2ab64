"""The one connection to the chain."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest

from chain.abi import (
    CALL_ARGUMENTS,
    SIGNED_EXTENSIONS,
    Call,
    DispatchError,
    Event,
    RuntimeNames,
    Storage,
    missing_names,
)
from chain.client import ChainClient
from config.errors import ChainError, ExitCode, NetworkError
from tests.chain.relay import Relay


async def test_the_probe_finds_every_name_in_the_real_metadata(world: Any) -> None:
    """The devnet serves real metadata, and nothing this room uses is missing from it."""
    identity = await world.client.probe()
    assert identity.spec_version == 461
    assert identity.genesis_hash == await world.client.block_hash(0)


def test_missing_names_are_all_named() -> None:
    """A runtime without a name, or with other call arguments, is described completely."""
    names = RuntimeNames(
        storage=frozenset(Storage) - {Storage.WEIGHTS},
        events=frozenset(Event) - {Event.COMMITMENT_REVEALED},
        calls={**CALL_ARGUMENTS, Call.SET_WEIGHTS: frozenset({"netuid"})},
        constants=frozenset(),
        errors=frozenset(DispatchError) - {DispatchError.NO_SPACE},
        extensions=tuple(SIGNED_EXTENSIONS - {"CheckMortality"}),
        signing_problem="CheckNew is unknown",
    )
    text = "; ".join(missing_names(names))
    for part in (
        "storage SubtensorModule.Weights", "event Commitments.CommitmentRevealed", "(it takes netuid)",
        "constant Aura.SlotDuration", "error Commitments.SpaceLimitExceeded", "CheckMortality",
        "CheckNew is unknown",
    ):
        assert part in text
    assert len(missing_names(names)) == 7


async def test_a_spec_without_a_needed_call_is_one_sentence(make_world: Any) -> None:
    """Metadata that is whole but lacks a call refuses the start with the call's name."""
    relay_of = await make_world()
    relay = Relay(relay_of.node.url)
    await relay.start()
    old, new = b"set_mechanism_weights".hex(), b"get_mechanism_weights".hex()
    relay.bend = lambda request, answer: json.loads(json.dumps(answer).replace(old, new))
    client = ChainClient([relay.url])
    with pytest.raises(ChainError) as caught:
        await client.probe()
    await client.close()
    await relay.stop()
    assert caught.value.code == "CHAIN_ABI_MISSING"
    needed = "Runtime 461 lacks what this version needs: call SubtensorModule.set_mechanism_weights."
    assert caught.value.message == needed


async def test_an_unreachable_endpoint_is_a_network_error_with_a_hint() -> None:
    """A refused connection names the setting to look at and gives the network exit code."""
    client = ChainClient(["ws://127.0.0.1:1"])
    with pytest.raises(NetworkError) as caught:
        await client.open()
    assert caught.value.code == "CHAIN_UNREACHABLE"
    assert caught.value.exit_code is ExitCode.NETWORK
    assert "chain.endpoints" in caught.value.hint


def test_no_endpoint_at_all_is_unreachable() -> None:
    """A client without endpoints cannot be made."""
    with pytest.raises(NetworkError, match="none is configured"):
        ChainClient([])


async def test_a_dead_first_endpoint_does_not_matter(world: Any) -> None:
    """The next endpoint of the list answers."""
    client = world.new_client()
    client._endpoints.insert(0, "ws://127.0.0.1:1")
    assert (await client.finalized_head()).number == 1


async def test_a_wrong_netuid_names_those_there_are(world: Any) -> None:
    """The refusal lists the subnets of the chain."""
    with pytest.raises(ChainError) as caught:
        await world.client.require_subnet(77, await world.client.finalized_head())
    assert caught.value.code == "SUBNET_NOT_FOUND"
    assert "0, 2" in caught.value.message


async def test_reads_survive_a_cut_connection(world: Any, make_wire: Any) -> None:
    """A plain read whose connection is cut is answered after a reconnect."""
    wire, url = await make_wire(world.node.url)
    client = world.new_client(url)
    await client.open()
    for _ in range(3):
        wire.cut()
        assert (await client.finalized_head()).number == 1


async def test_a_silent_endpoint_misses_the_deadline_and_is_dialled_again(world: Any, make_wire: Any) -> None:
    """No answer within the deadline is CHAIN_TIMEOUT; the connection is dropped and the next call works."""
    wire, url = await make_wire(world.node.url)
    client = world.new_client(url)
    await client.open()
    wire.swallow_answers = True
    client.request_timeout = 0.3
    with pytest.raises(NetworkError) as caught:
        await client.finalized_head()
    assert caught.value.code == "CHAIN_TIMEOUT"
    wire.swallow_answers = False
    client.request_timeout = 20.0
    assert (await client.finalized_head()).number == 1


async def test_an_outage_ends_by_itself(world: Any, make_wire: Any) -> None:
    """While nothing listens every call says so; when the endpoint is back the same client works again."""
    wire, url = await make_wire(world.node.url)
    client = world.new_client(url, request_timeout=2.0)
    await client.open()
    await wire.stop()
    for _ in range(2):
        with pytest.raises(NetworkError) as caught:
            await client.finalized_head()
        assert caught.value.code in ("CHAIN_UNREACHABLE", "CHAIN_TIMEOUT")
    await wire.start()
    assert (await client.finalized_head()).number == 1


async def test_clients_leave_no_descriptors_behind(world: Any) -> None:
    """Opening, losing and closing connections keeps the number of open files constant."""

    async def use_one() -> None:
        client = world.new_client()
        await client.open()
        await client._drop(client._connection)
        await client.finalized_head()
        await client.close()
        await asyncio.sleep(0)

    await use_one()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        await use_one()
    for _ in range(100):  # the node's side of a closed connection ends a moment later
        if len(os.listdir("/proc/self/fd")) <= before:
            break
        await asyncio.sleep(0.01)
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_reads_are_pinned_to_their_block(world: Any) -> None:
    """State asked for at an old block is the old state."""
    old = await world.client.finalized_head()
    await world.set_item("SubtensorModule.Tempo", [world.netuid], 99)
    new = await world.client.finalized_head()
    assert await world.client.read(old, [(Storage.TEMPO, [world.netuid])]) == [20]
    assert await world.client.read(new, [(Storage.TEMPO, [world.netuid])]) == [99]


async def test_an_unknown_block_is_transient(world: Any) -> None:
    """A block the endpoint does not have yet may come: the error says so by its family."""
    with pytest.raises(NetworkError) as caught:
        await world.client.block_hash(10_000)
    assert caught.value.code == "CHAIN_BLOCK_UNKNOWN"
    with pytest.raises(NetworkError) as caught:
        await world.client.header("0x" + "11" * 32)
    assert caught.value.code == "CHAIN_BLOCK_UNKNOWN"


async def test_the_throttle_bounds_requests(world: Any) -> None:
    """Requests beyond the rate wait their turn instead of leaving."""
    client = world.new_client(rpc_per_second=5)
    await client.open()
    calls = [asyncio.ensure_future(client.head()) for _ in range(10)]
    await asyncio.sleep(0.05)
    assert client.rpc_calls <= 5
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


async def test_submitting_the_same_bytes_again_is_never_a_refusal(world: Any) -> None:
    """The pool knows bytes it holds; bytes that were included are refused with the pool's own words."""
    at = await world.client.finalized_head()
    arguments = {"netuid": world.netuid, "mecid": 0, "dests": [0], "weights": [1], "version_key": 0}
    signed = await world.client.sign(Call.SET_WEIGHTS, arguments, world.validator, nonce=0, at=at, period=16)
    assert (await world.client.submit(signed.data)).fate == "accepted"
    assert (await world.client.submit(signed.data)).fate == "accepted"
    block = world.blocks()
    again = await world.client.submit(signed.data)
    assert again.fate == "unknown"  # bytes that were here lately: in a block, as these, or never to be
    index = await world.client.extrinsic_index(block, signed.hash)
    assert index is not None
    assert (await world.client.outcome(block, index)).success is True
    assert await world.client.extrinsic_index(at, signed.hash) is None


async def test_a_failed_extrinsic_is_named_as_the_runtime_names_it(world: Any) -> None:
    """Inclusion with an error gives the runtime's error name."""
    at = await world.client.finalized_head()
    arguments = {"netuid": world.netuid, "mecid": 0, "dests": [0], "weights": [1], "version_key": 0}
    signed = await world.client.sign(Call.SET_WEIGHTS, arguments, world.signer("Ann"), nonce=0, at=at, period=16)
    await world.client.submit(signed.data)
    block = world.blocks()
    outcome = await world.client.outcome(block, await world.client.extrinsic_index(block, signed.hash))
    assert (outcome.success, outcome.error) == (False, "NeuronNoValidatorPermit")
    assert (await world.client.outcome(block, 99)).success is None
