"""`cacheon doctor`: one report for people and machines, on machines that lack something too."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from config.codes import load_codes
from qualify.sandbox.layers import LAYERS
from tests.node.cli.conftest import RunCli, run_process

ROOT = Path(__file__).parents[3]
POOR = ROOT / "tests" / "node" / "doctor" / "poor_machine.py"
GUIDE = ROOT / "docs" / "operator.md"
PATIENT = ("--patience", "20")  # no deadline decides a test: what hangs ends it by the test's own time-out
SECONDS = 500
KEYS = {"name", "state", "seen", "fix", "code", "blocks_qualification", "milliseconds"}


def settings_file(folder: Path, wallets: Path, endpoint: str, state: str = "disk/state") -> str:
    """Write a node's settings and return the file's name."""
    (folder / "node.toml").write_text(
        f'profile = "devnet"\nstate_dir = "{folder}/{state}"\n[chain]\nendpoints = ["{endpoint}"]\nnetuid = 2\n'
        f'wallet = "miner"\nwallet_path = "{wallets}"\nrequest_timeout_seconds = 5.0\n', "utf-8",
    )
    return "node.toml"


def checked(document: dict[str, Any], code: int) -> dict[str, dict[str, Any]]:
    """Assert that a report is whole and agrees with the exit code; return its findings by name."""
    assert (document["schema"], document["ok"]) == ("cacheon.doctor.v1", True)
    data = document["data"]
    assert set(data) == {"ready", "machine_only", "blocking", "waived", "counts", "findings"}
    findings = {finding["name"]: finding for finding in data["findings"]}
    assert len(findings) == len(data["findings"])
    assert not [name for name, finding in findings.items() if finding["code"] in ("CHECK_TIMEOUT", "CHECK_FAILED")]
    for finding in findings.values():
        assert set(finding) == KEYS
        assert finding["seen"]
        assert (finding["state"] == "FAIL") == bool(finding["code"]) >= finding["blocks_qualification"]
        assert not finding["code"] or finding["code"] in load_codes()
        assert finding["fix"] or finding["state"] in ("PASS", "SKIP") or finding["code"] == "CHECK_FAILED"
        assert "Traceback" not in finding["seen"]
    assert data["blocking"] == [name for name, finding in findings.items() if finding["blocks_qualification"]]
    assert data["ready"] is (not data["blocking"])
    assert code == (0 if data["ready"] else 6)
    return findings


def test_a_node_that_could_start(tmp_path: Path, wallets: Path, endpoint: str) -> None:
    """With an empty environment too, every part is looked at, nothing is written, and the guide lists every line."""
    settings_file(tmp_path, wallets, endpoint)
    before = sorted(tmp_path.rglob("*"))
    done = subprocess.run(
        [sys.executable, "-m", "node.cli.main", "doctor", "-c", "node.toml", "--json", *PATIENT], cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True, text=True, timeout=SECONDS,
    )
    findings = checked(json.loads(done.stdout), done.returncode)
    assert done.returncode == 0, done.stdout
    assert done.stderr == ""
    assert sorted(tmp_path.rglob("*")) == before
    assert {f"isolation.{name}" for name in LAYERS} <= set(findings)
    text = GUIDE.read_text("utf-8")
    listed = set(re.findall(r"^\| `([a-z_.*0-9]+)` \|", text, re.MULTILINE))
    unlisted = {re.sub(r"^device\.gpu\d+$", "device.gpu*", name) for name in findings} - listed
    assert not {name for name in unlisted if name.removeprefix("isolation.") not in LAYERS}


def test_the_machine_alone(cli: RunCli) -> None:
    """Without settings the machine is looked at; people get lines, a verdict and the way on."""
    ran = cli("doctor", *PATIENT, timeout=SECONDS)
    assert ran.code in (0, 6)
    assert re.search(r"^PASS  isolation\.verify ", ran.out, re.MULTILINE)
    assert re.search(r"^SKIP  chain ", ran.out, re.MULTILINE)
    assert re.search(r"^(not )?ready.* \(the machine only; `-c FILE` looks at a node\); \d+ P", ran.out, re.MULTILINE)
    assert "\x1b" not in ran.out
    assert "Traceback" not in ran.out + ran.err


def test_settings_that_cannot_be_read(cli: RunCli) -> None:
    """A file that is not there is one failing line, and the machine is looked at all the same."""
    ran = cli("doctor", "-c", "nowhere.toml", "--json", *PATIENT, timeout=SECONDS)
    findings = checked(ran.document, ran.code)
    assert ran.code == 6
    assert findings["settings.file"]["code"] == "SETTINGS_NOT_FOUND"
    assert findings["chain"]["state"] == "SKIP"
    assert findings["isolation.verify"]["state"] == "PASS"


@pytest.mark.parametrize(
    ("mode", "name", "code"),
    [
        ("no userns", "isolation.userns", "SANDBOX_LAYER_MISSING"),
        ("full disk", "disk.state", "DISK_FULL"),
        ("read-only disk", "disk.state", "STATE_UNWRITABLE"),
    ],
)
def test_a_machine_that_lacks_something(mode: str, name: str, code: str, tmp_path: Path, wallets: Path) -> None:
    """What is missing is named with its code, the rest is looked at, and the exit code says that no node would run."""
    settings_file(tmp_path, wallets, "ws://127.0.0.1:9")
    command = [sys.executable, str(POOR), mode, "doctor", "-c", "node.toml", "--json", *PATIENT]
    ran = run_process(command, tmp_path, {"PYTHONPATH": str(ROOT)}, SECONDS)
    findings = checked(ran.document, ran.code)
    assert ran.code == 6, ran
    assert (findings[name]["state"], findings[name]["code"]) == ("FAIL", code)
    assert findings[name]["blocks_qualification"]
    assert findings[name]["fix"]
    assert findings["chain.endpoint"]["code"] == "CHAIN_UNREACHABLE"
    others = {finding["name"] for finding in findings.values() if finding["state"] == "FAIL"} - {name, "chain.endpoint"}
    assert others <= ({"isolation.intake"} if mode == "no userns" else set())


@pytest.mark.skipif(os.geteuid() == 0, reason="root has no other user's eyes")
def test_a_wallet_that_is_closed_to_us(cli: RunCli, tmp_path: Path, wallets: Path, endpoint: str) -> None:
    """A folder of keys that this user may not enter is a failure of the wallet, not of the doctor."""
    settings_file(tmp_path, wallets, endpoint)
    folder = wallets / "miner" / "hotkeys"
    folder.chmod(0)
    try:
        ran = cli("doctor", "-c", "node.toml", "--json", *PATIENT, timeout=SECONDS)
    finally:
        folder.chmod(0o700)
    assert checked(ran.document, ran.code)["wallet.hotkey"]["code"] == "HOTKEY_UNREADABLE"
