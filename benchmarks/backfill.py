"""How long reading the reveals of 5,000 finalized blocks takes after an outage, and how many requests.

Run: `python benchmarks/backfill.py`. The chain is a devnet in a process of its own with 1,000 reveals in 5,000 blocks.
The throttle is that of the devnet profile in the first case and that of the public networks in the second. The steady
state follows 200 more blocks one by one. Writes `benchmarks/results/backfill.json`. Goal: 5,000 blocks in less than
60 s; at most 4 requests per finalized block without reveals for the whole node, of which the reveals are a part.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import random
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

BLOCKS = 5_000
REVEALS = 1_000
STEADY_BLOCKS = 200
GOAL_SECONDS = 60.0
RESULT = Path(__file__).parent / "results" / "backfill.json"


def build_chain(state: Path) -> None:
    """Make the chain: reveals spread over the blocks, by sixteen hotkeys."""
    from chain.devnet.config import DevnetConfig
    from chain.devnet.genesis_document import Genesis, NeuronSpec
    from chain.devnet.startup import open_chain
    from tests.chain.devnet.support import address
    from tests.soak.miners import Miners

    rng = random.Random(7)
    miners = Miners(16, 0.1, rng)
    neurons = tuple(NeuronSpec(address(uri), address("//cold")) for uri in miners.uris)
    config = DevnetConfig(port=0, manual=True, state=state, genesis=Genesis(tempo=50, neurons=neurons))
    with open_chain(config) as chain:
        due = 0.0
        while chain.head.number < BLOCKS:
            due += REVEALS / BLOCKS
            if due >= 1:
                due -= miners.commit(chain, int(chain.view().get("SubtensorModule", "SubnetEpochIndex", 2)))
            chain.build()


async def serve(state: Path) -> tuple[asyncio.subprocess.Process, str]:
    """Start the chain's process and return it with its address."""
    import sys

    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "chain.devnet", "--manual", "--port", "0", "--state", str(state),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    return process, json.loads(await process.stdout.readline())["url"]


async def back_fill(url: str, per_second: int, cache: Path) -> dict[str, Any]:
    """Read everything from block 1, as the node does after an outage."""
    from chain.client import ChainClient
    from chain.reveals import RevealReader

    async with ChainClient([url], rpc_per_second=per_second, runtime_cache_dir=cache) as client:
        await client.finalized_head()
        reader, cursor, reveals, passes = RevealReader(client, 2), None, 0, 0
        before, start = client.rpc_calls, time.perf_counter()
        while True:
            scan = await reader.scan(cursor, 1)
            cursor, reveals, passes = scan.cursor, reveals + len(scan.reveals), passes + 1
            if scan.caught_up:
                break
        seconds, calls = time.perf_counter() - start, client.rpc_calls - before
    return {
        "rpc_per_second": per_second, "seconds": round(seconds, 2), "blocks": scan.head.number, "reveals": reveals,
        "passes": passes, "requests": calls, "requests_per_block": round(calls / scan.head.number, 3),
    }


async def steady_state(url: str, cache: Path) -> dict[str, Any]:
    """Follow blocks without reveals one by one."""
    from chain.client import ChainClient
    from chain.reveals import RevealReader

    async with ChainClient([url], rpc_per_second=100_000, runtime_cache_dir=cache) as client:
        reader, cursor = RevealReader(client, 2, max_blocks=10_000), None
        for _ in range(20):  # the last sealed reveals open
            await ask(client, "dev_newBlock")
        cursor = (await reader.scan(cursor, 1)).cursor
        before = client.rpc_calls
        for _ in range(STEADY_BLOCKS):
            await ask(client, "dev_newBlock")
            cursor = (await reader.scan(cursor, 1)).cursor
        calls = client.rpc_calls - before - STEADY_BLOCKS  # without the requests that make blocks
    return {"blocks": STEADY_BLOCKS, "requests_per_block": round(calls / STEADY_BLOCKS, 3)}


async def ask(client: Any, method: str, *params: Any) -> Any:
    """Ask the chain's process directly."""
    return await (await client._connected()).request(method, params)  # noqa: SLF001 - the client has no way to make blocks


async def measure(folder: Path) -> dict[str, Any]:
    """Return all numbers."""
    state = folder / "chain.state"
    await asyncio.to_thread(build_chain, state)
    process, url = await serve(state)
    try:
        return {
            "what": f"reveals of {BLOCKS} finalized blocks read after an outage",
            "goal_seconds": GOAL_SECONDS,
            "devnet_profile": await back_fill(url, 500, folder / "cache"),
            "default_throttle": await back_fill(url, 50, folder / "cache"),
            "steady_state_of_reveals": await steady_state(url, folder / "cache"),
        }
    finally:
        process.terminate()
        await process.wait()


def main() -> None:
    """Measure and write the result."""
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(measure(Path(folder)))
    result["environment"] = {
        "python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1), "bittensor": version("bittensor"),
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    if result["devnet_profile"]["seconds"] >= GOAL_SECONDS:
        raise SystemExit("the goal is missed")


if __name__ == "__main__":
    main()
