"""Following finalized heads: one subscription that is watched, checked and replaced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from chain.abi import Storage
from chain.blocks import BlockRef, parse_header
from chain.devnet.fault_plan import Fault
from chain.heads import FinalizedHead
from config.errors import CacheonError, NetworkError
from tests.chain.relay import Relay

NEVER = 3600.0


@pytest.fixture(name="relay")
async def _relay(world: Any) -> AsyncIterator[Relay]:
    made = Relay(world.node.url)
    await made.start()
    yield made
    await made.stop()


def ref(world: Any) -> BlockRef:
    """The newest finalized block of the devnet."""
    final = world.node.chain.finalized
    return BlockRef(final.number, final.hash_hex)


async def until_head(client: Any, number: int) -> FinalizedHead:
    """Follow until the head has at least this height, through whatever errors come."""
    while True:
        try:
            head: FinalizedHead = await client.next_finalized()
        except CacheonError:
            await asyncio.sleep(0.01)
            continue
        if head.block.number >= number:
            return head


async def test_each_head_costs_one_request_and_brings_what_is_watched(world: Any) -> None:
    """Hash, parent, time, events and watched values come with one read; now and then the hash is asked for as well."""
    client = world.new_client(silence_seconds=NEVER)
    client.watch("test", [(Storage.TEMPO, [world.netuid])])
    await client.next_finalized()
    costs = []
    for _ in range(20):
        block = world.blocks()
        before = client.rpc_calls
        head = await client.next_finalized()
        assert head.block == block
        assert await client.finalized_head() == block
        assert await client.read(block, [(Storage.TEMPO, [world.netuid])]) == [20]
        parent, events = await client.linked_events(block)
        assert parent == head.parent_hash == (await client.header(block.hash)).parent_hash
        assert events == await client.events(block)
        costs.append(client.rpc_calls - before)
    assert sorted(costs) == [1] * 19 + [2]
    assert head.spec_version == 461


async def test_a_computed_hash_is_the_blocks_name(world: Any) -> None:
    """The hash of a header's content is what the node calls the block, for any number of digest items."""
    world.blocks(70)
    for number in (0, 1, 63, 64, 70):
        name = await world.client.block_hash(number)
        assert parse_header(await world.rpc("chain_getHeader", name)).block == BlockRef(number, name)


async def test_a_subscription_that_dies_without_a_word_is_replaced(world: Any) -> None:
    """A node that goes on answering but announces nothing is asked after a while, and subscribed to again."""
    client = world.new_client(silence_seconds=0.2)
    await client.next_finalized()
    world.node.faults.inject(Fault(kind="lose_subscription", methods=("chain_subscribeFinalizedHeads",), limit=1))
    world.blocks(3)
    assert (await until_head(client, 4)).block.number == 4
    world.blocks(2)
    assert (await until_head(client, 6)).block.number == 6


async def test_a_half_open_socket_is_noticed_and_left(world: Any, make_wire: Any) -> None:
    """A connection on which nothing comes back any more is dropped after the deadline, and following goes on."""
    wire, url = await make_wire(world.node.url)
    client = world.new_client(url, silence_seconds=0.2)
    await client.next_finalized()
    client.request_timeout = 1.0
    wire.swallow_answers = True
    world.blocks(3)
    with pytest.raises(NetworkError) as caught:
        await client.next_finalized()
    assert caught.value.code in ("CHAIN_TIMEOUT", "CHAIN_UNREACHABLE")
    wire.swallow_answers = False
    client.request_timeout = 20.0
    assert (await until_head(client, 4)).block.number == 4


async def test_a_cut_connection_costs_no_head(world: Any, make_wire: Any) -> None:
    """Blocks made while the connection was down are announced by the next head's number; none is invented."""
    wire, url = await make_wire(world.node.url)
    client = world.new_client(url, silence_seconds=NEVER)
    await client.next_finalized()
    for _ in range(3):
        world.blocks(4)
        wire.cut()
        head = await until_head(client, world.node.chain.head.number)
        assert head.block == ref(world)


