"""The demo's child processes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from config.errors import NotFoundError
from node.demo.children import Child, running


async def ended(child: Child) -> None:
    """Wait until the child's end is noticed."""
    while True:
        child.check()
        await asyncio.sleep(0.02)


async def test_a_child_that_ends_is_one_error_that_quotes_it(tmp_path: Path) -> None:
    """The error has the child's own last words and its log."""
    async with running("look-up", ["explain", "NO_SUCH_CODE"], tmp_path / "log") as child:
        with pytest.raises(Exception, match=r"look-up ended with exit code 7: error\[CODE_UNKNOWN\]") as caught:
            await ended(child)
    assert getattr(caught.value, "code", "") == "DEMO_PROCESS_ENDED"
    assert not isinstance(caught.value, NotFoundError)
    assert str(tmp_path / "log") in getattr(caught.value, "hint", "")


async def test_settings_of_the_caller_do_not_reach_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CACHEON_ variable of the caller would override the demo's own settings file, so children do not see it."""
    monkeypatch.setenv("CACHEON_CHAIN__NETUID", "77")
    async with running("look-up", ["config", "show"], tmp_path / "log") as child:
        with pytest.raises(Exception, match="exit code 0"):
            await ended(child)
    assert "netuid = 0" in (tmp_path / "log").read_text("utf-8")
