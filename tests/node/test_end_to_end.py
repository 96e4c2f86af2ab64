"""One validator on one machine: a real chain protocol, archives over HTTP, sandboxed processes, weights read back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from chain.client import ChainClient
from chain.commitments import submit_commitment
from chain.devnet.config import DevnetConfig
from chain.devnet.genesis_document import Genesis, NeuronSpec, OwnerSpec
from chain.devnet.server import Devnet
from chain.payload import Payload, encode_payload
from chain.wallet import create_wallet, signer_of_seed
from config.settings import ChainSettings, IntakeSettings, QualifySettings, Settings
from intake.content_hash import hash_files
from intake.package import package_bytes
from node.daemon import run_node
from node.receipt_folder import open_folder
from node.status import NodeStatus, SubmissionStatus, all_final, read_status, weights_confirmed
from node.store.layout import StateLayout
from scoring.dsse import verify
from scoring.receipts import WeightsPredicate, read_predicate, recompute_weights
from scoring.walk import walk
from tests.node.support import rmsnorm_bundle

NETUID = 2
ARENA = """
schema = "cacheon.arena.v1"
id = "test-tiny"
kind = "cpu"
timing_method = "outside-monotonic-per-call"
alpha_ppm = 200000
margin_ppm = 0
launches_min = 4
launches_max = 64
blocks_per_launch = 1
calls_per_block = 1
warmup_calls = 1
call_deadline_ms = 5000
attempt_budget_seconds = 90
arm_memory_bytes = 4294967296
arm_threads = 1
implausible_speedup_ppm = 900000000

[[workloads]]
target = "norm.rmsnorm"
dtype = "bfloat16"
shapes = [{ num_tokens = 2200, hidden_dim = 4096 }]
"""
# The stock implementation fills several temporaries of more than 32 MiB per call, each with fresh pages; working in
# small pieces is many times faster, so that the measurement is quick and sure even on a busy machine. (The arena's
# alpha is lenient for the same reason.)
FAST = """
import torch

def rmsnorm(x, weight, out, eps):
    width = x.shape[-1]
    scale = weight.float()
    work = torch.empty((64, width), dtype=torch.float32)
    for start in range(0, x.shape[0], 64):
        piece = x[start : start + 64]
        wide = work[: piece.shape[0]]
        wide.copy_(piece)
        norm = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        wide.mul_(norm.square_().div_(width).add_(eps).rsqrt_()).mul_(scale)
        out[start : start + 64].copy_(wide)
"""
WRONG = """
def rmsnorm(x, weight, out, eps):
    out.copy_(x)
