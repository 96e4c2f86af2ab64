"""The validator's own checks on a local folder or archive, for the miner's tools."""

from __future__ import annotations

from pathlib import Path

from config.errors import ErrorDocument, HostError, IntakeError
from config.limits import INTAKE, IntakeLimits
from config.target_catalog import TargetCatalog
from intake.archive import unpack
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
    return screen_files(read_tree(directory, limits=limits), limits=limits, catalog=catalog, may_fork=True)


def screen_path(path: Path, *, limits: IntakeLimits = INTAKE, catalog: TargetCatalog | None = None) -> Screened:
    """Screen a local folder, or a packed archive whatever it hashes to.

    Raises what `screen_directory` raises, and `HostError` (INTAKE_ARCHIVE_UNREADABLE).
    """
    if path.is_dir():
        return screen_directory(path, limits=limits, catalog=catalog)
    try:
        with path.open("rb") as file:
            archive = file.read(limits.archive_bytes + 1)
    except OSError as error:
        raise HostError("INTAKE_ARCHIVE_UNREADABLE", f"the archive {path} cannot be read: {error.strerror}.") from error
    return screen_files(unpack(archive, limits=limits), limits=limits, catalog=catalog, may_fork=True)


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
