"""`cacheon init`: a new bundle for a target, which a validator would accept as it is."""

from __future__ import annotations

import re
import shlex
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from config.errors import ConfigurationError, ErrorDocument, IntakeError
from config.slot_resources import load_slot_resources
from config.target_catalog import Target, TargetCatalog, load_catalog
from intake.manifest_fields import MANIFEST
from intake.report import IntakeReport
from intake.scaffold import bundle_contracts, call_signature, scaffold
from intake.screen import screen_files
from intake.served import check_served
from intake.suggest import nearest
from node.cli.judges import judges_of
from node.cli.new_folder import write_new_folder
from node.cli.output import Output, facts

if TYPE_CHECKING:
    from rich.console import Console

_FALLBACK_ID = "my-bundle"
_NOT_IN_AN_ID = re.compile(r"[^0-9A-Za-z._-]+")
_ID_CHARACTERS = 64


class Initialised(msgspec.Struct, frozen=True):
    """What was written, as `--json` shows it.

    `judged_by` names the built-in arenas that measure the target. `findings` is what `scan` says about the bundle:
    nothing, or the one FEATURE_NOT_SERVED of a target whose calls nothing executes yet.
    """

    path: str
    bundle_id: str
    target_id: str
    target_kind: str
    calls: tuple[str, ...]
    files: tuple[str, ...]
    judged_by: tuple[str, ...]
    findings: tuple[ErrorDocument, ...]


def run(
    folder: str,
    target_id: str,
    *,
    bundle_id: str | None,
    dtypes: tuple[str, ...],
    architectures: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write a new bundle to `folder`.

    Raises `ConfigurationError`: INIT_TARGET_UNKNOWN, INIT_BUNDLE_ID, INIT_DTYPE_UNKNOWN, INIT_ARCHITECTURE,
    INIT_FOLDER_TAKEN, INIT_FOLDER_UNWRITABLE.
    """
    output = Output("init", as_json=as_json)
    catalog = load_catalog()
    target = _target(catalog, target_id)
    name = _id_from(folder) if bundle_id is None else bundle_id
    files = scaffold(target, catalog, bundle_id=name, dtypes=dtypes, architectures=architectures)
    report = screen_files(files, served=None).report  # nothing is written that scan would not pass
    path = write_new_folder(Path(folder), files, last=MANIFEST)
    result = Initialised(
        path=str(path),
        bundle_id=report.bundle_id,
        target_id=target.id,
        target_kind=target.kind,
        calls=_calls(target, catalog),
        files=tuple(files),
        judged_by=judges_of(target.id),
        findings=_findings(report),
    )
    output.result(result, lambda console: _show(console, result))
    _advise(output, folder, result)


def _target(catalog: TargetCatalog, target_id: str) -> Target:
    target = catalog.find(target_id)
    if target is None:
        raise ConfigurationError(
            "INIT_TARGET_UNKNOWN", f"there is no target {target_id!r}",
            hint=nearest(target_id, catalog.targets) or "`cacheon targets` lists them",
        )
    return target


def _id_from(folder: str) -> str:
    """Return the folder's name as a bundle id: accents dropped, blanks and marks as dashes.

    A name with other letters than an id may hold gives none: what would be left of it is no name.
    """
    name = unicodedata.normalize("NFKD", Path(folder).absolute().resolve().name)
    name = "".join(letter for letter in name if not unicodedata.combining(letter))
    if any(letter.isalnum() and not letter.isascii() for letter in name):
        return _FALLBACK_ID
    return _NOT_IN_AN_ID.sub("-", name).strip("-.")[:_ID_CHARACTERS].rstrip("-.") or _FALLBACK_ID


def _calls(target: Target, catalog: TargetCatalog) -> tuple[str, ...]:
    abis = load_slot_resources()
    return tuple(call_signature(contract, abis[contract.slot]) for contract in bundle_contracts(target, catalog))


def _findings(report: IntakeReport) -> tuple[ErrorDocument, ...]:
    try:
        check_served(report.features)
    except IntakeError as error:
        return (error.to_document(),)
    return ()


def _show(console: Console, result: Initialised) -> None:
    rows = [("bundle", result.bundle_id), ("target", result.target_id), ("folder", result.path)]
    rows += [("call", call) for call in result.calls]
    rows += [("file", path) for path in result.files]
    facts(console, rows)


def _advise(output: Output, folder: str, result: Initialised) -> None:
    for finding in result.findings:
        output.note(f"not yet: {finding.message} `cacheon explain {finding.code}` says more")
    if not result.judged_by:
        output.note(f"not yet: no arena of this release measures {result.target_id}; see `cacheon targets`")
    check = "verify" if result.judged_by and not result.findings else "scan"
    output.note(f"next: make the kernels faster, then `cacheon {check} {shlex.quote(folder)}`")
