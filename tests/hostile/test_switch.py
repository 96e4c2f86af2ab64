"""Static intake is switched off in tests only: nothing of the product measures a bundle that intake refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from config.errors import HostError, IntakeError
from config.settings import Settings
from intake.report import encode_report, refusal_report
from intake.scan import screen_directory
from qualify.arm_server import start_arm_server
from qualify.referee import run_attempt
from qualify.request import AttemptRequest, BundleRef
from tests.hostile.corpus import CORPUS
from tests.qualify.support import describe_bundle, make_request

REFUSED = CORPUS / "010_ptrace" / "bundle"


def test_a_refused_bundle_is_not_measured(tmp_path: Path) -> None:
    """The report that intake writes for it ends the attempt before anything runs."""
    with pytest.raises(IntakeError) as refusal:
        screen_directory(REFUSED)
    accepted = describe_bundle(REFUSED, tmp_path / "accepted.json")
    report = refusal_report(refusal.value, content_hash=accepted.content_hash)
    path = tmp_path / "refused.json"
    path.write_bytes(encode_report(report))
    request = make_request(BundleRef(accepted.content_hash, accepted.bundle_dir, str(path)), str(CORPUS / "arena.toml"))
    with start_arm_server() as fork_server, pytest.raises(HostError) as caught:
        run_attempt(request, lambda event: None, fork_server)
    assert caught.value.code == "BUNDLE_UNUSABLE"


@pytest.mark.parametrize("document", [Settings, AttemptRequest])
def test_no_setting_speaks_of_the_scan(document: type) -> None:
    """Neither the settings nor a request can ask for less than intake."""
    assert not [name for name in _fields(document) if "scan" in name or "screen" in name or "intake_off" in name]


def _fields(document: type) -> Iterator[str]:
    for field in msgspec.structs.fields(document):
        yield field.name
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from _fields(field.type)
