"""Fixtures of the node's tests."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from config.settings import LogSettings
from node import logs
from node.doctor import worker
from node.doctor.worker import WorkerAnswer
from node.store.engine import Store
from node.store.layout import StateLayout
from tests.node.judging import World
from tests.node.support import GENESIS


@pytest.fixture(autouse=True)
def quiet_logs() -> None:
    """Log like the node does, warnings and worse only."""
    logs.configure(LogSettings(level="warning"))


_ANSWERS: dict[tuple[str, tuple[int, ...]], WorkerAnswer] = {}


@pytest.fixture(autouse=True)
def machine_answers_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the process that imports torch, as every starting node does, only once for the same question.

    The machine stays the same; `test_worker.py`, which is about that process, starts it each time.
    """
    ask = worker._ask

    def remembered(cores: tuple[int, ...]) -> WorkerAnswer:
        question = (sys.executable, tuple(cores))
        if question not in _ANSWERS:
            _ANSWERS[question] = ask(cores)
        return _ANSWERS[question]

    if request.path.name != "test_worker.py":
        monkeypatch.setattr(worker, "_ask", remembered)


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
