"""Fixtures of the node's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from config.settings import LogSettings
from node import logs
from node.store.engine import Store
from node.store.layout import StateLayout
from tests.node.judging import World
from tests.node.support import GENESIS


@pytest.fixture(autouse=True)
def quiet_logs() -> None:
    """Log like the node does, warnings and worse only."""
    logs.configure(LogSettings(level="warning"))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """An open store, bound to a chain."""
    opened = await Store.open(StateLayout.at(tmp_path / "state"))
    await opened.bind(GENESIS, 2)
    yield opened
    await opened.close()


@pytest.fixture(name="judging")
def judging_world(store: Store, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world whose attempts are made up."""
    made = World(store)
    made.install(monkeypatch)
    return made
