"""kill -9 at every point of a publication: one extrinsic per intent, one per epoch, confirmed by reading."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from chain.abi import Storage
from chain.blocks import BlockRef
from chain.client import ChainClient
from chain.devnet.config import DevnetConfig
from chain.devnet.server import Devnet
from chain.hyperparameters import read_hyperparameters
from chain.rpc import extrinsic_hash_of
from tests.chain.conftest import genesis_of
from tests.chain.publisher import NETUID, FileJournal, Fuse, publish

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1200)]  # twenty processes, one after the other
TEMPO = 12
POINTS = 10  # two each: intent, submission, submitted, included, confirmed

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["bittensor", "tests.chain.publisher"])


async def run_child(*arguments: Any) -> int:
    """Run one publisher and return its exit code."""
    child = _PROCESSES.Process(target=publish, args=arguments)
    child.start()
    await asyncio.to_thread(child.join, 300)
    code = child.exitcode
    child.kill()
    assert code is not None
    return code


async def included(client: ChainClient) -> dict[str, tuple[int, int]]:
    """Every signed extrinsic of the chain: hash -> (block, epoch); the chain is made for one signer."""
    found: dict[str, tuple[int, int]] = {}
    head = await client.finalized_head()
    for number in range(1, head.number + 1):
        block = BlockRef(number, await client.block_hash(number))
        raw = await (await client._connected()).request("chain_getBlock", [block.hash])
        for text in raw["block"]["extrinsics"][1:]:
            digest = extrinsic_hash_of(bytes.fromhex(text[2:]))
            assert digest not in found
            found[digest] = (number, (await read_hyperparameters(client, NETUID, block)).epoch)
    return found


@pytest.mark.parametrize("commit_reveal", [False, True])
@pytest.mark.parametrize("gap", [0, 1, TEMPO])
async def test_sigkill_at_every_point(tmp_path: Path, runtime_cache: Path, commit_reveal: bool, gap: int) -> None:
    """Killed at each point in turn and started again at once, a block later or an epoch later."""
    path = tmp_path / "journal"
    genesis = genesis_of(tempo=TEMPO, commit_reveal=commit_reveal, weights_rate_limit=1)
    async with Devnet(DevnetConfig(port=0, manual=True, genesis=genesis)) as node:
        node.produce_block()
        codes = Counter[int]()
        for point in range(1, POINTS + 1):
            common = (node.url, str(runtime_cache), str(path))
            end = node.chain.head.number + 3 * TEMPO
            codes[await run_child(*common, point, end)] += 1
            for _ in range(gap):
                node.produce_block()
            assert await run_child(*common, 0, node.chain.head.number + TEMPO) == 0
        assert codes == {-signal.SIGKILL: POINTS}
        async with ChainClient([node.url], rpc_per_second=100_000, runtime_cache_dir=runtime_cache) as client:
            await check(client, FileJournal(path, Fuse(0)))


async def check(client: ChainClient, journal: FileJournal) -> None:
    """The chain and the journal tell the same story, and nothing happened twice."""
    on_chain = await included(client)
    records = await journal.records()
    intents = [record for record in records if record.status == "intent"]
    assert len({record.extrinsic_hash for record in intents}) == len(intents)
    assert set(on_chain) <= {record.extrinsic_hash for record in intents}
    assert max(Counter(epoch for _, epoch in on_chain.values()).values()) == 1
    ends = {record.extrinsic_hash: record for record in records if not record.is_open}
    assert len([record for record in records if not record.is_open]) == len(intents)
    for name, (number, epoch) in on_chain.items():
        assert (ends[name].included_block, ends[name].epoch) == (number, epoch)
    for name in set(ends) - set(on_chain):
        assert ends[name].status == "expired"
    confirmed = [record for record in ends.values() if record.status == "confirmed"]
    assert len(confirmed) >= POINTS
    for record in confirmed:
        assert record.confirmed_block is not None
        block = BlockRef(record.confirmed_block, await client.block_hash(record.confirmed_block))
        (row,) = await client.read(block, [(Storage.WEIGHTS, [NETUID, 0])])
        assert {int(uid): int(value) for uid, value in row} == dict(zip(record.uids, record.values, strict=True))
