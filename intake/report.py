"""What intake found out about one bundle, as a document.

Invariants
1. A report is canonical JSON and is read back strictly: unknown or missing fields, other types and another schema are
   refused. It crosses from the sandboxed child to the node and lies beside the published tree.
2. `error` is None exactly for an accepted bundle; then every other field describes the bundle completely and `files`
   lists every byte its content hash covers, in path order.
3. Texts inside come from hostile input. They are data to show, never paths or commands to use unchecked.
"""

from __future__ import annotations

from typing import Any

import msgspec

from config.canonical import CanonicalJsonError, canonical_json, read_json
from config.errors import Blame, ErrorDocument, IntakeError
from intake.parts import Part
from intake.refusal import clip

SCHEMA = "cacheon.intake-report.v1"


class FileEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file: bundle-relative path, size in bytes, lower-hex SHA-256 of its content."""

    path: str
    size: int
    sha256: str


class ResolvedVariant(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One implementation row. `source` is a bundle-relative path; `metadata` is the canonical routing domain.

    With `override_point`, the entry fills that point of the slot's base kernel instead of being the whole call.
    """

    slot: str
    variant: str
    source: str
    entry: str
    prepare: str | None
    dtypes: tuple[str, ...]
    architectures: tuple[str, ...]
    metadata: dict[str, Any]
    override_point: str | None = None


class IntakeReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything the node needs to know about a bundle it never imports."""

    content_hash: str
    bundle_id: str = ""
    abi_version: str = ""
    target_id: str = ""
    target_kind: str = ""
    features: tuple[str, ...] = ()
    variants: tuple[ResolvedVariant, ...] = ()
    fingerprint: str = ""
    fingerprint_version: int = 0  # prints of different versions say nothing about each other
    pieces: tuple[str, ...] = ()  # digests of the implementations, sorted; equal pieces do equal work
    parts: tuple[Part, ...] = ()  # what the fingerprint was made of, heaviest first
    files: tuple[FileEntry, ...] = ()
    closure: tuple[str, ...] = ()  # Python files that an entry can reach, in path order
    findings: tuple[ErrorDocument, ...] = ()
    error: ErrorDocument | None = None
    schema: str = SCHEMA

    @property
    def accepted(self) -> bool:
        """Whether the bundle may be published and measured."""
        return self.error is None


def refusal_report(error: IntakeError, *, content_hash: str) -> IntakeReport:
    """Return the report of a refused bundle; `content_hash` is the one it was submitted under."""
    document = error.to_document()
    findings = getattr(error, "findings", (document,))
    return IntakeReport(content_hash=content_hash, findings=findings, error=document)


def encode_report(report: IntakeReport) -> bytes:
    """Return the canonical JSON of a report."""
    return canonical_json(msgspec.to_builtins(report))


def decode_report(data: bytes) -> IntakeReport:
    """Read a report strictly. Raises `IntakeError` (REPORT_MALFORMED)."""
    try:
        report = msgspec.convert(read_json(data, require_canonical=True), IntakeReport)
    except (CanonicalJsonError, msgspec.ValidationError) as error:
        raise IntakeError(
            "REPORT_MALFORMED", f"an intake report is malformed: {clip(str(error), 200)}.", blame=Blame.INTERNAL
        ) from error
    if report.schema != SCHEMA:
        raise IntakeError(
            "REPORT_MALFORMED", f"an intake report has the unknown schema {clip(report.schema)}.", blame=Blame.INTERNAL
        )
    return report
