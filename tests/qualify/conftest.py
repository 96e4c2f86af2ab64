"""Fixtures of the qualification tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qualify.referee import PRELOAD, run_attempt
from qualify.sandbox.client import Zygote
from scoring.attempt import Attempt
from tests.qualify.support import describe_bundle, make_request, write_arena


@pytest.fixture(scope="session")
def fork_server() -> Iterator[Zygote]:
    """One fork server for all attempts of the test run; nothing foreign ever runs in it."""
    with Zygote.start(preload=PRELOAD) as zygote:
        yield zygote


@pytest.fixture
def arena(tmp_path: Path) -> str:
    """A tiny arena of two launches."""
    return write_arena(tmp_path)


@pytest.fixture
def bundle(tmp_path: Path) -> Callable[[str], Path]:
    """Write a one-file silu bundle whose module has the given text, and return its tree."""

    def write(text: str) -> Path:
        tree = tmp_path / "bundle"
        (tree / "kernels").mkdir(parents=True)
        (tree / "kernels" / "k.py").write_text(text)
        (tree / "manifest.toml").write_text(
            'bundle_id = "test"\nabi_version = "cacheon-op-abi-v0"\n'
            '[competition]\ntarget = "activation.silu_and_mul"\nmode = "slot"\n'
            '[[ops]]\nslot = "activation.silu_and_mul"\nsource = "kernels/k.py"\nentry = "silu_and_mul"\n'
        )
        return tree

    return write


@pytest.fixture
def attempt(tmp_path: Path, arena: str, fork_server: Zygote) -> Callable[[Path], Attempt]:
    """Run one attempt of a bundle tree in the tiny arena."""

    def run(tree: Path) -> Attempt:
        reference = describe_bundle(tree, tmp_path / "report.json")
        return run_attempt(make_request(reference, arena), lambda event: None, fork_server)

    return run
