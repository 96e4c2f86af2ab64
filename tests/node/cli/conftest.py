"""Runs the real command in a subprocess."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Ran:
    """What one process left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON line on standard output."""
        lines = self.out.splitlines()
        assert len(lines) == 1, self.out
        document: dict[str, Any] = json.loads(lines[0])
        return document


RunCli = Callable[..., Ran]


def plain_environment(**extra: str) -> dict[str, str]:
    """The caller's environment without anything that would change settings or colour."""
    unwanted = ("CACHEON_", "NO_COLOR", "FORCE_COLOR")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(unwanted)}
    return kept | extra


@pytest.fixture
def cli(tmp_path: Path) -> RunCli:
    """Run `cacheon ARGUMENTS...` in a subprocess, inside `tmp_path`."""

    def run(*arguments: str, env: dict[str, str] | None = None, timeout: float = 60) -> Ran:
        return run_process([sys.executable, "-m", "node.cli.main", *arguments], tmp_path, env, timeout)

    return run


def run_process(command: Sequence[str], folder: Path, env: dict[str, str] | None, timeout: float) -> Ran:
    done = subprocess.run(
        command,
        cwd=folder,
        env=plain_environment(**(env or {})),
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )
    return Ran(done.returncode, done.stdout, done.stderr)
