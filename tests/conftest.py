"""Rules that hold for every test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def working_directory_stays() -> Iterator[None]:
    """A test that leaves the process in another folder breaks the tests after it; it is told so."""
    before = os.getcwd()
    yield
    after = os.getcwd()
    os.chdir(before)
    assert after == before


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With several workers: see `tests/turns.py`."""
    from tests.turns import Turns

    return Turns(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each worker collects all tests, in the order in which they are handed out."""
    from tests.turns import arms_are_known, in_turn, quiet_is_found

    arms_are_known(items)
    quiet_is_found(items)
    if hasattr(config, "workerinput"):
        in_turn(items)
