"""A node that could start: a local chain, a wallet, settings."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chain.devnet.config import DevnetConfig
from chain.devnet.genesis_document import Genesis, NeuronSpec, OwnerSpec
from chain.devnet.server import Devnet
from chain.wallet import address_of_seed, create_wallet
from config.settings import ChainSettings, Settings


@pytest.fixture
async def node_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Settings]:
    """Settings of a node that is registered with a permit; `weak` is registered without, `stranger` not at all."""
    monkeypatch.setenv("BITTENSOR_RUNTIME_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("validator", "weak", "stranger"):
        create_wallet(str(tmp_path / "wallets"), name, "default", seed=f"//{name}")
    neurons = tuple(
        NeuronSpec(address_of_seed(f"//{name}"), address_of_seed(f"//{name}//cold"), permit=name == "validator")
        for name in ("validator", "weak")
    )
    owner = OwnerSpec(address_of_seed("//owner"), address_of_seed("//owner//cold"))
    genesis = Genesis(netuid=2, tempo=200, commit_reveal=False, owner=owner, neurons=neurons)
    async with Devnet(DevnetConfig(port=0, block_time=0.2, genesis=genesis)) as chain:
        yield Settings(
            profile="devnet", state_dir=str(tmp_path / "state"),
            chain=ChainSettings(
                endpoints=(chain.url,), netuid=2, wallet_path=str(tmp_path / "wallets"), wallet="validator",
                start_block=1, poll_seconds=0.05, request_timeout_seconds=5.0,
            ),
        )


def changed(settings: Settings, section: str = "", **changes: Any) -> Settings:
    """Return settings with some values of one section replaced."""
    if not section:
        return msgspec.structs.replace(settings, **changes)
    inner = msgspec.structs.replace(getattr(settings, section), **changes)
    return msgspec.structs.replace(settings, **{section: inner})


def silent_listener() -> socket.socket:
    """Return a socket that accepts connections and never answers."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener
