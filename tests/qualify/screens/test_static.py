"""The static screen: the validator's sandboxed intake, on folders and archives."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from intake.content_hash import hash_tree
from intake.package import package_bundle
from intake.scan import scan_directory
from qualify.intake_runner import IntakeRunner
from qualify.screens.base import encode_receipt, read_receipt
from qualify.screens.static import Static, Submission
from tests.qualify.support import EXAMPLES

SILU = EXAMPLES / "silu_fast"


@pytest.fixture(scope="module")
def static() -> Iterator[Static]:
    """The screen with one fork server for all tests."""
    with IntakeRunner() as runner:
        yield Static(runner)


def test_a_folder_and_its_archive_are_one_bundle(static: Static, tmp_path: Path) -> None:
    """Both pass as the same content hash, whether or not somebody committed to it."""
    packed = package_bundle(SILU, tmp_path / "a.tar.gz")
    for submission in (
        Submission(SILU),
        Submission(packed.path),
        Submission(packed.path, expected_hash=packed.content_hash),
    ):
        receipt = static.run(submission)
        assert (receipt.outcome, receipt.code) == ("passed", "")
        assert receipt.content_hash == packed.content_hash == hash_tree(SILU).hex
        assert receipt.target_id == "activation.silu_and_mul"
        assert submission.screened is not None
        assert read_receipt(encode_receipt(receipt)) == receipt


def test_other_bytes_than_committed_fail(static: Static, tmp_path: Path) -> None:
    """The code is the one a submission would get."""
    packed = package_bundle(SILU, tmp_path / "a.tar.gz")
    submission = Submission(packed.path, expected_hash="f" * 64)
    receipt = static.run(submission)
    assert (receipt.outcome, receipt.code, receipt.content_hash) == ("failed", "BUNDLE_HASH_MISMATCH", "f" * 64)
    assert submission.screened is None


def test_every_finding_of_scan_stands_in_the_receipt(static: Static, tmp_path: Path) -> None:
    """The same findings in the same order, the first with its place in the receipt itself."""
    tree = tmp_path / "bundle"
    shutil.copytree(SILU, tree)
    source = tree / "kernels" / "silu_and_mul.py"
    lines = source.read_text().count("\n")
    source.write_text(source.read_text() + "import subprocess\nreader = open\n")
    found = scan_directory(tree)
    receipt = static.run(Submission(tree))
    assert receipt.outcome == "failed"
    assert receipt.blame == "miner"
    assert (receipt.code, receipt.message, receipt.location) == (found[0].code, found[0].message, found[0].location)
    assert receipt.location == f"kernels/silu_and_mul.py:{lines + 1}"
    assert receipt.further == found[1:]
    assert receipt.facts["findings"] == len(found) == 2
    assert read_receipt(encode_receipt(receipt)) == receipt


@pytest.mark.parametrize(("content", "code"), [(b"", "ARCHIVE_NOT_GZIP"), (b"PK\x03\x04", "ARCHIVE_NOT_GZIP")])
def test_what_is_no_archive_fails(static: Static, tmp_path: Path, content: bytes, code: str) -> None:
    """A file that is something else is the bundle's fault, not the machine's."""
    path = tmp_path / "a.tar.gz"
    path.write_bytes(content)
    assert static.run(Submission(path)).code == code


def test_a_folder_without_files_fails(static: Static, tmp_path: Path) -> None:
    """An empty folder has no hash to commit to."""
    receipt = static.run(Submission(tmp_path))
    assert (receipt.outcome, receipt.code) == ("failed", "BUNDLE_EMPTY")
