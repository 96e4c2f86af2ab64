"""The unmodified command line of the SDK against a running node."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from chain.devnet.server import Devnet
from tests.chain.devnet.support import VALIDATOR, address, hot


# A first import of the SDK may take a minute on a loaded machine.
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("subnets list", "(devnet)"),
        ("subnets show 2", "2/256"),
        ("subnets metagraph 2", "commit_reveal_weights_enabled"),
        ("query epoch-status --netuid 2", "next_epoch_start_block"),
        ("query neurons --netuid 2", address(hot(VALIDATOR))),
        ("query weights --netuid 2", "weights"),
        ("query commitments --netuid 2", "commitments"),
        ("query subnet-hyperparameters --netuid 2", "commit_reveal_weights_enabled"),
        (f"query balance --coldkey {address(VALIDATOR)}", "1,000"),
        (f"wallet balance {address(VALIDATOR)}", "1,000"),
    ],
)
async def test_btcli_reads_the_devnet(devnet: Devnet, tmp_path: Path, command: str, expected: str) -> None:
    """What an operator types first works, without the public network and without files of the home folder."""
    child = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / "btcli"),
        *command.split(),
        "--network",
        devnet.url,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "HOME": str(tmp_path), "COLUMNS": "200"},
    )
    output, _ = await asyncio.wait_for(child.communicate(), 600)
    assert child.returncode == 0, output.decode()
    assert expected in output.decode()
