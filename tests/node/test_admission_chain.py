"""A paid submission from the miner's payment to the node's admission, over a real chain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chain.client import ChainClient
from chain.commitments import submit_commitment
from chain.devnet.config import DevnetConfig
from chain.devnet.fault_plan import Fault
from chain.devnet.server import Devnet
from chain.payload import Payload, encode_payload
from chain.wallet import signer_of_seed
from config.evaluation_cost import EvaluationCostSettings
from config.settings import ChainSettings, IntakeSettings, Settings
from config.target_catalog import load_catalog
from node.jobs import JobState
from node.services.admission import AdmissionService
from node.services.context import NodeContext
from node.services.heads import HeadWatch
from node.services.reveals import RevealsService
from node.store.credit_rows import PAID
from node.store.engine import Store
from node.store.job_rows import Entry, entries
from node.store.submission_rows import FREE
from tests.chain.conftest import World as Market
from tests.chain.conftest import genesis_of
from tests.chain.paying import CONTENT, FUNDED, NETUID, TAO, pay
from tests.scoring.support import make_arena

URL = "http://127.0.0.1:9/archive.tar.gz"
COST = EvaluationCostSettings(amount_rao=TAO)


class Node:
    """The two services that stand between a reveal and its archive."""

    def __init__(self, store: Store, client: ChainClient, cost: EvaluationCostSettings) -> None:
        settings = Settings(
            profile="devnet", state_dir=str(store.layout.root), evaluation_cost=cost,
            chain=ChainSettings(netuid=NETUID, start_block=1),
            intake=IntakeSettings(retry_base_seconds=0.0, retry_cap_seconds=0.0),
        )
        arena, catalog = make_arena(), load_catalog()
        self.context = NodeContext(settings, store.layout, store, arena, catalog, "worker", Path("/arena.toml"))
        self.reveals = RevealsService(self.context, client, HeadWatch())
        self.admission = AdmissionService(self.context, client)

    async def work(self) -> list[Entry]:
        """Read the chain to its head, make one pass of admission, and return all jobs."""
        while not (await self.reveals.scan_once()).caught_up:
            pass
        await self.admission.admit_once()
        return await self.context.store.read(entries)


@pytest.fixture(name="market")
async def _market() -> AsyncIterator[Market]:
    genesis = genesis_of(balances=FUNDED)
    async with Devnet(DevnetConfig(port=0, manual=True, genesis=genesis)) as node:

        def new_client(endpoint: str | None = None, **options: float) -> ChainClient:
            return ChainClient([endpoint or node.url], rpc_per_second=100_000, **options)  # type: ignore[arg-type]

        async with new_client() as client:
            world = Market(node, client, new_client)
            world.blocks()
            yield world


async def submit(market: Market, name: str, pointer: tuple[int, int] | None, content: str = CONTENT) -> None:
    """Commit a payload of `//name` and let the chain open it."""
    payload = encode_payload(Payload(content, URL, *(pointer or (None, None))), allow_loopback_http=True)
    committing = asyncio.create_task(
        submit_commitment(
            market.client, signer_of_seed(f"//{name}"), NETUID, payload, profile="devnet", reveal_in_blocks=3,
            poll_seconds=0.02,
        )
    )
    while not committing.done():
        if len(market.node.chain.pool):  # no era ends while a machine is slow
            market.blocks()
        await asyncio.sleep(0.02)
    await committing
    market.blocks(8)


async def test_from_the_payment_to_the_admission(store: Store, market: Market) -> None:
    """The miner who paid is admitted, the one who points at a stranger's payment and the one who paid nothing are not,
    and the payment cannot be used twice."""
    node = Node(store, market.client, COST)
    pointer = await pay(market)
    await submit(market, "Ann", pointer)
    await submit(market, "Bob", pointer)
    await submit(market, "Cid", None, "cd" * 32)
    await submit(market, "Ann", pointer)
    jobs = [(entry.job.state, entry.job.code, entry.job.admission) for entry in await node.work()]
    assert jobs == [
        (JobState.RESERVED, "", PAID), (JobState.FAILED, "EVALUATION_COST_FOREIGN", ""),
        (JobState.FAILED, "EVALUATION_COST_UNPAID", ""), (JobState.FAILED, "EVALUATION_COST_USED", ""),
    ]


async def test_state_that_is_gone_fails_nobody(store: Store, market: Market) -> None:
    """Behind an endpoint without the old state an honest payment waits; what its bytes alone refuse is refused."""
    node = Node(store, market.client, COST)
    pointer = await pay(market)
    await submit(market, "Ann", pointer)
    await submit(market, "Bob", pointer)
    while not (await node.reveals.scan_once()).caught_up:
        pass
    for entry in await store.read(entries):
        assert (entry.job.state, entry.job.admission) == (JobState.RESERVED, "")
    fault = market.node.faults.inject(Fault(kind="discarded_state"))
    for _ in range(3):
        await node.admission.admit_once()
    honest, foreign = await store.read(entries)
    assert (honest.job.state, honest.job.code, honest.job.admission) == (JobState.RESERVED, "CHAIN_STATE_PRUNED", "")
    assert (foreign.job.state, foreign.job.code) == (JobState.FAILED, "EVALUATION_COST_FOREIGN")
    market.node.faults.clear(fault)
    honest, _ = await node.work()
    assert (honest.job.code, honest.job.admission) == ("", PAID)


async def test_a_subnet_that_asks_for_nothing(store: Store, market: Market) -> None:
    """While submissions are free, nobody is asked for anything and no payment is used up."""
    node = Node(store, market.client, EvaluationCostSettings())
    await submit(market, "Ann", await pay(market))
    await submit(market, "Bob", None, "cd" * 32)
    assert [entry.job.admission for entry in await node.work()] == [FREE, FREE]
