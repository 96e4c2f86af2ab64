"""Every cheat of the corpus is detected or harmless, and the controls come out right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from qualify.referee import PRELOAD
from qualify.sandbox.client import Zygote
from tests.hostile.corpus import NAMES, Result, run_row
from tests.qualify.support import write_arena


@pytest.fixture(scope="module")
def fork_server() -> Iterator[Zygote]:
    """One fork server for the whole corpus: a cheat that hurts it would break every later row."""
    with Zygote.start(preload=PRELOAD) as zygote:
        yield zygote


@pytest.fixture(scope="module")
def results() -> Iterator[list[Result]]:
    """Collect the rows and print the table when the module is done (shown with -s or on failure)."""
    rows: list[Result] = []
    yield rows
    for row in rows:
        print(f"{row.name:30} {row.row:10} {row.status:16} {row.code:20} {row.detail[:60]}")


@pytest.mark.parametrize("name", NAMES)
def test_no_cheat_succeeds(name: str, tmp_path: Path, fork_server: Zygote, results: list[Result]) -> None:
    """The row ends in one of its expected codes, or does no harm where that is what is expected."""
    result = run_row(name, write_arena(tmp_path, deadline_ms=500, memory=1 << 30), tmp_path, fork_server)
    results.append(result)
    assert result.status in ("detected", "harmless"), result
