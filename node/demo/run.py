"""The demo from beginning to end; each step skips what an earlier run already did."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from chain.abi import Storage
from chain.client import ChainClient
from chain.metagraph import read_metagraph
from config.errors import InternalError, NetworkError
from node.demo import follow
from node.demo.cast import VALIDATOR_WALLET
from node.demo.children import Child, running
from node.demo.miners import Miners
from node.demo.place import Place, Plan, make_plan, write_atomically
from node.demo.prepare import Company, gather
from node.demo.reporter import Reporter
from node.demo.result import PPM, ChainWeight, DemoResult, differences, player_results
from node.demo.settings_file import NETUID, chain_endpoint, write_node_settings
from node.status import NodeStatus

BLOCK_SECONDS = 0.25
FINALITY_LAG = 2
CHAIN_START_SECONDS = 60.0


async def run_demo(root: Path, reporter: Reporter) -> DemoResult:
    """Run, or resume, the demo in `root` and return its result; also written to `result.json`.

    Raises `HostError` for a folder, port or machine that cannot be used, and the failure of a child that ended.
    """
    started = time.monotonic()
    place = Place(root.absolute())
    place.create()
    with await asyncio.to_thread(place.lock) as lock:
        reporter.step("packing six example bundles and creating wallets")
        company = await asyncio.to_thread(gather, place)
        status, row, block = await _play(place, lock.fileno(), company, reporter)
        result = _result(place, company, status, row, block=block, seconds=round(time.monotonic() - started))
        write_atomically(place.result, msgspec.json.encode(result))
        return result


async def _play(
    place: Place, lock: int, company: Company, reporter: Reporter
) -> tuple[NodeStatus, tuple[ChainWeight, ...], int]:
    """Start chain and host, let miners and validator do their work, and read the weights back from the chain."""
    plan = make_plan(place)
    write_node_settings(place, plan)
    host = company.archive_host(place)
    reporter.step(f"starting a local chain (port {plan.chain_port}) and an archive host (port {plan.archive_port})")
    client = ChainClient([chain_endpoint(plan)], rpc_per_second=1000, runtime_cache_dir=place.root / "runtime-cache")
    async with (
        host.serving(plan.archive_port),
        running("chain", _chain(place, plan), place.logs / "chain.log", [lock]) as chain,
        _closing(client),
    ):
        await _connect(client, chain)
        await Miners(client, place, plan, company, host).submit_missing(reporter)
        status = await _validate(place, lock, chain, company, reporter)
        return status, *await read_back(client, company)


def _result(
    place: Place, company: Company, status: NodeStatus, row: tuple[ChainWeight, ...], *, block: int, seconds: int
) -> DemoResult:
    players = player_results(status, company.hotkeys, row)
    crown = next((crown for crown in status.crowns if crown.live), None)
    return DemoResult(
        state_dir=str(place.root),
        seconds=seconds,
        players=players,
        crown_target=crown.target_id if crown else "",
        crown_hotkey=crown.hotkey if crown else "",
        weights_block=block,
        weights=row,
        publications=len(status.publications),
        differences=differences(status, players, row),
    )


@contextlib.asynccontextmanager
async def _closing(client: ChainClient) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await client.close()


def _chain(place: Place, plan: Plan) -> list[str]:
    return [
        "devnet",
        "--port",
        str(plan.chain_port),
        "--block-time",
        str(BLOCK_SECONDS),
        "--finality-lag",
        str(FINALITY_LAG),
        "--state",
        str(place.chain_state),
        "--genesis",
        str(place.genesis),
    ]


async def _connect(client: ChainClient, chain: Child) -> None:
    deadline = time.monotonic() + CHAIN_START_SECONDS
    while True:
        chain.check()
        try:
            await client.open()
            return
        except NetworkError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)


async def _validate(place: Place, lock: int, chain: Child, company: Company, reporter: Reporter) -> NodeStatus:
    status = await follow.current(place)
    if status is not None and follow.finished(status):
        reporter.step("the validator already finished in an earlier run")
        return status
    reporter.step("starting the validator node")
    arguments = ["node", "run", "-c", str(place.node_settings)]
    async with running("validator node", arguments, place.logs / "node.log", [lock]) as validator:
        return await follow.until_finished(place, (chain, validator), company.hotkeys, reporter)


async def read_back(client: ChainClient, company: Company) -> tuple[tuple[ChainWeight, ...], int]:
    """Return the validator's weights row as the chain has it at the finalized head, and that block's number."""
    block = await client.finalized_head()
    metagraph = await read_metagraph(client, NETUID, block)
    neuron = metagraph.by_hotkey(company.hotkeys[VALIDATOR_WALLET])
    if neuron is None:
        raise InternalError("DEMO_DIFFERS", "the validator is not registered on the demo's own chain")
    (pairs,) = await client.read(block, [(Storage.WEIGHTS, [NETUID, neuron.uid])])
    hotkeys = {other.uid: other.hotkey for other in metagraph.neurons}
    total = sum(int(value) for _, value in pairs) or 1
    row = tuple(ChainWeight(int(uid), hotkeys[int(uid)], int(value), int(value) * PPM // total) for uid, value in pairs)
    return row, block.number
