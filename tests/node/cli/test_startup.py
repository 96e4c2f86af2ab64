"""What `cacheon` loads before it knows what to do."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "botocore",
    "torch",
    "triton",
    "cuda",
    "bittensor",
    "bittensor_core",
    "sqlalchemy",
    "alembic",
    "aiohttp",
    "numpy",
)
PROBE = """
import sys
from node.cli.main import run
code = run(sys.argv[1:])
print("LOADED", *sorted({name.partition(".")[0] for name in sys.modules}))
raise SystemExit(code)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("--version",),
        ("node", "--help"),
        ("node", "run", "--help"),
        ("chain-submit", "--help"),
        ("chain-publish", "--help"),
        ("verify", "--help"),
        ("bench", "--help"),
        ("demo", "--help"),
        ("devnet", "--help"),
        ("explain", "USAGE"),
        ("targets",),
        ("slots",),
        ("init", "--help"),
        ("init", ".", "--target", "no.such.target"),
        ("config", "show"),
        ("no-such-command",),
    ],
)
def test_start_up_loads_nothing_heavy(arguments: tuple[str, ...]) -> None:
    """Help, look-ups and refusals load neither torch nor CUDA nor the chain SDK nor the store."""
    done = subprocess.run([sys.executable, "-c", PROBE, *arguments], capture_output=True, text=True, timeout=60)
    loaded = next(line for line in done.stdout.splitlines() if line.startswith("LOADED")).split()
    assert "typer" in loaded
    assert not set(HEAVY) & set(loaded)
