"""A wrong clock seals nothing: the chain would drop it in silence, or open it before its time."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from chain import clock
from chain.abi import Storage
from chain.clock import clock_gap, require_clock
from chain.publication import PublicationOptions, step
from config.errors import HostError
from tests.chain.test_publication import target

OPTIONS = PublicationOptions(netuid=2, profile="finney")


async def set_clock(world: Any, monkeypatch: pytest.MonkeyPatch, ahead: float) -> None:
    """Put this machine's clock so many seconds ahead of the newest block."""
    (milliseconds,) = await world.client.read(await world.client.head(), [(Storage.TIMESTAMP, [])])
    monkeypatch.setattr(clock, "time", SimpleNamespace(time=lambda: int(milliseconds) / 1000 + ahead))


@pytest.mark.parametrize(("ahead", "good"), [(0, True), (36, True), (37, False), (-36, True), (-37, False)])
async def test_three_blocks_of_age_are_in_order(
    world: Any, monkeypatch: pytest.MonkeyPatch, ahead: float, good: bool
) -> None:
    """A block of 12 seconds may be three of them old, or in the future; on a devnet no clock matters."""
    monkeypatch.setattr(world.client, "block_seconds", lambda: _of(12.0))
    await set_clock(world, monkeypatch, ahead)
    gap = await clock_gap(world.client, await world.client.head(), "finney")
    assert gap.is_too_wide is not good
    await require_clock(world.client, "devnet")
    if good:
        await require_clock(world.client, "test")
        return
    with pytest.raises(HostError) as caught:
        await require_clock(world.client, "test")
    assert caught.value.code == "CLOCK_DIFFERS"
    assert "37 s " + ("ahead of" if ahead > 0 else "behind") in caught.value.message


async def _of(value: float) -> float:
    return value


@pytest.mark.parametrize("ahead", [3600.0, -3600.0])
async def test_weights_wait_for_a_clock_that_is_right(
    make_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    """An hour off nothing is signed, with a reason that says how far and how far it may be; then it goes out."""
    world = await make_world(commit_reveal=True, tempo=360)
    world.blocks(3)
    await set_clock(world, monkeypatch, ahead)
    result = await step(world.client, world.validator, world.journal, target(world), OPTIONS)
    assert result.waiting is not None
    assert result.waiting.code == "CLOCK_DIFFERS"
    assert result.waiting.current.startswith("3600 s ")
    assert result.waiting.needed.startswith("at most ")
    assert (result.head, await world.extrinsics_of(world.validator)) == (None, 0)
    await set_clock(world, monkeypatch, 1.0)
    result = await step(world.client, world.validator, world.journal, target(world), OPTIONS)
    assert result.head is not None
    assert result.head.commit_reveal


async def test_plain_weights_need_no_clock(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without commit-reveal nothing is sealed."""
    await set_clock(world, monkeypatch, 3600.0)
    result = await step(world.client, world.validator, world.journal, target(world), OPTIONS)
    assert result.head is not None
    assert result.head.status == "submitted"
