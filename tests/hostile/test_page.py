"""The corpus covers the catalogue, and docs/cheats.md says what the corpus says."""

from __future__ import annotations

import pytest

from tests.hostile.corpus import CONTROL, CORPUS, NAMES, OWN, expected_of
from tests.hostile.page import folders_by_row, load_catalogue, render


def test_every_row_that_can_run_here_has_a_folder() -> None:
    """Static and processor rows have one; a GPU row without one says why."""
    folders = folders_by_row()
    for row in load_catalogue():
        assert bool(folders.get(row.id)) != bool(row.absent), row.id
        assert not row.absent or row.tier == "G", row.id


def test_every_folder_names_known_rows() -> None:
    """A folder covers rows of the catalogue, or is our own invention with its defence, or a control."""
    known = {row.id for row in load_catalogue()}
    for name in NAMES:
        expected = expected_of(name)
        assert set(expected.rows) <= known | {OWN, CONTROL}, name
        assert bool(expected.defence) == (OWN in expected.rows), name
        assert expected.intake == tuple(sorted(expected.intake)), name


def test_rows_are_listed_once() -> None:
    """The catalogue has one row per number."""
    ids = [row.id for row in load_catalogue()]
    assert len(ids) == len(set(ids))


def test_the_page_is_up_to_date() -> None:
    """`make docs` writes what is in the repository."""
    page = CORPUS.parents[1] / "docs" / "cheats.md"
    assert page.read_text() == render(), "run: make docs"


@pytest.mark.parametrize("name", NAMES)
def test_folders_hold_what_a_miner_would_send(name: str) -> None:
    """Every folder has a manifest of its own bundle."""
    manifest = (CORPUS / name / "bundle" / "manifest.toml").read_text()
    assert f'bundle_id = "hostile-{name.replace("_", "-")}"' in manifest
