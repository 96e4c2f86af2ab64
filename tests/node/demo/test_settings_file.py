"""The settings file that the demo writes for its node."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from node.demo.place import PLAN_SCHEMA, Place, Plan
from node.demo.settings_file import write_node_settings


@pytest.mark.parametrize("name", ["with space", "\u00fc\u2603", "\U0001f600", 'quote"back\\slash', "tab\tdel\x7f"])
def test_any_folder_name_survives(tmp_path: Path, name: str) -> None:
    """Whatever the state folder is called, the node reads the same path from its settings."""
    place = Place(tmp_path / name)
    place.create()
    write_node_settings(place, Plan(PLAN_SCHEMA, 20_000, 20_001))
    assert tomllib.loads(place.node_settings.read_text("utf-8"))["state_dir"] == str(place.node_state)
