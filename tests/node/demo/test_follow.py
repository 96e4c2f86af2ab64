"""Watching the node."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.errors import HostError
from node.demo.follow import until_finished
from node.demo.place import Place
from node.demo.reporter import Silent


async def test_a_removed_state_folder_ends_the_demo(tmp_path: Path) -> None:
    """When a clean-up job deletes the folder, the demo says so at once instead of waiting for a node that is lost."""
    with pytest.raises(HostError) as caught:
        await until_finished(Place(tmp_path / "gone"), (), {}, Silent())
    assert caught.value.code == "STATE_NOT_FOUND"
