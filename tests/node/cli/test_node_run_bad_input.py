"""Everything that keeps a node from starting is one error with code, sentence, hint and the right exit code."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.node.cli.conftest import Ran, RunCli

WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from node.cli.main import run
sys.exit(run(sys.argv[1:]))
"""


@dataclass(frozen=True)
class Setup:
    """Values of the settings file; everything is right by default."""

    endpoint: str
    wallets: Path
    folder: Path

    def write(self, **changes: object) -> str:
        """Write the settings file with `changes` and return its name."""
        values: dict[str, object] = {
            "state_dir": str(self.folder / "state"),
            "endpoint": self.endpoint,
            "netuid": 2,
            "wallet": "miner",
            "arena": "cpu-small",
            "extra": "",
        } | changes
        text = (
            'profile = "devnet"\nstate_dir = "{state_dir}"\n[chain]\nendpoints = ["{endpoint}"]\nnetuid = {netuid}\n'
            'wallet = "{wallet}"\nwallet_path = "{wallet_path}"\n{extra}\n[qualify]\narena = "{arena}"\n'
        )
        (self.folder / "node.toml").write_text(text.format(wallet_path=self.wallets, **values), "utf-8")
        return "node.toml"


@pytest.fixture
def setup(endpoint: str, wallets: Path, tmp_path: Path) -> Setup:
    """A node's settings on the local chain."""
    return Setup(endpoint, wallets, tmp_path)


def assert_refused(ran: Ran, code: str, exit_code: int) -> None:
    """One rendered error on standard error, nothing else, and no traceback."""
    assert ran.code == exit_code, ran
    blocks = [line for line in ran.err.splitlines() if line.startswith("error[")]
    assert len(blocks) == 1, ran.err
    assert blocks[0].startswith(f"error[{code}]: ")
    assert "  hint: " in ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ""


def test_no_address(cli: RunCli, setup: Setup) -> None:
    """An endpoint that cannot be dialled, now or ever: exit code 2. (One that does not answer is waited for.)"""
    assert_refused(cli("node", "run", "-c", setup.write(endpoint="127.0.0.1:9")), "SETTINGS_INVALID", 2)


def test_wrong_netuid(cli: RunCli, setup: Setup) -> None:
    """A subnet that does not exist: exit code 4."""
    assert_refused(cli("node", "run", "-c", setup.write(netuid=77)), "SUBNET_NOT_FOUND", 4)


def test_missing_wallet(cli: RunCli, setup: Setup) -> None:
    """A wallet that does not exist: exit code 4."""
    assert_refused(cli("node", "run", "-c", setup.write(wallet="nobody")), "WALLET_NOT_FOUND", 4)


def test_unregistered_hotkey(cli: RunCli, setup: Setup) -> None:
    """A hotkey that the subnet does not know: exit code 4."""
    assert_refused(cli("node", "run", "-c", setup.write(wallet="stranger")), "HOTKEY_NOT_REGISTERED", 4)


def test_unwritable_state_folder(cli: RunCli, setup: Setup) -> None:
    """A state folder that cannot exist: exit code 6."""
    (setup.folder / "file").touch()
    assert_refused(
        cli("node", "run", "-c", setup.write(state_dir=setup.folder / "file" / "state")), "STATE_UNWRITABLE", 6
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_state_folder_of_somebody_else(cli: RunCli, setup: Setup) -> None:
    """A state folder without write permission: exit code 6."""
    (setup.folder / "closed").mkdir(mode=0o500)
    assert_refused(
        cli("node", "run", "-c", setup.write(state_dir=setup.folder / "closed" / "s")), "STATE_UNWRITABLE", 6
    )


def test_no_state_folder(cli: RunCli, setup: Setup) -> None:
    """No state folder at all: exit code 2."""
    assert_refused(cli("node", "run", "-c", setup.write(state_dir="")), "STATE_DIR_MISSING", 2)


def test_unknown_settings_key(cli: RunCli, setup: Setup) -> None:
    """A misspelt key, with file, line and suggestion: exit code 2."""
    ran = cli("node", "run", "-c", setup.write(extra="pol_seconds = 1"))
    assert_refused(ran, "SETTINGS_UNKNOWN_KEY", 2)
    assert "  --> node.toml:8" in ran.err
    assert "did you mean 'chain.poll_seconds'?" in ran.err


def test_missing_settings_file(cli: RunCli) -> None:
    """A settings file that does not exist: exit code 2."""
    assert_refused(cli("node", "run", "-c", "nowhere.toml"), "SETTINGS_NOT_FOUND", 2)


def test_unknown_arena(cli: RunCli, setup: Setup) -> None:
    """An arena that does not exist: exit code 2."""
    assert_refused(cli("node", "run", "-c", setup.write(arena="gpu-imaginary")), "ARENA_NOT_FOUND", 2)


def test_torch_missing(setup: Setup) -> None:
    """An installation without torch: exit code 6."""
    from tests.node.cli.conftest import run_process

    command = [sys.executable, "-c", WITHOUT_TORCH, "node", "run", "-c", setup.write()]
    assert_refused(run_process(command, setup.folder, None, 60), "TORCH_MISSING", 6)


def test_status_before_any_run(cli: RunCli, setup: Setup) -> None:
    """A status without a node: exit code 7; without a state folder at all: exit code 2."""
    assert_refused(cli("node", "status", "-c", setup.write()), "STATE_NOT_FOUND", 7)
    assert_refused(cli("node", "status"), "STATE_NOT_GIVEN", 2)
    failed = cli("node", "status", "-c", setup.write(), "--json")
    assert failed.document["error"]["code"] == "STATE_NOT_FOUND"
