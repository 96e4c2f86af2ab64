"""A client that is opened, read and lost a thousand times leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import os
from typing import Any

import pytest

from chain.abi import Storage

LOOPS = 1000
pytestmark = pytest.mark.timeout(600)  # ten seconds on an idle machine


def descriptors() -> int:
    """How many files this process has open."""
    return len(os.listdir("/proc/self/fd"))


async def settled(count: int) -> int:
    """Wait until no more than `count` files are open (the node's side of a connection ends a moment later)."""
    for _ in range(6000):
        if descriptors() <= count:
            break
        await asyncio.sleep(0.01)
    return descriptors()


async def test_a_new_client_per_loop_leaks_neither_sockets_nor_tasks_nor_memory(world: Any) -> None:
    """Connections, tasks and objects are no more after a thousand open, read and drop loops than before them."""
    block = world.blocks()
    addresses = [(Storage.TEMPO, [world.netuid])]

    async def loop(number: int) -> None:
        client = world.new_client()
        client.runtimes, client._probed = world.client.runtimes, world.client._probed  # loaded and checked once
        assert await client.read(block, addresses) == [20]
        match number % 3:
            case 0:
                await client.close()
            case 1:
                await client._drop(client._connection)
            case _:
                await client.next_finalized()
                await client.close()

    await world.client.probe()
    for number in range(60):
        await loop(number)
    files, tasks = descriptors(), len(asyncio.all_tasks())
    gc.collect()
    objects = len(gc.get_objects())
    for number in range(LOOPS):
        await loop(number)
    assert await settled(files) <= files
    for _ in range(1000):
        if len(asyncio.all_tasks()) <= tasks:
            break
        await asyncio.sleep(0.01)
    assert len(asyncio.all_tasks()) <= tasks
    gc.collect()
    assert len(gc.get_objects()) - objects < 40 * LOOPS


async def test_one_client_that_loses_its_connection_a_thousand_times(world: Any) -> None:
    """The one client of a node reconnects for as long as it lives, on one socket at a time."""
    client = world.new_client()
    await client.probe()
    before = descriptors()
    for _ in range(LOOPS):
        await client._drop(client._connection)
        assert (await client.head()).number == 1
    assert await settled(before) <= before
    assert len(client._headers) == 1
