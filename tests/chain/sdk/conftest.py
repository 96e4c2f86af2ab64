"""The running devnet of the devnet's own tests serves these ones too."""

from __future__ import annotations

from tests.chain.devnet.conftest import devnet, sdk_environment, sdk_home

__all__ = ("devnet", "sdk_environment", "sdk_home")
