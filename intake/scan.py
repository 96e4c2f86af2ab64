"""The validator's own checks on a local folder, for the miner's tools."""

from __future__ import annotations

from pathlib import Path

from config.errors import ErrorDocument, IntakeError
from config.limits import INTAKE, IntakeLimits
from config.target_catalog import TargetCatalog
from intake.content_hash import read_tree
from intake.refusal import BundleRefused
from intake.screen import Screened, screen_files


def screen_directory(
    directory: Path, *, limits: IntakeLimits = INTAKE, catalog: TargetCatalog | None = None
) -> Screened:
    """Screen a local tree exactly as a validator screens its archive.

    The legacy ABI is never accepted here: new bundles may not be authored under it. Raises `IntakeError`
    (`BundleRefused` with all findings) and `NotFoundError` (BUNDLE_NOT_FOUND).
    """
    return screen_files(read_tree(directory, limits=limits), limits=limits, catalog=catalog)


def scan_directory(
    directory: Path, *, limits: IntakeLimits = INTAKE, catalog: TargetCatalog | None = None
) -> tuple[ErrorDocument, ...]:
    """Return everything a validator would refuse about a local tree; () = it would be accepted.

    Raises `NotFoundError` (BUNDLE_NOT_FOUND) when there is no such folder.
    """
    try:
        screen_directory(directory, limits=limits, catalog=catalog)
    except BundleRefused as refusal:
        return refusal.findings
    except IntakeError as error:
        return (error.to_document(),)
    return ()
