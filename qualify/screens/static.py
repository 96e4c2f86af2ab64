"""static: the sandboxed intake, on an archive as a validator fetched it or on a folder as a miner has it.

Invariants
1. One code path decides for validators and miners: a folder is packed as `chain-package` packs it and screened as an
   archive. Nothing of the bundle is imported or run.
2. A refusal is `failed` when the bundle is to blame, with every finding in the receipt; faults of the host are raised.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from config.errors import Blame, IntakeError
from intake.content_hash import hash_files, read_tree
from intake.package import package_bytes
from qualify.intake_runner import IntakeRunner, ScreenedBundle, ScreeningRefused
from qualify.screens.base import Examined, Matter, ScreenReceipt, make_receipt

_UNKNOWN = "0" * 64


@dataclass(slots=True)
class Submission:
    """A bundle as it arrives: a folder or an archive. `screened` is there once it has passed."""

    path: Path
    expected_hash: str = ""  # what was committed to; empty when nobody has committed to anything
    allow_legacy_abi: bool = False
    screened: ScreenedBundle | None = None


@dataclass(frozen=True, slots=True)
class Static:
    """The static screen."""

    runner: IntakeRunner
    name: str = "static"

    def run(self, submission: Submission, /) -> ScreenReceipt:
        """Screen the archive in its sandbox. Raises `HostError` and `InternalError`."""
        begin = time.monotonic_ns()
        matter = Matter(submission.expected_hash)
        try:
            bundle = self._screen(submission)
        except IntakeError as error:
            found = _refused(error)
        else:
            submission.screened = bundle
            report = bundle.report
            matter = Matter(report.content_hash, report.target_id)
            facts = {"files": len(report.files), "variants": len(report.variants)}
            found = Examined("passed", f"{report.bundle_id} is a bundle a validator accepts", facts)
        return make_receipt(self.name, found, matter, time.monotonic_ns() - begin)

    def _screen(self, submission: Submission) -> ScreenedBundle:
        legacy = submission.allow_legacy_abi
        if submission.path.is_dir():
            files = read_tree(submission.path)
            return self.runner.run(package_bytes(files), hash_files(files), allow_legacy_abi=legacy)
        if submission.expected_hash:
            return self.runner.run(submission.path, submission.expected_hash, allow_legacy_abi=legacy)
        try:
            return self.runner.run(submission.path, _UNKNOWN, allow_legacy_abi=legacy)
        except ScreeningRefused as refusal:
            if refusal.code != "BUNDLE_HASH_MISMATCH":
                raise
            return self.runner.run(submission.path, refusal.seen_hash, allow_legacy_abi=legacy)


def _refused(error: IntakeError) -> Examined:
    document = error.to_document()
    findings = error.report.findings if isinstance(error, ScreeningRefused) else getattr(error, "findings", ())
    return Examined(
        "failed" if error.blame is Blame.MINER else "undecided",
        document.message,
        {"findings": max(1, len(findings))},
        code=document.code,
        blame=document.blame,
        hint=document.hint,
        location=document.location,
        further=tuple(findings[1:]),
    )
