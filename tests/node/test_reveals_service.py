"""When the reveals service reads, and when it waits."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from chain.blocks import BlockRef
from chain.reveals import RevealScan
from config.settings import ChainSettings, Settings
from node.services.heads import HeadWatch
from node.services.reveals import RevealsService
from tests.node.support import until


def at(number: int) -> BlockRef:
    """A block."""
    return BlockRef(number, f"0x{number:064x}")


class Scripted(RevealsService):
    """A service whose passes are made up."""

    def __init__(self, heads: HeadWatch, passes: list[RevealScan]) -> None:
        context: Any = SimpleNamespace(settings=Settings(profile="devnet", chain=ChainSettings(netuid=2)))
        client: Any = None
        super().__init__(context, client, heads)
        self._left = passes
        self.made = 0

    async def scan_once(self) -> RevealScan:
        """See `RevealsService`."""
        self.made += 1
        return self._left.pop(0)


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
