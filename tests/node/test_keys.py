"""Nodes without a key of their own: one that observes, and one whose key lies in a signer process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from chain.client import ChainClient
from chain.devnet.config import DevnetConfig
from chain.devnet.genesis_document import Genesis, NeuronSpec, OwnerSpec
from chain.devnet.server import Devnet
from chain.signer_server import ChainRuntime, SignerServer
from chain.wallet import address_of_seed, signer_of_seed
from config.errors import CacheonError
from config.settings import ChainSettings, Settings
from node.daemon import run_node
from node.status import NodeStatus, read_status
from tests.node.support import until

pytestmark = pytest.mark.timeout(600)
NETUID = 2


@pytest.fixture
async def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Settings]:
    """Settings of a node that names no wallet, on a devnet with one validator."""
    monkeypatch.setenv("BITTENSOR_RUNTIME_CACHE_DIR", str(tmp_path / "cache"))
    neuron = NeuronSpec(address_of_seed("//validator"), address_of_seed("//validator//cold"), permit=True, stake=10)
    burn = NeuronSpec(address_of_seed("//owner"), address_of_seed("//owner//cold"))  # paid while nothing is crowned
    owner = OwnerSpec(address_of_seed("//owner"), address_of_seed("//owner//cold"))
    genesis = Genesis(
        netuid=NETUID,
        tempo=20,
        commit_reveal=False,
        weights_rate_limit=1,
        owner=owner,
        neurons=(neuron, burn),
        fixed_permits=True,
    )
    async with Devnet(DevnetConfig(port=0, block_time=0.2, genesis=genesis)) as chain:
        yield Settings(
            profile="devnet",
            state_dir=str(tmp_path / "state"),
            chain=ChainSettings(
                endpoints=(chain.url,),
                netuid=NETUID,
                wallet_path=str(tmp_path / "none"),
                wallet="",
                start_block=1,
                poll_seconds=0.05,
            ),
        )


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[None]:
    """A node that serves until the block ends."""
    stop, ready = asyncio.Event(), asyncio.Event()
    node = asyncio.create_task(run_node(settings, stop=stop, ready=ready))
    waiting = asyncio.create_task(ready.wait())
    try:
        await asyncio.wait({node, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if node.done():
            await node
        yield
    finally:
        waiting.cancel()
        stop.set()
        await node


async def status_of(settings: Settings) -> NodeStatus:
    """What the node knows now."""
    return await asyncio.to_thread(read_status, settings.state_dir)


async def test_a_node_without_a_key_observes(settings: Settings) -> None:
    """It follows the chain and says that it publishes nothing; nothing is asked of a wallet."""
    async with running(settings):

        async def follows() -> bool:
            return (await status_of(settings)).cursor_block > 5

        async with asyncio.timeout(500):
            await until(follows)
        status = await status_of(settings)
    assert status.ready
    assert [reason.name for reason in status.reasons] == ["observing"]
    assert status.publications == ()


async def test_weights_are_signed_by_another_process(settings: Settings, tmp_path: Path) -> None:
    """The node's weights are confirmed on the chain although it has no key, by one signature for one publication."""
    signed: list[str] = []
    path = tmp_path / "signer.sock"
    listening = asyncio.Event()
    async with ChainClient.from_settings(settings.chain) as client:
        server = SignerServer(
            signer_of_seed("//validator"),
            NETUID,
            ChainRuntime(client),
            frozenset({os.geteuid()}),
            lambda event, **keys: signed.append(f"{event} {keys.get('call', keys)}"),
        )
        serving = asyncio.create_task(server.serve(path, listening.set))
        await listening.wait()
        chain = msgspec.structs.replace(settings.chain, signer_socket=str(path))
        async with running(msgspec.structs.replace(settings, chain=chain)):

            async def confirmed() -> bool:
                return any(one.status == "confirmed" for one in (await status_of(settings)).publications)

            async with asyncio.timeout(500):
                await until(confirmed)
            status = await status_of(settings)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    assert "observing" not in [reason.name for reason in status.reasons]
    vouched = [one for one in signed if one == "signer.signed key binding"]  # once, for the key of the receipts
    assert len(vouched) <= 1
    assert set(signed) - set(vouched) == {"signer.signed SubtensorModule.set_mechanism_weights"}


async def test_a_signer_that_is_away_keeps_the_node_from_starting(settings: Settings, tmp_path: Path) -> None:
    """A node that is to publish says at once that it could not."""
    chain = msgspec.structs.replace(settings.chain, signer_socket=str(tmp_path / "nobody.sock"))
    with pytest.raises(CacheonError) as caught:
        await run_node(msgspec.structs.replace(settings, chain=chain))
    assert caught.value.code == "SIGNER_UNREACHABLE"
