"""The pages as part of a running node."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from chain.devnet.config import DevnetConfig
from chain.devnet.genesis_document import Genesis, NeuronSpec, OwnerSpec
from chain.devnet.server import Devnet
from chain.wallet import address_of_seed, create_wallet
from config.errors import HostError
from config.settings import ChainSettings, HttpSettings, Settings
from node import daemon
from node.daemon import run_node
from node.http.listener import bind, url_of
from tests.node.support import until


@pytest.fixture
async def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Settings]:
    """Settings of a node that serves pages on a free port."""
    monkeypatch.setenv("BITTENSOR_RUNTIME_CACHE_DIR", str(tmp_path / "cache"))
    create_wallet(str(tmp_path / "wallets"), "validator", "default", seed="//validator")
    neuron = NeuronSpec(address_of_seed("//validator"), address_of_seed("//validator//cold"), permit=True, stake=10)
    owner = OwnerSpec(address_of_seed("//owner"), address_of_seed("//owner//cold"))
    genesis = Genesis(netuid=2, tempo=20, commit_reveal=False, owner=owner, neurons=(neuron,))
    async with Devnet(DevnetConfig(port=0, block_time=0.2, genesis=genesis)) as chain:
        yield Settings(
            profile="devnet",
            state_dir=str(tmp_path / "state"),
            http=HttpSettings(listen="127.0.0.1:0"),
            chain=ChainSettings(
                endpoints=(chain.url,),
                netuid=2,
                wallet_path=str(tmp_path / "wallets"),
                wallet="validator",
                start_block=1,
                poll_seconds=0.05,
            ),
        )


async def test_a_running_node_answers(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages are served while the node runs, `/readyz` knows its layers and its chain, and the address is free again
    afterwards."""
    bound: list[socket.socket] = []

    def remember(listen: str) -> socket.socket:
        bound.append(bind(listen))
        return bound[0]

    monkeypatch.setattr(daemon, "bind", remember)
    stop, serving = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(run_node(settings, stop=stop, ready=serving))
    waiting = asyncio.create_task(serving.wait())
    await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if running.done():
        await running
    url = url_of(bound[0])
    async with aiohttp.ClientSession() as session, session.get(f"{url}/api/v1/submissions") as response:
        document = json.loads(await response.read())
    assert (document["ok"], document["data"]["netuid"]) == (True, 2)
    async with aiohttp.ClientSession() as session:

        async def head_seen() -> bool:
            async with session.get(f"{url}/readyz") as response:
                ready.update(json.loads(await response.read())["data"], status=response.status)
            return ready["head_block"] is not None

        ready: dict[str, Any] = {}
        await until(head_seen)
    assert (ready["status"], ready["reasons"]) == (200, [])
    assert {"userns", "seccomp", "verify"} <= set(ready["sandbox"]["present"])
    assert ready["registration"] == {"registered": True, "uid": 0, "validator_permit": True, "observing": False}
    stop.set()
    await running
    with bind(url.removeprefix("http://")):
        pass


async def test_a_taken_address_keeps_the_node_from_starting(settings: Settings) -> None:
    """One error at start, before anything serves."""
    with bind("127.0.0.1:0") as taken:
        listen = url_of(taken).removeprefix("http://")
        with pytest.raises(HostError) as caught:
            await run_node(msgspec.structs.replace(settings, http=HttpSettings(listen=listen)))
    assert caught.value.code == "HTTP_LISTEN_FAILED"
