"""`cacheon scan`: everything a validator would refuse about a local bundle, found by the validator's own code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from config.errors import ErrorDocument, ExitCode, IntakeError
from intake.refusal import BundleRefused
from intake.scan import screen_path
from node.cli.miner import bundle_path
from node.cli.output import Output, facts

if TYPE_CHECKING:
    from rich.console import Console


class Scanned(msgspec.Struct, frozen=True):
    """The result as `--json` shows it; what is empty was not reached because of the findings."""

    accepted: bool
    content_hash: str
    bundle_id: str
    target_id: str
    variants: tuple[str, ...]
    findings: tuple[ErrorDocument, ...]


def run(bundle: str, *, as_json: bool) -> int:
    """Scan `bundle` and return 0 or, with findings, 3. Raises `NotFoundError` for a folder that is not there."""
    output = Output("scan", as_json=as_json)
    scanned = scan(bundle)
    output.result(scanned, lambda console: _show(console, scanned))
    if not scanned.accepted:
        output.note(f"{len(scanned.findings)} to mend; `cacheon explain CODE` explains each")
        return ExitCode.REJECTED
    output.note(f"next: cacheon chain-package {bundle}")
    return ExitCode.OK


def scan(bundle: str) -> Scanned:
    """Return what a validator's intake says about `bundle`, a folder or an archive."""
    try:
        report = screen_path(bundle_path(bundle)).report
    except BundleRefused as refusal:
        return Scanned(False, "", "", "", (), refusal.findings)
    except IntakeError as error:
        return Scanned(False, "", "", "", (), (error.to_document(),))
    variants = tuple(f"{row.slot}/{row.variant}" for row in report.variants)
    return Scanned(True, report.content_hash, report.bundle_id, report.target_id, variants, ())


def _show(console: Console, scanned: Scanned) -> None:
    if scanned.accepted:
        facts(
            console,
            [
                ("accepted", scanned.bundle_id),
                ("content hash", scanned.content_hash),
                ("target", scanned.target_id),
                ("variants", ", ".join(scanned.variants)),
            ],
        )
    for finding in scanned.findings:
        where = f"{finding.location}: " if finding.location else ""
        console.print(f"{where}{finding.message} [{finding.code}]", markup=False, soft_wrap=True)
        if finding.hint:
            console.print(f"  hint: {finding.hint}", markup=False, soft_wrap=True)
