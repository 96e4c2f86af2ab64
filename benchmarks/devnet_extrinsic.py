"""How long one signed extrinsic takes on the local chain in instant mode, seen from the SDK's client.

Run: `python benchmarks/devnet_extrinsic.py`. One extrinsic is: compose, nonce, sign, submit and watch, sealed in its
own block, journalled, announced as final, its block and events read back and decoded. Client and node share one process
and one core, so the number is their sum; the node's own share (the same extrinsics signed beforehand, submitted and
sealed without a socket) stands beside it. Writes `benchmarks/results/devnet_extrinsic.json`. Goal: median at most 5 ms.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

EXTRINSICS = 300
WARM_UP = 20
LOADED_BLOCKS = 5_000
GOAL_MS = 5.0
RESULT = Path(__file__).parent / "results" / "devnet_extrinsic.json"


class Wallet:
    """What the SDK needs of a wallet: one development key for everything."""

    name = hotkey_str = "bench"

    def __init__(self, key: Any) -> None:
        self.coldkey = self.coldkeypub = self.hotkey = key


async def through_the_sdk(state: Path, key: Any) -> list[float]:
    """Return milliseconds per extrinsic through the unmodified SDK."""
    import bittensor

    from chain.devnet.config import DevnetConfig
    from chain.devnet.genesis_document import Genesis
    from chain.devnet.server import Devnet

    config = DevnetConfig(port=0, block_time=0, state=state, genesis=Genesis(balances={key.ss58_address: 1_000}))
    samples = []
    async with (
        Devnet(config) as node,
        bittensor.Subtensor(node.url, fallback_endpoints=[], archive_endpoints=[]) as client,
    ):
        for number in range(WARM_UP + EXTRINSICS):
            start = time.perf_counter()
            result = await client.submit_call(
                bittensor.calls.System.remark(remark=number.to_bytes(4, "big")), Wallet(key), signer="coldkey"
            )
            samples.append((time.perf_counter() - start) * 1_000)
            if not result.success:
                raise SystemExit(result.message)
    return samples[WARM_UP:]


def inside_the_node(state: Path, key: Any) -> list[float]:
    """Return milliseconds to check, execute, journal and seal one extrinsic in a block."""
    from chain.devnet.codec import codec
    from chain.devnet.config import DevnetConfig
    from chain.devnet.startup import open_chain

    call = codec().compose_call("System", "remark", {"remark": b"bench"})
    samples = []
    with open_chain(DevnetConfig(state=state)) as chain:
        runtime = codec()._runtime  # noqa: SLF001 - the SDK's own signing, without its client
        for _ in range(WARM_UP + EXTRINSICS):
            terms = {"era": "00", "nonce": chain.next_nonce(bytes(key.public_key)), "tip": 0, "tip_asset_id": None}
            payload = runtime.signature_payload(
                call, genesis_hash=chain.genesis_hash, era_block_hash=chain.genesis_hash, **terms
            )
            raw, _ = runtime.encode_signed_extrinsic(
                call, public_key=key.public_key, signature=key.sign(bytes(payload)), signature_version=1, **terms
            )
            start = time.perf_counter()
            chain.submit(bytes(raw))
            chain.build()
            samples.append((time.perf_counter() - start) * 1_000)
    return samples[WARM_UP:]


def loading(state: Path) -> float:
    """Return seconds to load a state file of `LOADED_BLOCKS` small blocks."""
    from chain.devnet.config import DevnetConfig
    from chain.devnet.startup import open_chain

    with open_chain(DevnetConfig(state=state)) as chain:
        for _ in range(LOADED_BLOCKS):
            chain.build()
    start = time.perf_counter()
    with open_chain(DevnetConfig(state=state)):
        return time.perf_counter() - start


def summary(samples: list[float]) -> dict[str, float]:
    """Return median and 99th percentile."""
    return {
        "median_ms": round(statistics.median(samples), 3),
        "p99_ms": round(statistics.quantiles(samples, n=100)[98], 3),
    }


def main() -> int:
    """Measure, print a table, write the result."""
    import bittensor_core

    key = bittensor_core.Keypair.create_from_uri("//Bench")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BITTENSOR_RUNTIME_CACHE_DIR"] = f"{folder}/runtime"
        os.environ["BTCLI_TOKEN_SYMBOLS_CACHE"] = f"{folder}/symbols.json"
        state = Path(folder) / "chain.state"
        whole = summary(asyncio.run(through_the_sdk(state, key)))
        own = summary(inside_the_node(state, key))
        load_seconds = loading(Path(folder) / "many.state")
    result = {
        "what": "one signed extrinsic in instant mode with a state file",
        "goal_median_ms": GOAL_MS,
        "through_the_sdk": whole,
        "inside_the_node": own,
        "load_5000_blocks_seconds": round(load_seconds, 3),
        "extrinsics": EXTRINSICS,
        "environment": {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 2),
            "bittensor": version("bittensor"),
        },
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    print(f"through the SDK  {whole['median_ms']:7.3f} ms median  {whole['p99_ms']:7.3f} ms p99   (goal {GOAL_MS} ms)")
    print(f"inside the node  {own['median_ms']:7.3f} ms median  {own['p99_ms']:7.3f} ms p99")
    print(f"load {LOADED_BLOCKS} blocks {load_seconds:7.3f} s")
    return 0 if whole["median_ms"] <= GOAL_MS else 1


if __name__ == "__main__":
    sys.exit(main())
