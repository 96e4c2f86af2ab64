"""Metagraph and parameters, each read at one block."""

from __future__ import annotations

from typing import Any

import pytest

from chain.hyperparameters import read_hyperparameters
from chain.metagraph import read_metagraph
from config.errors import ChainError


async def test_the_metagraph_is_what_genesis_says(world: Any) -> None:
    """UIDs, keys, permits, registration and owner come from storage."""
    head = await world.client.finalized_head()
    graph = await read_metagraph(world.client, world.netuid, head)
    assert [neuron.hotkey for neuron in graph.neurons] == [
        world.hotkey(name) for name in ("Validator", "Ann", "Bob", "Cid")
    ]
    assert [neuron.validator_permit for neuron in graph.neurons] == [True, False, False, False]
    assert {neuron.registered_block for neuron in graph.neurons} == {0}
    assert graph.by_hotkey(world.hotkey("Bob")).uid == 2
    assert graph.by_hotkey("nobody") is None
    assert graph.owner_hotkey == world.hotkey("Owner")
    assert graph.owner_coldkey == world.hotkey("Owner//cold")
    assert world.hotkey("Cid") in graph.hotkeys


async def test_an_heir_of_a_uid_is_another_neuron(make_world: Any) -> None:
    """After a replacement the old block still shows the old hotkey, the new one the heir with its registration."""
    world = await make_world(max_allowed_uids=4, immunity_period=5)
    world.blocks(9)
    before = await world.client.finalized_head()
    registered = await world.rpc("dev_register", 2, world.hotkey("Eve"), world.hotkey("Eve"))
    after = await world.client.finalized_head()
    old = await read_metagraph(world.client, world.netuid, before)
    new = await read_metagraph(world.client, world.netuid, after)
    uid = registered["uid"]
    assert old.neurons[uid].hotkey != world.hotkey("Eve")
    assert new.by_hotkey(world.hotkey("Eve")).uid == uid
    assert new.neurons[uid].registered_block == after.number
    assert new.by_hotkey(old.neurons[uid].hotkey) is None


async def test_a_large_subnet_is_read_whole(make_world: Any) -> None:
    """More neurons than fit one request are all there."""
    from chain.devnet.genesis_document import NeuronSpec

    keys = [f"Miner{number}" for number in range(200)]
    world = await make_world()
    addresses = [world.hotkey(key) for key in keys]
    neurons = tuple(NeuronSpec(address, address) for address in addresses)
    large = await make_world(neurons=neurons)
    graph = await read_metagraph(large.client, large.netuid, await large.client.finalized_head())
    assert [neuron.hotkey for neuron in graph.neurons] == addresses
    assert [neuron.uid for neuron in graph.neurons] == list(range(200))


async def test_parameters_of_one_block_belong_together(make_world: Any) -> None:
    """Tempo, epoch, switch and keys are those of the block asked for."""
    world = await make_world(commit_reveal=True, version_key=29, weights_rate_limit=7, reveal_period=3)
    head = await world.client.finalized_head()
    found = await read_hyperparameters(world.client, world.netuid, head)
    assert (found.tempo, found.epoch, found.last_epoch_block, found.next_epoch_block) == (20, 0, 0, 20)
    assert (found.commit_reveal_enabled, found.commit_reveal_version, found.reveal_period_epochs) == (True, 4, 3)
    assert (found.version_key, found.rate_limit) == (29, 7)
    assert (found.min_allowed_weights, found.max_weight_limit) == (1, 65_535)
    later = await read_hyperparameters(world.client, world.netuid, world.blocks_until(20))
    assert (later.epoch, later.last_epoch_block, later.next_epoch_block) == (1, 20, 40)
    assert (await read_hyperparameters(world.client, world.netuid, head)).epoch == 0


async def test_a_pending_epoch_comes_first_and_tempo_zero_never(world: Any) -> None:
    """An owner-triggered epoch pulls the next one forward; without a tempo there is none."""
    await world.set_item("SubtensorModule.PendingEpochAt", [2], 9)
    found = await read_hyperparameters(world.client, world.netuid, await world.client.finalized_head())
    assert found.next_epoch_block == 9
    await world.set_item("SubtensorModule.Tempo", [2], 0)
    found = await read_hyperparameters(world.client, world.netuid, await world.client.finalized_head())
    assert found.next_epoch_block is None


@pytest.mark.parametrize("read", [read_metagraph, read_hyperparameters])
async def test_a_missing_subnet_is_named(world: Any, read: Any) -> None:
    """Reading a subnet that does not exist is SUBNET_NOT_FOUND, not a page of zeros."""
    with pytest.raises(ChainError) as caught:
        await read(world.client, 41, await world.client.finalized_head())
    assert caught.value.code == "SUBNET_NOT_FOUND"
