"""Follows finalized blocks and turns every reveal into a durable job.

Invariants
1. Cursor, submissions and jobs of one pass are one transaction: a crash repeats a pass, and loses or doubles no row.
2. Decodable reveals become `reserved`, undecodable ones `failed` rows with their code; one odd row hides nothing.
3. An upstream that fails is asked again later from the same cursor; nothing is skipped to catch up. Why nothing can be
   read is in the state folder for as long as it lasts (`node.services.reveals_watch`).
"""

from __future__ import annotations

import msgspec
import structlog

from chain.blocks import BlockRef
from chain.client import ChainClient
from chain.reveals import Reveal, RevealReader, RevealScan
from config.errors import ChainError, NetworkError
from node.services.context import NodeContext
from node.services.heads import HeadWatch
from node.services.reveals_watch import RevealsWatch
from node.store.submission_rows import Cursor, Submission, read_cursor, record_scan


class RevealsService:
    """The reveals service."""

    name = "reveals"

    def __init__(self, context: NodeContext, client: ChainClient, heads: HeadWatch) -> None:
        self._context = context
        self._client = client
        self._heads = heads
        settings = context.settings
        self._reader = RevealReader(client, settings.chain.netuid, allow_loopback_http=settings.is_devnet)
        self._watch = RevealsWatch(context.layout, settings.chain.poll_seconds)

    async def run(self) -> None:
        """Scan once per finalized head until cancelled; without pause while behind."""
        await self._heads.wait_beyond(-1)
        while True:
            try:
                scan = await self.scan_once()
            except (NetworkError, ChainError) as error:
                await self._watch.held(error)
                continue
            await self._watch.passed()
            if scan.caught_up or scan.cursor is None:
                # Beyond the cursor, not beyond the head of this pass: an endpoint may lag behind what was read.
                await self._heads.wait_beyond((scan.cursor or scan.head).number)

    async def scan_once(self) -> RevealScan:
        """Read the next stretch of blocks and store what it holds.

        Raises `NetworkError` and `ChainError` of `chain.reveals.RevealReader.scan`.
        """
        context = self._context
        before = await context.store.read(read_cursor)
        scan = await self._reader.scan(
            BlockRef(before.block, before.block_hash) if before else None,
            await self._start_block() if before is None else 0,
        )
        after = Cursor(scan.cursor.number, scan.cursor.hash) if scan.cursor is not None else None
        if after is None or after == before:
            return scan
        found = [_submission(one) for one in scan.reveals]
        is_due = context.settings.evaluation_cost.is_due
        fresh = await context.store.write(record_scan, before, after, found, is_due)
        for failure in scan.failures:
            structlog.get_logger().warning("reveal.failed", hotkey=failure.hotkey, block=failure.block)
        for one in fresh:
            structlog.get_logger().info(
                "submission.recorded", submission=one.submission_id, hotkey=one.hotkey, block=one.block,
                content_hash=one.content_hash, code=one.reason,
            )
        if fresh:
            context.wake.notify()
        return scan

    async def _start_block(self) -> int:
        """Where reading begins on a fresh store: as configured, else at the present head (the past is not ours)."""
        configured = self._context.settings.chain.start_block
        if configured is not None:
            return configured
        return (await self._client.finalized_head()).number


def _submission(reveal: Reveal) -> Submission:
    values = {
        name: getattr(reveal, name) for name in Submission.__struct_fields__ if name != "submission_id"
    }
    return msgspec.convert({**values, "submission_id": reveal.submission_id}, Submission)
