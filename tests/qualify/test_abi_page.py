"""docs/kernel-abi.md."""

from __future__ import annotations

from pathlib import Path

from qualify.content import ALL_STYLES
from qualify.slots.abi_page import _STYLES, page
from qualify.slots.judging import EDGES, document
from qualify.slots.registry import SLOTS

PAGE = Path(__file__).parents[2] / "docs" / "kernel-abi.md"


def test_the_page_is_what_the_slots_say() -> None:
    """Whoever edits a slot, a template or a contract runs `make docs`."""
    assert PAGE.read_text("utf-8") == page(SLOTS)


def test_every_distribution_is_described() -> None:
    """What inputs look like is told for every style and every edge in use."""
    assert set(_STYLES) == {style.name for style in ALL_STYLES}
    assert set(EDGES) == {style.name for slot in SLOTS.values() for style in slot.edges}


def test_what_look_ups_say_of_judging_is_what_the_slots_say() -> None:
    """Edges, controls and profiles that `cacheon slots` shows are those that are asked and tried."""
    assert (PAGE.parents[1] / "config" / "slot_judging.toml").read_text("utf-8") == document()
