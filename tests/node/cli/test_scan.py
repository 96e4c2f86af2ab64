"""`cacheon scan`: all findings of the validator's own intake, at once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.node.cli.conftest import RunCli

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def test_a_good_bundle_is_accepted(cli: RunCli) -> None:
    """The identity that chain-submit would commit is shown."""
    data = cli("scan", str(EXAMPLES / "silu_fast"), "--json").document["data"]
    assert data["accepted"] is True
    assert data["target_id"] == "activation.silu_and_mul"
    assert len(data["content_hash"]) == 64


def test_everything_to_mend_is_listed_with_its_line(cli: RunCli, tmp_path: Path) -> None:
    """Faults in several files come in one run, each with code and place; the exit code is 3."""
    bundle = tmp_path / "bundle"
    shutil.copytree(EXAMPLES / "silu_fast", bundle)
    source = bundle / "kernels" / "silu_and_mul.py"
    lines = source.read_text().count("\n")
    source.write_text(source.read_text() + "import subprocess\nreader = open\n")
    (bundle / "weights.bin").write_bytes(b"\x00")
    ran = cli("scan", str(bundle), "--json")
    assert ran.code == 3
    found = {(row["code"], row["location"]) for row in ran.document["data"]["findings"]}
    assert ("SCAN_IMPORT", f"kernels/silu_and_mul.py:{lines + 1}") in found
    assert ("SCAN_NAME", f"kernels/silu_and_mul.py:{lines + 2}") in found
    assert any(location.startswith("weights.bin") for _, location in found)
    assert "hint:" in cli("scan", str(bundle)).out


def test_a_folder_that_is_not_there_is_one_error(cli: RunCli) -> None:
    """The command line is at fault, not a bundle."""
    assert cli("scan", "nowhere", "--json").document["error"]["code"] == "BUNDLE_FOLDER_MISSING"
