"""Finding an extrinsic: "not there" is said of finalized blocks only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chain.abi import Call
from chain.inclusion import find_inclusion
from config.errors import NetworkError


async def test_a_block_that_is_not_final_where_it_is_asked_for_proves_nothing(make_world: Callable[..., Any]) -> None:
    """The height is there, on a branch that is given up: the extrinsic of the final one is found once it is final."""
    world = await make_world(finality_lag=3)
    world.blocks(5)
    client, signer = world.client, world.validator
    at = await client.finalized_head()
    commitment = {"netuid": 2, "info": {"fields": [[{"Raw4": b"here"}]]}}
    signed = await client.sign(Call.SET_COMMITMENT, commitment, signer, nonce=0, at=at, period=64)
    branch = world.blocks()
    assert (await client.submit(signed.data)).fate == "accepted"
    world.node.chain.fork(1)  # block 6 is another one now, and holds the extrinsic
    with pytest.raises(NetworkError) as caught:
        await find_inclusion(client, signed.hash, at.number + 1, branch.number)
    assert caught.value.code == "CHAIN_ENDPOINT_LAGS"
    world.blocks(4)
    found = await find_inclusion(client, signed.hash, at.number + 1, branch.number + 1)
    assert found is not None
    assert found.block.hash != branch.hash
    assert await find_inclusion(client, signed.hash, 1, found.block.number - 1) is None
    assert await find_inclusion(client, signed.hash, 2, 1) is None
