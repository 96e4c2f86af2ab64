"""Attempt requests: strict documents, refused with one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from config.errors import ConfigurationError
from qualify.request import AttemptRequest, BundleRef, Holding, encode_request, read_request
from scoring.attempt import Reservation

GOOD = AttemptRequest(
    attempt_id="a-1",
    role="primary",
    target_id="norm.rmsnorm",
    arena="cpu-small",
    candidate=BundleRef("a" * 64, "/store/tree", "/store/report.json"),
    reservation=Reservation(1, 2, "5F"),
)


def test_a_request_survives_its_file(tmp_path: Path) -> None:
    """What the node writes is what the attempt reads."""
    path = tmp_path / "request.json"
    path.write_bytes(encode_request(GOOD))
    assert read_request(path) == GOOD


@pytest.mark.parametrize(
    "change",
    [
        {"role": "third"},
        {"extra": 1},
        {"previous_attempt": "b" * 64},
        {"role": "reproduction"},
        {"candidate": {"content_hash": "A" * 64, "bundle_dir": "/t", "report_path": "/r"}},
        {"candidate": {"content_hash": "a" * 64, "bundle_dir": "t", "report_path": "/r"}},
        {"stack": [{"target_id": "t", "bundle": {"content_hash": "a" * 64, "bundle_dir": "/t", "report_path": "r"}}]},
        {"arm_cores": ["1"]},
    ],
)
def test_a_bad_request_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    """Unknown keys, wrong types, relative paths and half-told reproductions have one code."""
    path = tmp_path / "request.json"
    path.write_text(json.dumps({**json.loads(encode_request(GOOD)), **change}))
    with pytest.raises(ConfigurationError) as caught:
        read_request(path)
    assert caught.value.code == "ATTEMPT_REQUEST_INVALID"


@pytest.mark.parametrize("content", [None, b"", b"{", b'{"a":1,"a":2}', b"[]", b"\xff"])
def test_a_file_that_is_no_request_is_refused(tmp_path: Path, content: bytes | None) -> None:
    """Missing and unreadable files give the same code, never another exception."""
    path = tmp_path / "request.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        read_request(path)
    assert caught.value.code == "ATTEMPT_REQUEST_INVALID"


def test_the_incumbent_is_the_holder_of_the_very_target() -> None:
    """Bundles of other targets stand in the stack and are not the incumbent."""
    mine, other = (BundleRef(letter * 64, "/store/tree", "/store/report.json") for letter in "bc")
    stack = (Holding("activation.silu_and_mul", other), Holding("norm.rmsnorm", mine))
    assert GOOD.incumbent is None
    assert msgspec.structs.replace(GOOD, stack=stack).incumbent == mine
    assert msgspec.structs.replace(GOOD, stack=stack[:1]).incumbent is None
