"""One soak: a chain that is cut, forked, restarted and full of faults, and a node that is killed, until the end.

The chain lives in this process and is driven block by block; the node is a process of its own and meets the chain on a
websocket only. Every few blocks wait for a node that is up, at most `block_seconds`: on a public chain a block takes
twelve.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import structlog

from chain.devnet.config import DevnetConfig
from chain.devnet.context import Context
from chain.devnet.genesis_document import Genesis, NeuronSpec, OwnerSpec
from chain.devnet.server import Devnet
from tests.chain.devnet.support import NETUID, address, public
from tests.ports import reserved_port
from tests.soak.faults import add_counts, inject_all
from tests.soak.miners import Miners
from tests.soak.node_process import SINK, VALIDATOR, NodeOptions
from tests.soak.plan import SoakPlan
from tests.soak.supervised import NodeProcess
from tests.soak.verdict import SoakReport, judge

_STORM_RATE = 0.01  # of blocks begin a storm, in which nobody waits for the node
_REGISTER_EVERY = 400
_SAY_EVERY = 500  # blocks between two lines of progress
_CATCH_UP_SECONDS = 600.0


class Soak:
    """The state of one soak."""

    def __init__(self, plan: SoakPlan, folder: Path) -> None:
        self.plan = plan
        self.folder = folder
        self.rng = random.Random(plan.seed)
        self.miners = Miners(plan.miners, plan.odd_rate, self.rng)
        self.port = reserved_port()
        self.chain: Devnet
        self.node = NodeProcess(
            NodeOptions(f"ws://127.0.0.1:{self.port}", str(folder / "node"), plan.request_seconds, 0.05),
            folder / "node.log",
        )
        self.did: Counter[str] = Counter()
        self.struck: dict[str, int] = {}
        self.down: list[int] = []  # heights at which no node ran
        self._due = 0.0
        self._storm = 0
        self._start_at = 0

    async def run(self) -> SoakReport:
        """Go through all blocks, let the node come to rest, and judge."""
        plan, rng = self.plan, self.rng
        await self._open_chain(faults=True)
        try:
            await self.node.start()
            kills = _heights(rng, plan.node_kills, plan.blocks)
            restarts = _heights(rng, plan.chain_restarts, plan.blocks)
            while (height := self.chain.chain.head.number) < plan.blocks:
                await self._one_block(height)
                if height % _SAY_EVERY == 0:
                    structlog.get_logger().info("soak.block", block=height, cursor=self.node.cursor)
                if kills and kills[0] <= height:
                    kills.pop(0)
                    await self._kill_node(height)
                if restarts and restarts[0] <= height:
                    restarts.pop(0)
                    await self._restart_chain()
            await self._come_to_rest()
            return await judge(self)
        finally:
            await self.node.kill()
            await self.chain.stop()

    @property
    def epoch(self) -> int:
        """The chain's epoch."""
        return int(self.chain.chain.view().get("SubtensorModule", "SubnetEpochIndex", NETUID))

    async def _one_block(self, height: int) -> None:
        plan, rng = self.plan, self.rng
        self._due += plan.reveals * plan.surplus / plan.blocks
        if self._due >= 1:
            self._due -= self.miners.commit(self.chain.chain, self.epoch)
        if rng.random() < 0.004:
            self.miners.garbage(self.chain.chain)
        if plan.fork_every and rng.random() < 1 / plan.fork_every:
            self._fork()
        if rng.random() < 1 / _REGISTER_EVERY:
            self._register_anew()
        self.chain.produce_block()
        if not self.node.is_up:
            self.down.append(height)
            if height >= self._start_at:
                await self.node.start()
        await self._wait_for_node()

    async def _wait_for_node(self) -> None:
        if self._storm == 0 and self.rng.random() < _STORM_RATE:
            self._storm = self.rng.randint(3, 20)
            self.did["storms"] += 1
        if self._storm:
            self._storm -= 1
            await asyncio.sleep(0.002)
        elif self.chain.chain.head.number % self.plan.stride:
            await asyncio.sleep(0)
        elif self.node.is_up and not await self.node.reaches(
            self.chain.chain.finalized.number, self.plan.block_seconds
        ):
            self.did["late blocks"] += 1
        else:
            await asyncio.sleep(0)

    def _fork(self) -> None:
        depth = self.rng.randint(1, self.plan.finality_lag - 1)
        if self.chain.chain.head.number - depth > self.chain.chain.finalized.number:
            self.chain.chain.fork(depth, depth + 1)
            self.did["forks"] += 1

    def _register_anew(self) -> None:
        uri = self.rng.choice(self.miners.uris)

        def change(context: Context) -> None:
            uid = context.state.get("SubtensorModule", "Uids", NETUID, public(uri))
            context.state.put("SubtensorModule", "BlockAtRegistration", NETUID, uid, value=context.block)

        self.chain.chain.build(change)
        self.did["registrations"] += 1

    async def _kill_node(self, height: int) -> None:
        await self.node.kill()
        self._start_at = height + self.rng.randint(1, self.plan.down_blocks)
        self.did["node kills"] += 1

    async def _restart_chain(self) -> None:
        add_counts(self.chain, self.struck)
        await self.chain.stop()
        await asyncio.sleep(self.rng.random())
        await self._open_chain(faults=True)
        self.did["chain restarts"] += 1

    async def _open_chain(self, *, faults: bool) -> None:
        plan = self.plan
        self.chain = Devnet(DevnetConfig(
            port=self.port, manual=True, finality_lag=plan.finality_lag, keep_state=plan.keep_state,
            state=self.folder / "chain.state", genesis=_genesis(plan, self.miners.uris),
        ))
        await self.chain.start()
        if faults:
            inject_all(self.chain, plan.fault_rate, plan.seed + self.did["chain restarts"])

    async def _come_to_rest(self) -> None:
        """End the faults, reveal what is still sealed, and let the node see everything there is."""
        add_counts(self.chain, self.struck)
        self.chain.faults.clear(None)
        if not self.node.is_up:
            await self.node.start()
        for _ in range(2 * self.plan.tempo):
            self.chain.produce_block()
            await self.node.reaches(self.chain.chain.finalized.number, self.plan.block_seconds)
        if not await self.node.reaches(self.chain.chain.finalized.number, _CATCH_UP_SECONDS):
            structlog.get_logger().error("soak.behind", cursor=self.node.cursor, published=self.node.published)
        await self.node.kill()


def _heights(rng: random.Random, count: int, blocks: int) -> list[int]:
    return sorted(rng.sample(range(blocks // 10, blocks - blocks // 10), count))


def _genesis(plan: SoakPlan, miners: list[str]) -> Genesis:
    neurons: list[Any] = [NeuronSpec(address(VALIDATOR), address("//cold"), permit=True, stake=1_000)]
    neurons += [NeuronSpec(address(uri), address("//cold")) for uri in (SINK, *miners)]
    return Genesis(
        netuid=NETUID, tempo=plan.tempo, commit_reveal=plan.commit_reveal, weights_rate_limit=2, neurons=tuple(neurons),
        owner=OwnerSpec(address("//Owner"), address("//Owner//cold")),
    )
