"""Fixtures of the sandbox tests: one warm fork server for the session, and things to attack."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))  # tests are imported by path; their helpers are plain modules

import sandbox_battery

from qualify.sandbox.client import Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """A fork server that knows the hostile entries."""
    with sandbox_battery.start_zygote() as server:
        yield server


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may pass through; pytest's own belong to one user alone."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def facts(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A listener, an abstract socket and a secret, and where they are."""
    with sandbox_battery.targets(tmp_path) as found:
        yield found
