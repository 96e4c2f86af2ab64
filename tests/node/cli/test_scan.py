"""`cacheon scan`: all findings of the validator's own intake, at once."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from intake.manifest import ABI, LEGACY_ABI
from intake.package import package_bundle
from node.cli.process import _plainly_scanned

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


PROBE = """
import sys
from node.cli.main import run
code = run(sys.argv[1:])
print(code, *sorted({"typer", "rich", "pydantic"} & set(sys.modules)))
"""


def test_a_plain_scan_loads_neither_the_parser_nor_the_printing_library() -> None:
    command = [sys.executable, "-c", PROBE, "scan", str(EXAMPLES / "silu_fast")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines()[-1] == "0"


@pytest.mark.parametrize("words", [["{}"], ["{}", "--json"], ["--json", "{}"]])
@pytest.mark.parametrize("bundle", [str(EXAMPLES / "silu_fast"), __file__, "no-such-folder"])
def test_the_parser_reads_a_plain_scan_the_same(cli: RunCli, words: list[str], bundle: str) -> None:
    """`--debug` first, which says nothing here, hands the line to the parser."""
    given = ["scan", *(word.format(bundle) for word in words)]
    quick, parsed = cli(*given), cli("--debug", *given)
    assert (quick.code, quick.out, quick.err) == (parsed.code, parsed.out, parsed.err)


@pytest.mark.parametrize("given", [["scan"], ["scan", ""], ["scan", "a", "b"], ["scan", "--", "-a"], ["scan", "-x"]])
def test_what_is_no_plain_scan_is_left_to_the_parser(given: list[str]) -> None:
    assert _plainly_scanned(given) is None
