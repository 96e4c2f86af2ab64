"""The era of a signed extrinsic reaches beyond the newest block, however far finality is behind."""

from __future__ import annotations

from typing import Any

import pytest

from chain.publication import step
from tests.chain.test_publication import OPTIONS, target


@pytest.mark.parametrize(("lag", "life"), [(0, 16), (3, 32), (40, 64)])
async def test_the_era_outlives_a_late_finality(make_world: Any, lag: int, life: int) -> None:
    """Sixteen blocks from the newest one at least: an era that began and ended before it could never be used."""
    world = await make_world(finality_lag=lag, tempo=360)
    world.blocks(lag + 2)
    result = await step(world.client, world.validator, world.journal, target(world), OPTIONS)
    assert result.head is not None
    assert result.head.era_end_block == result.block.number + life
    assert result.head.era_end_block >= world.node.chain.head.number + 16