async def test_a_chain_that_stands_still_makes_the_next_endpoint_be_asked(world: Any, relay: Relay) -> None:
    """When one endpoint shows no new block for a while, another one may have some."""
    stale = await world.rpc("chain_getFinalizedHead")

    def bend(request: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        return answer | {"result": stale} if request["method"] == "chain_getFinalizedHead" else answer

    client = world.new_client(relay.url, silence_seconds=0.2)
    client._endpoints.append(world.node.url)
    await client.next_finalized()
    relay.bend, relay.mute_notices = bend, True
    world.blocks(3)
    assert (await until_head(client, 4)).block.number == 4
    assert client._connection.endpoint == world.node.url


async def test_an_endpoint_that_hangs_up_on_every_subscription_is_told_and_not_dialled_on_and_on(
    world: Any, relay: Relay
) -> None:
    """One such loss is mended in silence, the next one is an error, whose reader decides on the pause."""
    client = world.new_client(relay.url, silence_seconds=NEVER)
    await client.next_finalized()
    relay.hang_up_after = "chain_subscribeFinalizedHeads"
    await client._drop(client._connection)
    relay.asked.clear()
    with pytest.raises(NetworkError) as caught:
        await client.next_finalized()
    assert caught.value.code == "CHAIN_UNREACHABLE"
    assert "waiting for a finalized head" in caught.value.message
    assert relay.asked.count("chain_subscribeFinalizedHeads") <= 2
    relay.hang_up_after = ""
    world.blocks(3)
    assert (await until_head(client, 4)).block == ref(world)


@pytest.mark.parametrize("junk", ["junk", None, 7, ["0x1"], {}, {"number": "zz"}])
async def test_a_notice_that_is_no_header_is_told(world: Any, relay: Relay, junk: object) -> None:
    """The endpoint is not subscribed to again without anybody hearing of it."""
    client = world.new_client(relay.url, silence_seconds=NEVER)
    await client.next_finalized()
    relay.bend_notice = lambda notice: notice | {"params": notice["params"] | {"result": junk}}
    relay.asked.clear()
    world.blocks()
    with pytest.raises(CacheonError) as caught:
        await client.next_finalized()
    assert caught.value.code == "CHAIN_DECODE_FAILED"
    assert caught.value.hint
    assert relay.asked.count("chain_subscribeFinalizedHeads") == 0
    relay.bend_notice = lambda notice: notice
    assert (await until_head(client, 2)).block == ref(world)


async def test_a_head_that_stands_still_is_told(world: Any) -> None:
    """With no newer final block for long, the reader hears which block it stands at, and goes on when it moves."""
    client = world.new_client(silence_seconds=0.05)
    await client.next_finalized()
    for _ in range(2):
        with pytest.raises(NetworkError) as caught:
            await client.next_finalized()
        assert caught.value.code == "CHAIN_HEAD_STANDS"
        assert "newer than 1 for" in caught.value.message
    world.blocks()
    assert (await until_head(client, 2)).block == ref(world)


async def test_a_devnet_may_be_slower_than_its_runtime_says(world: Any) -> None:
    """Its block time is an option of its start, which the slot duration of the runtime does not follow."""
    client = world.new_client()
    assert await client.silence_seconds() >= 20
    assert await client.silence_seconds() >= 5 * await client.block_seconds()


async def test_old_heads_announced_again_and_again_are_no_news(world: Any, relay: Relay) -> None:
    """An endpoint that was put back to an older block is not mistaken for one that is followed."""
    client = world.new_client(relay.url, silence_seconds=0.05)
    old = await world.rpc("chain_getHeader", await world.client.block_hash(1))
    world.blocks(3)
    await until_head(client, 4)
    stale = await world.rpc("chain_getBlockHash", 1)
    relay.bend_notice = lambda notice: notice | {"params": notice["params"] | {"result": old}}
    relay.bend = lambda request, answer: (
        answer | {"result": stale} if request["method"] == "chain_getFinalizedHead" else answer
    )

    async def follow() -> None:
        while True:
            world.blocks()
            await client.next_finalized()

    with pytest.raises(NetworkError) as caught:
        await follow()
    assert caught.value.code == "CHAIN_HEAD_STANDS"
    relay.bend, relay.bend_notice = (lambda request, answer: answer), (lambda notice: notice)
    assert (await until_head(client, world.node.chain.head.number)).block == ref(world)


async def test_an_endpoint_that_lags_is_left_for_another(world: Any, relay: Relay) -> None:
    """One that does not have the newest known final block yet is passed over when it is dialled, and named."""
    client = world.new_client(silence_seconds=NEVER)
    world.blocks(20)
    await until_head(client, 21)

    def bend(request: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        numbers = request["params"][0] if request["method"] == "chain_getBlockHash" else None
        if not isinstance(numbers, list):
            return answer
        found = zip(numbers, answer["result"], strict=True)
        return answer | {"result": [None if number > 9 else name for number, name in found]}

    relay.bend = bend
    client._endpoints.insert(0, relay.url)
    await client._disconnect()
    assert await client.block_hash(21) == ref(world).hash
    assert client._connection.endpoint == world.node.url
    client._endpoints[:] = [relay.url, "ws://127.0.0.1:1"]
    await client._disconnect()
    with pytest.raises(NetworkError) as caught:
        await client.block_hash(1)
    assert caught.value.code in ("CHAIN_ENDPOINT_LAGS", "CHAIN_UNREACHABLE")
    assert client._pool.reasons()[relay.url].code == "CHAIN_ENDPOINT_LAGS"


async def test_an_endpoint_on_a_fork_is_found_out_by_the_hash_of_a_height(world: Any, relay: Relay) -> None:
    """State is taken only from an endpoint that has the block on its chain; otherwise the next one answers."""
    block = world.blocks(5)

    def bend(request: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        if request["method"] == "chain_getBlockHash" and request["params"] == [block.number]:
            return answer | {"result": "0x" + "ee" * 32}
        return answer

    relay.bend = bend
    alone = world.new_client(relay.url)
    with pytest.raises(NetworkError) as caught:
        await alone.read(block, [(Storage.TEMPO, [world.netuid])])
    assert caught.value.code == "CHAIN_FORKED"
    client = world.new_client(relay.url)
    client._endpoints.append(world.node.url)
    assert await client.read(block, [(Storage.TEMPO, [world.netuid])]) == [20]
    assert client._connection.endpoint == world.node.url


async def test_a_client_that_knows_a_final_block_uses_no_endpoint_of_another_branch(world: Any, relay: Relay) -> None:
    """What was read in an earlier life decides between endpoints that disagree, before anything is taken from one."""
    final = world.blocks(5)
    world.blocks(3)

    def bend(request: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        if request["method"] == "chain_getBlockHash" and request["params"] == [[0, final.number]]:
            return answer | {"result": [answer["result"][0], "0x" + "ee" * 32]}
        return answer

    relay.bend = bend
    alone = world.new_client(relay.url, final=final)
    with pytest.raises(NetworkError) as caught:
        await alone.open()
    assert caught.value.code == "CHAIN_FORKED"
    assert "state_dir" in caught.value.hint
    client = world.new_client(relay.url, final=final)
    client._endpoints.append(world.node.url)
    assert (await until_head(client, 9)).block == ref(world)
    assert client._connection.endpoint == world.node.url


async def test_a_head_of_another_parent_is_refused(world: Any, relay: Relay) -> None:
    """A next head that does not name the last one as its parent is of a fork."""
    client = world.new_client(relay.url, silence_seconds=NEVER)
    await client.next_finalized()

    def bend(notice: dict[str, Any]) -> dict[str, Any]:
        notice["params"]["result"]["parentHash"] = "0x" + "ee" * 32
        return notice

    relay.bend_notice = bend
    world.blocks()
    with pytest.raises(NetworkError) as caught:
        await client.next_finalized()
    assert caught.value.code == "CHAIN_FORKED"
    relay.bend_notice = lambda notice: notice
    assert (await until_head(client, 2)).block == ref(world)


async def test_a_rewritten_final_block_is_noticed_after_a_gap(world: Any, relay: Relay) -> None:
    """An endpoint whose chain does not have the last head any more is on a fork, whatever it announces next."""
    client = world.new_client(relay.url, silence_seconds=NEVER)
    last = (await client.next_finalized()).block
    await client._drop(client._connection)

    def bend(request: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        asked = request["params"][0] if request["method"] == "chain_getBlockHash" else None
        if isinstance(asked, list) and last.number in asked:
            found = zip(asked, answer["result"], strict=True)
            return answer | {"result": ["0x" + "ee" * 32 if one == last.number else name for one, name in found]}
        return answer

    relay.bend = bend
    world.blocks(3)
    with pytest.raises(NetworkError) as caught:
        await client.next_finalized()
    assert caught.value.code == "CHAIN_FORKED"
    relay.bend = lambda request, answer: answer
    assert (await until_head(client, 2)).block == ref(world)


async def test_an_upgrade_while_following_is_followed(world: Any) -> None:
    """The first block of a new runtime is decoded by it: nothing that was loaded before is used again."""
    client = world.new_client(silence_seconds=NEVER)
    await client.next_finalized()
    upgraded = world.node.chain.upgrade()
    heads = [await until_head(client, upgraded.number), None]
    world.blocks()
    heads[1] = await until_head(client, upgraded.number + 1)
    assert [head.spec_version for head in heads] == [461, 462]
    signed = await client.sign(
        world_call(), {"netuid": 2, "mecid": 0, "dests": [0], "weights": [1], "version_key": 0}, world.validator,
        nonce=0, at=heads[1].block, period=16,
    )
    assert signed.spec_version == 462
    assert (await client.submit(signed.data)).fate == "accepted"
    old = await client.events(BlockRef(1, await client.block_hash(1)))
    assert old == await world.new_client().events(BlockRef(1, await client.block_hash(1)))


def world_call() -> Any:
    """The call that sets weights."""
    from chain.abi import Call

    return Call.SET_WEIGHTS


async def test_an_upgrade_that_cannot_be_read_stops_heads_and_nothing_else(world: Any) -> None:
    """With a runtime that lacks a needed name no head is announced, the sentence names it, and a later one mends it."""
    client = world.new_client(silence_seconds=NEVER)
    await client.next_finalized()
    world.node.chain.upgrade(462, 439)
    world.blocks()
    assert (await client.next_finalized()).spec_version == 461  # the block that changed the code is the old one's
    with pytest.raises(CacheonError) as caught:
        await client.next_finalized()
    assert caught.value.code == "CHAIN_ABI_MISSING"
    assert "Runtime 462 lacks what this version needs: " in caught.value.message
    assert "CommitmentRevealFailed" in caught.value.message
    assert await client.block_hash(1)  # the connection is well
    world.node.chain.upgrade(463, 461)
    world.blocks()
    assert (await until_head(client, world.node.chain.head.number)).spec_version == 463
