"""`cacheon devnet`: serve a local chain."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from chain.devnet.config import DevnetConfig
from chain.devnet.genesis_document import load_genesis
from config.errors import ExitCode
from node.cli.output import Output, write_raw


def run(*, port: int, block_time: float, finality_lag: int, state: str | None, genesis: str | None) -> int:
    """Serve until interrupted or told to stop. Raises `HostError` (PORT_IN_USE), `ConfigurationError`."""
    config = DevnetConfig(
        port=port,
        block_time=block_time,
        finality_lag=finality_lag,
        state=Path(state).absolute() if state else None,
        genesis=load_genesis(Path(genesis)) if genesis else None,
    )
    asyncio.run(_serve(config, Output("devnet")))
    return int(ExitCode.OK)


async def _serve(config: DevnetConfig, output: Output) -> None:
    from chain.devnet.server import Devnet

    told_to_stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told_to_stop.set)
    async with Devnet(config) as node:
        blocks = f"a block every {config.block_time:g} s" if config.timed else "a block per extrinsic"
        write_raw(f"{node.url}\n".encode())
        output.note(f"local chain: {blocks}, now at block {node.chain.head.number}; stop with Ctrl-C")
        ended = [asyncio.create_task(node.wait()), asyncio.create_task(told_to_stop.wait())]
        try:
            done, _ = await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in ended:
                task.cancel()
        for task in done:
            task.result()
