"""The bundles of an attempt, opened and verified before anything of theirs runs.

Invariants
1. A bundle is used only when its published tree hashes to the content hash that was asked for and its intake report
   is that bundle's and accepts it. Anything else is a fault of this machine's store, never the miner's.
2. The architecture that live calls report on CPU arenas is the constant `CPU_ARCHITECTURE`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from config.errors import HostError, IntakeError
from intake.content_hash import hash_tree
from intake.report import IntakeReport, decode_report
from qualify.request import BundleRef

CPU_ARCHITECTURE = "cpu"


@dataclass(frozen=True, slots=True)
class Subject:
    """One verified bundle."""

    content_hash: str
    root: str
    report: IntakeReport


def open_subject(reference: BundleRef) -> Subject:
    """Verify and open a published bundle. Raises `HostError` (BUNDLE_UNUSABLE)."""
    try:
        report = decode_report(Path(reference.report_path).read_bytes())
        seen = hash_tree(Path(reference.bundle_dir)).hex
    except OSError as error:
        raise _unusable(reference, f"cannot be read: {error.strerror}") from error
    except IntakeError as error:
        raise _unusable(reference, f"is damaged: {error.message}") from error
    if seen != reference.content_hash:
        raise _unusable(reference, f"hashes to {seen}")
    if report.content_hash != reference.content_hash or not report.accepted:
        raise _unusable(reference, "has an intake report of another bundle, or one that refuses it")
    return Subject(reference.content_hash, reference.bundle_dir, report)


def _unusable(reference: BundleRef, complaint: str) -> HostError:
    return HostError(
        "BUNDLE_UNUSABLE",
        f"published bundle {reference.content_hash} {complaint}",
        hint="the bundle store was changed from outside; remove the entry so that it is fetched again",
    )
