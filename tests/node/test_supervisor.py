"""The supervisor: one service's crash is its own affair."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import Connection, select

from chain.blocks import BlockRef
from chain.heads import FinalizedHead
from config.errors import ChainError, HostError, NetworkError
from config.settings import Settings
from config.target_catalog import load_catalog
from node.services import supervisor
from node.services.chain_watch import ChainWatch
from node.services.context import NodeContext
from node.services.heads import HeadsService, HeadWatch
from node.services.supervisor import supervise_all
from node.store.engine import Store
from node.store.schema import events
from tests.scoring.support import make_arena


class Crashing:
    """A service that raises on its first runs and then works."""

    name = "crashing"

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.working = asyncio.Event()
        self.cancelled = False

    async def run(self) -> None:
        """Crash, or work until cancelled."""
        if self.errors:
            raise self.errors.pop(0)
        self.working.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled = True


@pytest.fixture
def context(store: Store, monkeypatch: pytest.MonkeyPatch) -> NodeContext:
    """A context, and no waiting between restarts."""
    monkeypatch.setattr(supervisor, "_BACKOFF_BASE_SECONDS", 0.0)
    return NodeContext(Settings(), store.layout, store, make_arena(), load_catalog(), "worker", Path("/arena.toml"))


async def test_crashing_service_restarts_and_others_go_on(context: NodeContext) -> None:
    """A service that raises is started again, a neighbour never stops, and both end when the node stops."""
    crashing, steady = Crashing(ValueError("a"), RuntimeError("b")), Crashing()
    task = asyncio.create_task(supervise_all(context, [crashing, steady]))
    await crashing.working.wait()
    await steady.working.wait()
    assert not steady.cancelled
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert crashing.cancelled
    assert steady.cancelled
    assert await _faults(context) == 2


async def test_unreachable_upstream_is_no_internal_error(context: NodeContext) -> None:
    """A chain that cannot be reached is waited for without filling the ledger."""
    waiting = Crashing(NetworkError("CHAIN_UNREACHABLE", "down"), NetworkError("CHAIN_TIMEOUT", "slow"))
    task = asyncio.create_task(supervise_all(context, [waiting]))
    await waiting.working.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await _faults(context) == 0


class Chain:
    """A chain whose head moves with every question."""

    number = 0

    async def next_finalized(self) -> FinalizedHead:
        """Return the next head."""
        self.number += 1
        await asyncio.sleep(0)
        return FinalizedHead(BlockRef(self.number, f"0x{self.number:064x}"), "0x00", 1000 * self.number, 461)


async def test_heads_are_announced_while_reveals_cannot_be_read(context: NodeContext) -> None:
    """Whatever stops the reveals service for good stops no service that follows the head, weights among them."""
    heads = HeadWatch()
    broken = Crashing(*(ChainError("CHAIN_STATE_PRUNED", "gone") for _ in range(1000)))
    following = HeadsService(Chain(), heads, ChainWatch(context.layout, 0.001))  # type: ignore[arg-type]
    task = asyncio.create_task(supervise_all(context, [broken, following]))
    assert (await heads.wait_beyond(3)).number > 3
    assert not broken.working.is_set()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_lost_state_folder_ends_the_node(context: NodeContext) -> None:
    """When the state folder is gone there is nothing to serve for: the services end, with the reason."""
    context.layout.root.rename(context.layout.root.with_name("elsewhere"))
    steady = Crashing()
    with pytest.raises(HostError) as caught:
        await supervise_all(context, [steady, Crashing(RuntimeError("a"))])
    assert caught.value.code == "STATE_REPLACED"
    assert steady.cancelled


async def _faults(context: NodeContext) -> int:
    def count(connection: Connection) -> int:
        return len(connection.execute(select(events).where(events.c.kind == "error.internal")).all())

    return await context.store.read(count)
