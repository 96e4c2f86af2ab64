"""How many requests the whole node sends per finalized block, counted as frames."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from chain.blocks import BlockRef
from chain.publication_record import PublicationRecord
from chain.wallet import signer_of_seed
from node.services.admission import AdmissionService
from node.services.chain_watch import ChainWatch
from node.services.heads import HeadsService, HeadWatch
from node.services.publication import PublicationService
from node.services.reveals import RevealsService
from node.services.supervisor import cancel_all, supervise_all
from node.store.chain_seen import read_chain_seen
from node.store.engine import Store
from node.store.submission_rows import read_cursor
from tests.node.support import until
from tests.node.weights_world import ANN, World, weights_world

TEMPO = 60
BUDGET = 4
pytestmark = pytest.mark.timeout(600)


class ToldPublication(PublicationService):
    """The publication service; it tells which block it has dealt with."""

    done = -1

    async def step_once(self, block: BlockRef) -> PublicationRecord | None:
        """See `PublicationService`."""
        result = await super().step_once(block)
        self.done = block.number
        return result


@pytest.fixture(name="world")
async def _world(store: Store, tmp_path: Path) -> AsyncIterator[World]:
    async with weights_world(store, tmp_path / "cache", tempo=TEMPO) as made:
        yield made


async def test_four_requests_per_finalized_block_without_reveals(world: World) -> None:
    """Heads, reveals, payments and weights together cost at most four requests in each quiet block, and on average
    over a whole epoch, its publication included."""
    await world.ask("dev_setItem", "Commitments", "RevealedCommitments", [2, ANN], [["0x00", 0]])
    chain = msgspec.structs.replace(world.context.settings.chain, start_block=1)
    object.__setattr__(world.context, "settings", msgspec.structs.replace(world.context.settings, chain=chain))
    heads, client, context = HeadWatch(), world.client, world.context
    watch = ChainWatch(context.layout, 0.05)
    publication = ToldPublication(context, client, signer_of_seed("//Validator"), heads, world.receipts)
    running = asyncio.create_task(supervise_all(context, [
        HeadsService(client, heads, watch), RevealsService(context, client, heads), AdmissionService(context, client),
        publication,
    ]))

    async def dealt_with(number: int) -> bool:
        if running.done():
            running.result()
        cursor = await world.store.read(read_cursor)
        return publication.done >= number and cursor is not None and cursor.block >= number

    async def one_block() -> int:
        before, block = client.rpc_calls, world.block()
        await until(lambda: dealt_with(block.number))
        return client.rpc_calls - before

    try:
        while world.node.chain.head.number < TEMPO // 2:
            await one_block()  # the first epoch's publication is over
        assert await world.extrinsics() > 0
        quiet = [await one_block() for _ in range(TEMPO // 2 - 5)]
        epoch = [await one_block() for _ in range(TEMPO)]
        assert await world.row()
        assert max(quiet) <= BUDGET
        assert sum(epoch) <= BUDGET * len(epoch)
        seen = read_chain_seen(context.layout)
        assert seen is not None
        assert (seen.block, seen.away_code) == (world.node.chain.head.number, "")
    finally:
        await cancel_all([running])
