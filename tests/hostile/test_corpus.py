"""Every cheat of the corpus is caught or gains nothing, and the controls come out right."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hostile.corpus import NAMES, Stand, by_clock, run_row
from tests.hostile.run import line_of
from tests.hostile.run import stand as make_stand


@pytest.fixture(scope="module")
def stand() -> Iterator[Stand]:
    """One fork server for the whole corpus: a cheat that hurts it would break every later row."""
    with make_stand() as made:
        yield made


ROWS = [pytest.param(name, marks=pytest.mark.quiet) if by_clock(name) else name for name in NAMES]


@pytest.mark.parametrize("name", ROWS)
def test_no_cheat_succeeds(name: str, stand: Stand) -> None:
    """Static intake says what is expected, and the referee holds with static intake switched off."""
    result = run_row(name, stand)
    assert result.ok, line_of(result)
