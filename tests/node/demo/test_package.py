"""What an installed package holds of what the demo needs."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_every_file_of_the_examples_is_packaged() -> None:
    """The demo also runs from an installed package, so each file under a bundle's hash has to be in it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    assert "examples*" in settings["packages"]["find"]["include"]
    examples = ROOT / "examples"
    packaged = {path for pattern in settings["package-data"]["examples"] for path in examples.glob(pattern)}
    files = {path for path in examples.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert files - packaged == set()
