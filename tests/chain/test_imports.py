"""What importing this room costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIGHT = (
    "chain.abi",
    "chain.blocks",
    "chain.client",
    "chain.commitments",
    "chain.hyperparameters",
    "chain.metagraph",
    "chain.payload",
    "chain.publication",
    "chain.publication_record",
    "chain.reveals",
    "chain.sealing",
    "chain.wallet",
    "chain.weights",
    "config.urls",
)


@pytest.mark.parametrize("heavy", ["bittensor", "bittensor_core", "websockets", "aiohttp", "torch", "sqlalchemy"])
def test_importing_the_room_imports_no_heavy_library(heavy: str) -> None:
    """The SDK is imported when a connection is opened or a key is touched, never by an import."""
    code = f"import sys; {'; '.join(f'import {name}' for name in LIGHT)}; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
