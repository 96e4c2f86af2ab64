"""Findings: bounded in number and in size."""

from __future__ import annotations

import pytest

from config.errors import Blame, IntakeError, SourceLocation
from intake.refusal import BundleRefused, Findings
from intake.report import encode_report, refusal_report
from intake.screen import screen_files
from qualify.intake_frame import REPORT_BYTES, answer_parts, read_answer
from tests.intake.support import KERNEL, bundle


def test_findings_are_bounded_and_differ() -> None:
    """No more than the limit is kept, and nothing twice."""
    findings = Findings(2)
    for code in ("A", "A", "B", "C"):
        findings.add(code, "no.", path="x.py", line=1)
    assert [item.code for item in findings.documents()] == ["A", "B"]
    assert findings.is_full


def test_a_long_sentence_is_cut() -> None:
    """Code, blame and place stay as they are."""
    findings = Findings()
    place = SourceLocation("x.py", 3)
    findings.take(IntakeError("A", "m" * 5000, hint="h" * 5000, blame=Blame.OPERATOR, location=place))
    (document,) = findings.documents()
    assert (len(document.message), len(document.hint), document.blame, document.location) == (
        1000,
        1000,
        "operator",
        "x.py:3",
    )


def test_control_characters_are_spelled_out() -> None:
    """What a bundle writes cannot move the cursor of whoever reads its refusal."""
    findings = Findings()
    findings.add("A", "os.x\x1b[2J\u202e\n is not allowed.")
    assert findings.documents()[0].message == "os.x\\x1b[2J\\u202e\\n is not allowed."


def test_long_names_do_not_make_the_answer_too_long() -> None:
    """Names of any length in 200 findings leave an answer that the parent takes (found by fuzzing)."""
    names = "".join(f"os.x{number}{'y' * 190_000}\n" for number in range(40)).encode()
    shared = {f"kernels/{name}.py": b"import os\n\n" + names for name in "ab"}
    kernel = b"import kernels.a\nimport kernels.b\n" + KERNEL
    with pytest.raises(BundleRefused) as caught:
        screen_files(bundle(**{"kernels/kernel.py": kernel, **shared}))
    assert len(caught.value.findings) >= 80
    report = encode_report(refusal_report(caught.value, content_hash="0" * 64))
    assert len(report) < REPORT_BYTES // 8
    assert not read_answer(memoryview(b"".join(answer_parts(report, "", (), 0))), "0" * 64).report.accepted
