"""Fixtures of the node's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from node.store.engine import Store
from node.store.layout import StateLayout
from tests.node.support import GENESIS


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """An open store, bound to a chain."""
    opened = await Store.open(StateLayout.at(tmp_path / "state"))
    await opened.bind(GENESIS, 2)
    yield opened
    await opened.close()
