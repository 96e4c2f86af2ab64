"""Receipts of screens as documents."""

from __future__ import annotations

import json

import pytest

from config.canonical import sha256_hex
from config.errors import ErrorDocument, GradeError
from qualify.screens.base import (
    Examined,
    Matter,
    ScreenReceipt,
    encode_receipt,
    make_receipt,
    read_receipt,
    receipt_digest,
)

FAILED = Examined(
    "failed",
    "two things are wrong",
    {"launches": 3, "decision": "undecided"},
    code="SCAN_NAME",
    blame="miner",
    hint="mend both",
    location="kernels/k.py:3",
    further=(ErrorDocument("SCAN_IMPORT", "the other one"),),
)
MATTER = Matter("a" * 64, "norm.rmsnorm", "b" * 64, "c" * 64, "d" * 64)


def receipt(found: Examined = FAILED) -> ScreenReceipt:
    """A receipt with every field in use."""
    return make_receipt("static", found, MATTER, 1_500)


def test_a_receipt_is_read_back_as_it_was_written() -> None:
    """Canonical bytes, whose SHA-256 is the receipt's identity."""
    data = encode_receipt(receipt())
    assert read_receipt(data) == receipt()
    assert receipt_digest(receipt()) == sha256_hex(data)


def test_the_same_findings_always_have_the_same_bytes() -> None:
    """The order in which facts were found is not told."""
    turned = Examined(
        **{name: getattr(FAILED, name) for name in FAILED.__struct_fields__ if name != "facts"},
        facts={"decision": "undecided", "launches": 3},
    )
    assert encode_receipt(receipt(turned)) == encode_receipt(receipt())


@pytest.mark.parametrize("outcome", ["failed", "undecided"])
def test_nothing_runs_after_a_failure_or_a_fault_of_ours(outcome: str) -> None:
    """Only these two outcomes end a run."""
    assert make_receipt("abi", Examined(outcome, "no"), Matter(), 0).ends  # type: ignore[arg-type]
    for other in ("passed", "not_applicable"):
        assert not make_receipt("abi", Examined(other, "yes"), Matter(), 0).ends  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "cacheon.screen-receipt.v2"},
        {"outcome": "excused"},
        {"facts": {"ratio": [1]}},
        {"elapsed_ns": -1},
        {"content_hash": "short"},
        {"screen": "Static screen"},
        {"more": 1},
    ],
)
def test_what_is_not_quite_a_receipt_is_refused(change: dict[str, object]) -> None:
    """Other schemas, fields, types and words have one code."""
    document = json.loads(encode_receipt(receipt())) | change
    data = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(GradeError) as caught:
        read_receipt(data)
    assert caught.value.code == "SCREEN_RECEIPT_MALFORMED"


def test_other_spellings_of_the_same_receipt_are_refused() -> None:
    """A receipt has exactly one form."""
    with pytest.raises(GradeError):
        read_receipt(encode_receipt(receipt()) + b"\n")
