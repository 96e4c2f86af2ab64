"""Rules that hold for every test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def working_directory_stays() -> Iterator[None]:
    """A test that leaves the process in another folder breaks the tests after it; it is told so."""
    before = os.getcwd()
    yield
    after = os.getcwd()
    os.chdir(before)
    assert after == before
