"""Follows the chain's finalized head: one subscription, watched.

Invariants
1. Heads only move forward, and each one descends from the one before: the height of the last head must still have its
   hash on the endpoint that announces the next, however many blocks lie between.
2. A subscription ends with its connection, and may also die without a word. When nothing was announced for some block
   times, the endpoint is asked; a newer head than the last announced one means a dead subscription, which is replaced,
   and the same head makes the next endpoint be asked. Twice that time without a newer head is an error, whatever the
   endpoints say meanwhile (CHAIN_HEAD_STANDS).
3. A head is named by the hash of its header. It is compared with what the endpoint calls that height, and so is the
   last head, whenever a connection is new or heads were skipped, and now and then besides. In between the hashes
   themselves prove it: the header names the last head, which this endpoint has, as its parent.
4. Every error is raised to whoever waits, who decides on the pause, and the next call begins anew; nothing is skipped,
   because readers go by number from their own cursors. A subscription that brings no new head is replaced in silence
   once, so that no endpoint can make this side dial and subscribe as fast as it hangs up.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Protocol

import msgspec

from chain.blocks import BlockRef, Header, parse_header
from chain.connection import Connection, forked, lags
from chain.session import Feed
from chain.transport_errors import AnswerError, SessionLostError, ThrottledError, translate
from config.errors import NetworkError

_COMPARE_EVERY = 16  # blocks between two comparisons of linked heads
LAG_BLOCKS = 5  # an endpoint this far behind the last head is left for another one


class FinalizedHead(msgspec.Struct, frozen=True):
    """A finalized block as it was seen: when it was made, and which runtime made it."""

    block: BlockRef
    parent_hash: str
    timestamp_ms: int  # the block's own time, milliseconds since 1970
    spec_version: int


class Owner(Protocol):
    """What following needs of the client."""

    async def follow_feed(self) -> Feed:
        """Return a new subscription of finalized heads on the present connection."""

    async def present_head(self) -> dict[str, Any]:
        """Return the raw header of the newest finalized block."""

    async def drop_feed(self, feed: Feed) -> None:
        """End a subscription; raises nothing."""

    async def admit_head(self, raw: dict[str, Any], last: BlockRef | None) -> FinalizedHead | None:
        """Check an announced header against the endpoint and the last head, and read what is read at every head.

        None stands for a head that is no newer.
        """

    async def silence_seconds(self) -> float:
        """Return how long nothing may be announced before the endpoint is asked."""

    async def try_another(self) -> None:
        """Give up the connection."""


class HeadFollower:
    """Waits for finalized heads."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._feed: Feed | None = None
        self._heard = float("-inf")
        self._moved = time.monotonic()  # when there was a newer head, or when a lack of one was last told
        self._barren = 0  # subscriptions in a row that ended without a newer head
        self._silence = 0.0
        self.last: FinalizedHead | None = None

    @property
    def is_live(self) -> bool:
        """Whether `last` is as new as what the endpoint in use would answer, but for a moment."""
        feed = self._feed
        alive = feed is not None and feed.session.is_open and not feed.has_notice
        return alive and self.last is not None and time.monotonic() - self._heard <= 2 * self._silence

    async def next(self) -> FinalizedHead:
        """Return the next finalized head that is newer than the last. Raises `NetworkError` and `ChainError`."""
        while True:
            raw = await self._announced()
            last = self.last.block if self.last is not None else None
            try:
                head = await self._owner.admit_head(raw, last)
            except Exception:
                await self._let_go()  # a new subscription begins by announcing the head again
                raise
            self._heard = time.monotonic()
            if head is not None:
                self.last, self._moved, self._barren = head, self._heard, 0
                return head
            self._require_progress()

    async def _announced(self) -> dict[str, Any]:
        while True:
            if self._feed is None:
                self._feed = await self._owner.follow_feed()
                self._silence = await self._owner.silence_seconds()
            try:
                async with asyncio.timeout(self._silence):
                    notice = await self._feed.next()
            except (SessionLostError, ThrottledError, AnswerError) as error:
                self._feed = None
                self._barren += 1
                if self._barren > 1:
                    raise translate(error, "waiting for a finalized head") from error
                continue
            except TimeoutError:
                asked = await self._ask()
                if asked is not None:
                    return asked
                continue
            announced: dict[str, Any] = notice  # of whatever kind: who admits it tells what is no header
            return announced

    async def _ask(self) -> dict[str, Any] | None:
        """Return the endpoint's head if the subscription missed it; otherwise leave for the next endpoint."""
        try:
            raw = await self._owner.present_head()
            number = int(raw["number"], 16)
        except Exception:
            self._feed = None
            raise
        self._heard = time.monotonic()
        if self.last is None or number > self.last.block.number:
            await self._let_go()
            return raw
        self._feed = None
        await self._owner.try_another()
        self._require_progress()
        return None

    def _require_progress(self) -> None:
        """Raise `NetworkError` (CHAIN_HEAD_STANDS) when no newer head was seen for long; told once per such time."""
        seconds = time.monotonic() - self._moved
        if self.last is None or seconds <= 2 * self._silence:
            return
        self._moved += seconds
        raise NetworkError(
            "CHAIN_HEAD_STANDS",
            f"No endpoint has shown a finalized block newer than {self.last.block.number} for {seconds:.0f} s.",
            hint="If the network goes on elsewhere, put another endpoint first in `chain.endpoints`; otherwise wait.",
        )

    async def _let_go(self) -> None:
        feed, self._feed = self._feed, None
        if feed is not None and feed.session.is_open:
            await self._owner.drop_feed(feed)


async def check_head(
    connection: Connection, raw: dict[str, Any], last: BlockRef | None, *, may_lag: bool
) -> Header | None:
    """Return the announced header once the endpoint confirmed it and the last head; None when it is no newer.

    Raises `NetworkError`: CHAIN_FORKED, CHAIN_ENDPOINT_LAGS (unless it `may_lag`).
    """
    header = parse_header(raw)
    number = header.block.number
    if last is not None and number <= last.number:
        if number == last.number and header.block.hash == last.hash:
            return None
        (name,) = await connection.hashes([last.number])
        if name is not None and name != last.hash:
            raise forked(connection.endpoint, last, name)
        if not may_lag and last.number - number >= LAG_BLOCKS:
            raise lags(connection.endpoint, last)
        return None
    if last is not None and number == last.number + 1:
        if header.parent_hash != last.hash:
            raise forked(connection.endpoint, last, header.parent_hash)
        if number % _COMPARE_EVERY and connection.names_by_hash and connection.has_canonical(last):
            connection.add_canonical([header.block.hash])
            return header
    asked = [number] if last is None else [last.number, number]
    *before, name = await connection.hashes(asked)
    if last is not None and before != [last.hash]:
        raise forked(connection.endpoint, last, str(before[0]))
    if name is None:
        raise lags(connection.endpoint, header.block)
    if name != header.block.hash:
        known = await connection.request("chain_getHeader", [name])
        if known != raw:
            raise forked(connection.endpoint, header.block, name)
        header = Header(BlockRef(number, name), header.parent_hash)  # a chain that hashes its headers otherwise
    else:
        connection.names_by_hash = True
    connection.add_canonical([*(one for one in before if one), header.parent_hash, name])
    return header
