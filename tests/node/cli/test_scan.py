"""`cacheon scan`: all findings of the validator's own intake, at once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from intake.manifest import ABI, LEGACY_ABI
from intake.package import package_bundle

if TYPE_CHECKING:
    from tests.node.cli.conftest import RunCli

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def test_a_good_bundle_is_accepted(cli: RunCli) -> None:
    """The identity that chain-submit would commit is shown."""
    data = cli("scan", str(EXAMPLES / "silu_fast"), "--json").document["data"]
    assert data["accepted"] is True
    assert data["target_id"] == "activation.silu_and_mul"
    assert len(data["content_hash"]) == 64


def test_a_packed_archive_is_the_bundle_it_was_packed_from(cli: RunCli, tmp_path: Path) -> None:
    """Folder and archive have one identity; a file that is neither is told so."""
    packed = package_bundle(EXAMPLES / "silu_fast", tmp_path / "a.tar.gz")
    data = cli("scan", str(packed.path), "--json").document["data"]
    assert (data["accepted"], data["content_hash"]) == (True, packed.content_hash)
    ran = cli("scan", __file__, "--json")
    assert (ran.code, ran.document["data"]["findings"][0]["code"]) == (3, "ARCHIVE_NOT_GZIP")


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


@pytest.mark.parametrize(
    "command", [("scan",), ("chain-package",), ("chain-submit", "--dry-run", "--url", "https://a.example/b.tar.gz")]
)
def test_nobody_can_author_the_legacy_abi(cli: RunCli, tmp_path: Path, command: tuple[str, ...]) -> None:
    """Every command of a miner refuses the old spelling, whatever the settings, and says where, why and what to do."""
    bundle = tmp_path / "bundle"
    shutil.copytree(EXAMPLES / "silu_fast", bundle)
    manifest = bundle / "manifest.toml"
    manifest.write_text(manifest.read_text().replace(ABI, LEGACY_ABI))
    settings = {"CACHEON_INTAKE__ABI_CUTOVER_BLOCK": "1000000"}
    ran = cli(command[0], str(bundle), *command[1:], "--json", env=settings)
    assert ran.code == 3
    document = ran.document
    (finding,) = document["data"]["findings"] if document["ok"] else [document["error"]]
    assert (finding["code"], finding["location"]) == ("MANIFEST_ABI", "manifest.toml:2")
    assert "read only in bundles finalized before the cut-over" in finding["message"]
    assert finding["hint"] == f'Write abi_version = "{ABI}".'
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]
    assert LEGACY_ABI in manifest.read_text()


def test_a_folder_that_is_not_there_is_one_error(cli: RunCli) -> None:
    """The command line is at fault, not a bundle."""
    assert cli("scan", "nowhere", "--json").document["error"]["code"] == "BUNDLE_FOLDER_MISSING"
