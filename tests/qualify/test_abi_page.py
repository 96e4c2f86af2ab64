"""docs/kernel-abi.md."""

from __future__ import annotations

from pathlib import Path

from qualify.content import ALL_STYLES
from qualify.slots.abi_page import _EDGES, _STYLES, page
from qualify.slots.registry import SLOTS

PAGE = Path(__file__).parents[2] / "docs" / "kernel-abi.md"


def test_the_page_is_what_the_slots_say() -> None:
    """Whoever edits a slot, a template or a contract runs `make docs`."""
    assert PAGE.read_text("utf-8") == page(SLOTS)


def test_every_distribution_is_described() -> None:
    """What inputs look like is told for every style and every edge in use."""
    assert set(_STYLES) == {style.name for style in ALL_STYLES}
    assert set(_EDGES) == {style.name for slot in SLOTS.values() for style in slot.edges}