"""


KERNELS = {"fast": FAST, "copy": FAST, "wrong": WRONG, "lost": FAST.replace("64", "32")}
BUNDLES = {name: rmsnorm_bundle(name, kernel) for name, kernel in KERNELS.items()}


class Town:
    """Chain, archive host and wallets of one test."""

    def __init__(self, root: Path, chain_url: str, host_url: str) -> None:
        self.chain_url, self.host_url = chain_url, host_url
        arena = root / "arena.toml"
        arena.write_text(ARENA)
        self.settings = Settings(
            profile="devnet", state_dir=str(root / "node"),
            chain=ChainSettings(
                endpoints=(chain_url,), netuid=NETUID, wallet_path=str(root / "wallets"), wallet="validator",
                hotkey="default", start_block=1, poll_seconds=0.1, rpc_per_second=1000,
            ),
            intake=IntakeSettings(transport_attempts=3, retry_base_seconds=0.1, retry_cap_seconds=0.2),
            qualify=QualifySettings(arena=str(arena)),
        )

    async def commit(self, name: str, *, reveal_in_blocks: int) -> None:
        """Commit a bundle by the miner of the same name."""
        payload = Payload(hash_files(BUNDLES[name]), f"{self.host_url}/{name}.tar.gz")
        async with ChainClient([self.chain_url], rpc_per_second=1000) as client:
            await submit_commitment(
                client, signer_of_seed(f"//{name}"), NETUID, encode_payload(payload, allow_loopback_http=True),
                profile="devnet", reveal_in_blocks=reveal_in_blocks, poll_seconds=0.05,
            )


@pytest.fixture
async def town(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Town]:
    """A fast devnet with one validator and four miners, and a host with their archives."""
    monkeypatch.setenv("BITTENSOR_RUNTIME_CACHE_DIR", str(tmp_path / "cache"))
    names = ["validator", *BUNDLES]
    wallets = {
        name: create_wallet(str(tmp_path / "wallets"), name, "default", seed=f"//{name}") for name in names
    }
    owner = create_wallet(str(tmp_path / "wallets"), "owner", "default", seed="//owner")
    neurons = tuple(
        NeuronSpec(wallets[name].hotkey_address, wallets[name].coldkey_address, permit=name == "validator", stake=10)
        for name in names
    )
    genesis = Genesis(
        netuid=NETUID, tempo=15, commit_reveal=True, reveal_period=1,
        owner=OwnerSpec(owner.hotkey_address, owner.coldkey_address), neurons=neurons,
    )
    async with contextlib.AsyncExitStack() as stack:
        chain = await stack.enter_async_context(Devnet(DevnetConfig(port=0, block_time=0.2, genesis=genesis)))
        runner = web.AppRunner(_host())
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        assert site._server is not None
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        yield Town(tmp_path, chain.url, f"http://127.0.0.1:{port}")


def _host() -> web.Application:
    async def serve(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        return web.Response(body=package_bytes(BUNDLES["fast" if name == "lost" else name]))

    app = web.Application()
    app.router.add_get("/{name}.tar.gz", serve)
    return app


async def node_until(town: Town, done: object) -> NodeStatus:
    """Run the node until `done(status)` holds, then stop it and return the status."""
    stop, ready = asyncio.Event(), asyncio.Event()
    node = asyncio.create_task(run_node(town.settings, stop=stop, ready=ready))
    try:
        while True:
            await asyncio.sleep(0.1)
            if node.done():
                node.result()
            if ready.is_set():
                status = await asyncio.to_thread(read_status, town.settings.state_dir)
                if done(status):  # type: ignore[operator]
                    return status
    finally:
        stop.set()
        await node


@pytest.mark.timeout(240)
async def test_from_reveal_to_weights(town: Town) -> None:
    """A faster kernel is crowned and paid; a copy, a wrong one and foreign bytes fail; a restart changes nothing."""
    await town.commit("fast", reveal_in_blocks=4)
    await asyncio.gather(*(town.commit(name, reveal_in_blocks=8) for name in ("copy", "wrong", "lost")))
    status = await node_until(town, lambda now: all_final(now, 4) and weights_confirmed(now))
    by_name = {name: _by_hash(status, name) for name in BUNDLES}
    assert {name: (one.state, one.code, one.blame) for name, one in by_name.items()} == {
        "fast": ("settled", "", ""),
        "copy": ("failed", "COPY_OF_EARLIER", "miner"),
        "wrong": ("failed", "WRONG_OUTPUT", "miner"),
        "lost": ("failed", "BUNDLE_HASH_MISMATCH", "miner"),
    }
    fast = by_name["fast"]
    assert by_name["copy"].earlier_id == fast.id
    assert by_name["lost"].seen_hash == fast.content_hash
    assert [attempt.role for attempt in fast.attempts if attempt.outcome == "PASS"] == ["primary", "reproduction"]
    assert fast.speedup_ppm == min(attempt.lower_ppm for attempt in fast.attempts if attempt.outcome == "PASS")
    assert status.weights == ((fast.hotkey, 1_000_000),)
    assert fast.weight_ppm == 1_000_000
    _check_receipt(town, status)
    epoch = status.epoch
    again = await node_until(town, lambda now: now.epoch > epoch and now.publication.status == "confirmed")
    assert [(one.id, one.state) for one in again.submissions] == [(one.id, one.state) for one in status.submissions]
    assert len(again.crowns) == 1
    epochs = [one.epoch for one in again.publications]
    assert epochs == sorted(set(epochs))
    assert again.running_pid


def _by_hash(status: NodeStatus, name: str) -> SubmissionStatus:
    wanted = hash_files(BUNDLES[name])
    return next(one for one in status.submissions if one.content_hash == wanted)


def _check_receipt(town: Town, status: NodeStatus) -> None:
    layout = StateLayout.at(town.settings.state_dir)
    key = bytes.fromhex((layout.keys / "receipt.pub").read_text())
    paid = next(one for one in reversed(status.publications) if one.status == "confirmed")
    statement = verify(Path(paid.receipt).read_bytes(), [key])
    assert recompute_weights(read_predicate(statement, WeightsPredicate)).vector.entries == status.weights
    folder = open_folder(layout.root)
    anchor = folder.anchor(hotkey=signer_of_seed("//validator").ss58_address)  # which vouched by itself
    found = walk(folder.published(anchor), folder)
    assert found.projection.vector.entries == status.weights
    assert [[one.regraded for one in step.verdicts] for step in found.crowns] == [[True, True]]
    assert all(step.target_known for step in found.crowns)
