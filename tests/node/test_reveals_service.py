"""When the reveals service reads, and when it waits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import structlog

from chain.blocks import BlockRef
from chain.reveals import RevealScan
from config.errors import CacheonError, ChainError, NetworkError
from config.settings import ChainSettings, LogSettings, Settings
from node import logs as logs_module
from node.services.heads import HeadWatch
from node.services.reveals import RevealsService
from node.status import read_status
from node.store.chain_seen import read_reveals_held
from node.store.engine import Store
from node.store.layout import StateLayout
from tests.node.support import until


def at(number: int) -> BlockRef:
    """A block."""
    return BlockRef(number, f"0x{number:064x}")


class Scripted(RevealsService):
    """A service whose passes are made up."""

    def __init__(
        self, heads: HeadWatch, passes: Sequence[RevealScan | CacheonError], layout: StateLayout | None = None
    ) -> None:
        layout = layout or StateLayout.at("/nowhere")
        settings = Settings(profile="devnet", chain=ChainSettings(netuid=2, poll_seconds=0.001))
        context: Any = SimpleNamespace(settings=settings, layout=layout)
        client: Any = None
        super().__init__(context, client, heads)
        self._left = list(passes)
        self.made = 0

    async def scan_once(self) -> RevealScan:
        """See `RevealsService`."""
        self.made += 1
        scan = self._left.pop(0)
        if isinstance(scan, CacheonError):
            raise scan
        return scan


async def settle() -> None:
    """Let every task that can go on go on."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_passes_follow_each_other_until_the_head_is_reached() -> None:
    """Behind, it does not pause; caught up, it waits for the next head."""
    heads = HeadWatch()
    passes = [(64, 150), (128, 150), (150, 150), (151, 151)]
    service = Scripted(heads, [RevealScan(at(cursor), at(head)) for cursor, head in passes])
    task = asyncio.create_task(service.run())
    await settle()
    assert service.made == 0
    await heads.announce(at(150))
    await until(lambda: service.made == 3)
    await settle()
    assert service.made == 3
    await heads.announce(at(151))
    await until(lambda: service.made == 4)
    task.cancel()
    await asyncio.wait([task])


async def test_an_endpoint_that_lags_behind_the_cursor_is_not_asked_again_and_again() -> None:
    """The head it names is older than what was read: the service waits for one beyond the cursor."""
    heads = HeadWatch()
    await heads.announce(at(149))
    service = Scripted(heads, [RevealScan(at(150), at(140)), RevealScan(at(151), at(151))])
    task = asyncio.create_task(service.run())
    await until(lambda: service.made == 1)
    await heads.announce(at(150))
    await settle()
    assert service.made == 1
    await heads.announce(at(151))
    await until(lambda: service.made == 2)
    task.cancel()
    await asyncio.wait([task])


async def test_a_start_block_that_is_not_final_yet_is_waited_for() -> None:
    """Without a cursor the next head is the moment to look again."""
    heads = HeadWatch()
    await heads.announce(at(5))
    service = Scripted(heads, [RevealScan(None, at(5)), RevealScan(at(6), at(6))])
    task = asyncio.create_task(service.run())
    await until(lambda: service.made == 1)
    await settle()
    assert service.made == 1
    await heads.announce(at(6))
    await until(lambda: service.made == 2)
    task.cancel()
    await asyncio.wait([task])


async def test_reveals_that_cannot_be_read_are_told_once_and_seen_in_the_status(store: Store) -> None:
    """Heads go on meanwhile; the node is not ready and says why, until a pass succeeds."""
    heads, go_on = HeadWatch(), asyncio.Event()
    await heads.announce(at(150))
    needs = ChainError("ARCHIVE_NODE_NEEDED", "Blocks 5 to 150 are still to be read.", hint="Add an archive node.")

    class Held(Scripted):
        async def scan_once(self) -> RevealScan:
            if len(self._left) == 1:
                await go_on.wait()
            return await super().scan_once()

    passes = [*[needs] * 5, NetworkError("CHAIN_TIMEOUT", "late"), RevealScan(at(150), at(150))]
    service = Held(heads, passes, store.layout)
    logs_module.configure(LogSettings(level="info"))
    with structlog.testing.capture_logs() as logs:
        task = asyncio.create_task(service.run())
        await until(lambda: (held := read_reveals_held(store.layout)) is not None and held.code == "CHAIN_TIMEOUT")
        status = read_status(store.layout.root)
        assert not status.ready
        assert [(one.name, one.sentence) for one in status.reasons] == [
            ("reveals_held", "reveals cannot be read any further: late")
        ]
        go_on.set()
        await until(lambda: not read_status(store.layout.root).reasons)
        task.cancel()
        await asyncio.wait([task])
    assert [(line["event"], line.get("code", line.get("was"))) for line in logs] == [
        ("reveals.held", "ARCHIVE_NODE_NEEDED"), ("reveals.held", "CHAIN_TIMEOUT"), ("reveals.go_on", "CHAIN_TIMEOUT"),
    ]
    assert logs[0]["hint"] == "Add an archive node."
    assert service.made == 7


async def test_what_an_earlier_run_could_not_read_is_over_when_a_pass_succeeds(store: Store) -> None:
    """A node that was stopped while held up and starts again well does not show the old reason."""
    heads = HeadWatch()
    await heads.announce(at(5))
    for passes in ([NetworkError("CHAIN_TIMEOUT", "late")] * 1000, [RevealScan(at(5), at(5))]):
        task = asyncio.create_task(Scripted(heads, passes, store.layout).run())
        held = len(passes) > 1
        await until(lambda held=held: bool(read_status(store.layout.root).reasons) is held)
        task.cancel()
        await asyncio.wait([task])
