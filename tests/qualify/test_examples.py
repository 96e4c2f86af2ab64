"""The example bundles: accepted by the real intake, and judged by the real referee as their READMEs say."""

from __future__ import annotations

from pathlib import Path

import pytest

from intake.content_hash import hash_files, read_tree
from intake.file_stream import encode_stream
from intake.publish import publish
from intake.scan import scan_directory
from intake.screen import screen_files
from qualify.referee import run_attempt
from qualify.request import BundleRef
from qualify.sandbox.client import Zygote
from scoring.attempt import Attempt
from tests.qualify.support import EXAMPLES, make_request

NAMES = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())


def judged(name: str, arena: str, store: Path, fork_server: Zygote) -> Attempt:
    """Publish an example as the node does and run one attempt on it."""
    screened = screen_files(read_tree(EXAMPLES / name))
    published = publish(b"".join(encode_stream(screened.files)), screened.report, store)
    reference = BundleRef(published.content_hash, str(published.tree), str(published.report_path))
    request = make_request(reference, arena, target_id=screened.report.target_id)
    return run_attempt(request, lambda event: None, fork_server)


@pytest.mark.parametrize("name", NAMES)
def test_every_example_is_a_bundle_that_intake_accepts(name: str) -> None:
    """Examples are written as miners write them, with a README that says what they show."""
    assert scan_directory(EXAMPLES / name) == ()
    for file in ("manifest.toml", "README.md", "LICENSE"):
        assert (EXAMPLES / name / file).is_file()


@pytest.mark.parametrize("name", ["silu_fast", "silu_slow", "rmsnorm_fast"])
def test_correct_examples_pass_every_check(name: str, arena: str, tmp_path: Path, fork_server: Zygote) -> None:
    """Faster or slower, their outputs are right on every shape and distribution."""
    evidence = judged(name, arena, tmp_path / "store", fork_server)
    assert evidence.incidents == ()
    assert len(evidence.launches) == 2


@pytest.mark.parametrize(("name", "kind"), [("silu_wrong", "wrong_output"), ("silu_late", "late_write")])
def test_faulty_examples_are_found_out(name: str, kind: str, arena: str, tmp_path: Path, fork_server: Zygote) -> None:
    """Wrong numbers and late writes each have their own kind."""
    evidence = judged(name, arena, tmp_path / "store", fork_server)
    assert [incident.kind for incident in evidence.incidents] == [kind]


def test_the_copy_has_other_bytes_and_the_same_fingerprint() -> None:
    """Renaming and reformatting change the content hash, not what copy detection sees."""
    original, copy = (screen_files(read_tree(EXAMPLES / name)) for name in ("silu_fast", "silu_copy"))
    assert hash_files(original.files) != hash_files(copy.files)
    assert original.report.fingerprint == copy.report.fingerprint
