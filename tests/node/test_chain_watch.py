"""A chain that is away: told once, seen in the status, and over by itself."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
import structlog

from chain.blocks import BlockRef
from chain.heads import FinalizedHead
from config.errors import CacheonError, ChainError, NetworkError, WalletError
from config.settings import LogSettings, Settings
from node import logs as logs_module
from node.readiness import BLOCK_AGE_LIMIT_SECONDS, ReasonName
from node.services import chain_start
from node.services.chain_start import reach_chain
from node.services.chain_watch import ChainWatch
from node.services.heads import HeadsService, HeadWatch
from node.status import read_status
from node.store.chain_seen import ChainSeen, read_chain_seen, write_chain_seen
from node.store.engine import Store
from tests.node.support import until

AWAY = NetworkError("CHAIN_UNREACHABLE", "No chain endpoint can be reached.")


def head(number: int, *, age: float = 0.0) -> FinalizedHead:
    """A head that was made `age` seconds ago."""
    return FinalizedHead(BlockRef(number, f"0x{number:064x}"), "0x00", int(1000 * (time.time() - age)), 461)


class Chain:
    """Answers with what the test queued."""

    def __init__(self, *answers: Exception | FinalizedHead) -> None:
        self.answers = list(answers)

    async def next_finalized(self) -> FinalizedHead:
        """Return or raise the next answer; after the last one there is silence."""
        if not self.answers:
            await asyncio.Event().wait()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_an_outage_is_two_lines_however_long_it_lasts(store: Store) -> None:
    """A hundred failures of one kind are one line, the return another; heads go on where they stopped."""
    heads, watch = HeadWatch(), ChainWatch(store.layout, 0.0)
    chain = Chain(head(1), *[AWAY] * 100, head(5))
    logs_module.configure(LogSettings(level="info"))
    with structlog.testing.capture_logs() as logs:
        service = asyncio.create_task(HeadsService(chain, heads, watch).run())  # type: ignore[arg-type]
        assert (await heads.wait_beyond(1)).number == 5
        service.cancel()
        await asyncio.wait([service])
    assert [line["event"] for line in logs] == ["chain.away", "chain.back"]
    assert logs[0]["code"] == "CHAIN_UNREACHABLE"


async def test_a_runtime_that_cannot_be_read_stops_heads_with_a_reason(store: Store) -> None:
    """The node stays, is not ready, and its status carries the sentence that names what is missing."""
    missing = ChainError("CHAIN_ABI_MISSING", "Runtime 500 lacks what this version needs: call X.y.")
    heads, watch = HeadWatch(), ChainWatch(store.layout, 0.0)
    service = asyncio.create_task(HeadsService(Chain(head(1), missing), heads, watch).run())  # type: ignore[arg-type]

    async def told() -> bool:
        return any(reason.name is ReasonName.CHAIN_AWAY for reason in read_status(store.layout.root).reasons)

    await until(told)
    status = read_status(store.layout.root)
    assert not status.ready
    assert any("call X.y" in reason.sentence for reason in status.reasons)
    assert status.head_block == 1
    service.cancel()
    await asyncio.wait([service])


async def test_no_new_block_while_the_process_looks_healthy_makes_it_unready(store: Store) -> None:
    """Readiness follows the age of the newest final block by its own clock, not the process."""
    watch = ChainWatch(store.layout, 0.0)
    await watch.heard(head(3, age=1.0))
    status = read_status(store.layout.root)
    assert status.ready
    assert status.block_age_seconds is not None
    assert 0.5 < status.block_age_seconds < BLOCK_AGE_LIMIT_SECONDS
    await watch.heard(head(4, age=BLOCK_AGE_LIMIT_SECONDS + 60))
    status = read_status(store.layout.root)
    assert [reason.name for reason in status.reasons] == [ReasonName.BLOCK_STALE]
    assert not status.ready


async def test_an_unreadable_view_is_none(store: Store) -> None:
    """A damaged file is no view, and what an earlier run said of an outage does not outlive it."""
    write_chain_seen(store.layout, ChainSeen(block=9, away_code="CHAIN_TIMEOUT", away_reason="late", away_ms=1))
    assert ChainWatch(store.layout, 0.0).view == ChainSeen(block=9)
    (store.layout.root / "chain.json").write_bytes(b"{")
    assert read_chain_seen(store.layout) is None
    assert read_status(store.layout.root).head_block == 0


@pytest.mark.parametrize("error", [
    ChainError("SUBNET_NOT_FOUND", "no"), WalletError("HOTKEY_NOT_REGISTERED", "no"),
    ChainError("CHAIN_ABI_MISSING", "no"), ChainError("CHAIN_GENESIS_DIFFERS", "no"),
])
async def test_what_only_a_person_can_mend_ends_the_start(
    store: Store, monkeypatch: pytest.MonkeyPatch, error: CacheonError
) -> None:
    """After any number of passing failures, the error of wrong settings is raised as it is."""
    passing = [AWAY, NetworkError("CHAIN_TIMEOUT", "late"), ChainError("CHAIN_DECODE_FAILED", "?")]
    answers: list[CacheonError] = [*passing, error]

    async def check(*_: object) -> Any:
        raise answers.pop(0)

    monkeypatch.setattr(chain_start.selfcheck, "check_chain", check)
    watch = ChainWatch(store.layout, 0.0)
    with pytest.raises(type(error)) as caught:
        await reach_chain(Settings(), None, None, watch, bound_genesis="")  # type: ignore[arg-type]
    assert caught.value is error
    assert watch.view.away_code == "CHAIN_DECODE_FAILED"
