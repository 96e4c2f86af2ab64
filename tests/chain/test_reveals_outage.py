"""After an outage: pruned state, archive nodes, and what never was a reveal."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from chain import patience
from chain.blocks import BlockRef
from chain.client import ChainClient
from chain.devnet.beacon import reveal_round_after, seal
from chain.devnet.config import DevnetConfig
from chain.devnet.server import Devnet
from chain.payload import Payload, encode_payload
from chain.reveals import RevealReader
from config.errors import ChainError
from tests.chain.conftest import NETUID, genesis_of
from tests.chain.devnet.support import commitment, plain_field, sealed_field, sign

HASH = "0123456789abcdef" * 4
BLOCKS, KEPT = 60, 20


def payload(number: int) -> bytes:
    """A good payload."""
    return encode_payload(Payload(HASH, f"https://h.example/{number}.tar.gz"))


class Network:
    """Two nodes of one chain with a reveal in every fifth block: one forgets old state, the other does not."""

    def __init__(self, pruned: Devnet, archive: Devnet, cache: Path) -> None:
        self.pruned = pruned
        self.archive = archive
        self._cache = cache
        self.clients: list[ChainClient] = []

    def reader(self, *nodes: Devnet, max_blocks: int = 16) -> RevealReader:
        """A reader with these endpoints, in this order."""
        client = ChainClient([node.url for node in nodes], rpc_per_second=100_000, runtime_cache_dir=self._cache)
        self.clients.append(client)
        return RevealReader(client, NETUID, max_blocks=max_blocks)


@pytest.fixture(name="network")
async def _network(
    tmp_path: Path, runtime_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Network]:
    monkeypatch.setattr(patience, "FIRST_PAUSE_SECONDS", 0.001)
    state, copy = tmp_path / "chain.state", tmp_path / "copy.state"
    config = DevnetConfig(port=0, manual=True, state=state, genesis=genesis_of(tempo=50))
    async with Devnet(config) as node:
        for number in range(BLOCKS):
            if number % 5 == 0:
                label = reveal_round_after(number, 5)
                call = commitment(sealed_field(seal(payload(number)), label))
                node.chain.submit(sign(node.chain, f"//{('Ann', 'Bob', 'Cid')[number // 5 % 3]}", call))
            node.produce_block()
    shutil.copyfile(state, copy)
    async with contextlib.AsyncExitStack() as stack:
        pruned = await stack.enter_async_context(
            Devnet(DevnetConfig(port=0, manual=True, state=copy, keep_state=KEPT))
        )
        archive = await stack.enter_async_context(Devnet(DevnetConfig(port=0, manual=True, state=state)))
        network = Network(pruned, archive, runtime_cache)
        yield network
        for client in network.clients:
            await client.close()


async def read_all(reader: RevealReader, cursor: BlockRef | None = None) -> tuple[list[Any], BlockRef]:
    """Pass after pass to the head."""
    found: list[Any] = []
    for _ in range(200):
        scan = await reader.scan(cursor, 1)
        found += scan.reveals
        cursor = scan.cursor
        if scan.caught_up and cursor is not None:
            return found, cursor
    raise AssertionError("the head is never reached")


async def test_an_archive_endpoint_fills_the_gap_of_a_pruned_one(network: Network) -> None:
    """The pruned endpoint is asked first and knows the newest blocks only; no reveal is missing and none is doubled."""
    found, cursor = await read_all(network.reader(network.pruned, network.archive))
    expected = [(number + 5, payload(number)) for number in range(0, BLOCKS, 5)]
    assert [(one.block, bytes.fromhex(one.payload_hex)) for one in found] == expected
    assert cursor.number == BLOCKS
    alone, _ = await read_all(network.reader(network.archive, max_blocks=7))
    assert alone == found


async def test_without_one_the_error_names_the_blocks_and_the_setting(network: Network) -> None:
    """Nothing is skipped: the cursor stays, and with an archive endpoint the reading goes on from it."""
    cursor = BlockRef(10, network.archive.chain.blocks[10].hash_hex)
    with pytest.raises(ChainError) as caught:
        await network.reader(network.pruned).scan(cursor, 1)
    assert caught.value.code == "ARCHIVE_NODE_NEEDED"
    assert f"Blocks 11 to {BLOCKS} " in caught.value.message
    assert "`chain.endpoints`" in caught.value.message
    found, _ = await read_all(network.reader(network.pruned, network.archive), cursor)
    assert [one.block for one in found] == list(range(15, BLOCKS + 1, 5))


async def test_a_short_outage_needs_no_archive(network: Network) -> None:
    """What is within the state that ordinary nodes keep is read from them."""
    height = BLOCKS - KEPT + 2
    cursor = BlockRef(height, network.pruned.chain.blocks[height].hash_hex)
    found, _ = await read_all(network.reader(network.pruned), cursor)
    assert [one.block for one in found] == [block for block in range(5, BLOCKS + 1, 5) if block > height]


async def test_what_is_not_sealed_or_is_replaced_is_no_reveal(network: Network) -> None:
    """A commitment in the clear, and a sealed one that another replaces before it opens, never become submissions."""
    node = network.archive
    head = node.chain.head.number
    label = reveal_round_after(head, 6)
    node.chain.submit(sign(node.chain, "//Ann", commitment(plain_field(payload(1)[:100]))))
    node.chain.submit(sign(node.chain, "//Bob", commitment(sealed_field(seal(payload(1)), label))))
    node.produce_block()
    node.chain.submit(sign(node.chain, "//Bob", commitment(plain_field(b"instead"))))
    for _ in range(8):
        node.produce_block()
    cursor = BlockRef(head, node.chain.blocks[head].hash_hex)
    found, after = await read_all(network.reader(node), cursor)
    assert (found, after.number) == ([], head + 9)


async def test_an_old_commitment_that_opens_after_a_new_registration_is_the_new_one_s(network: Network) -> None:
    """The same hotkey registered anew is somebody else: the same payload under two registrations is two identities."""
    node = network.archive
    head = node.chain.head.number
    for opens in (head + 4, head + 9):
        label = reveal_round_after(node.chain.head.number, opens - node.chain.head.number)
        node.chain.submit(sign(node.chain, "//Ann", commitment(sealed_field(seal(payload(7)), label))))
        while node.chain.head.number < opens - 2:
            node.produce_block()
        if opens == head + 9:
            node.chain.build(
                lambda context: context.state.put(
                    "SubtensorModule", "BlockAtRegistration", NETUID, 1, value=context.block
                )
            )
        while node.chain.head.number < opens:
            node.produce_block()
    found, _ = await read_all(network.reader(node), BlockRef(head, node.chain.blocks[head].hash_hex))
    assert [one.registered_block for one in found] == [0, head + 8]
    assert [one.reason for one in found] == ["", ""]
    assert len({one.payload_digest for one in found}) == 1
    assert len({one.submission_id for one in found}) == 2
