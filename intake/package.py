"""Deterministic packaging: the same tree always becomes the same archive bytes (for one zlib).

Invariants
1. Members are exactly the hashed files in path order under one wrapper folder named after the content hash; no folder
   and no link members, mode 0644, owner 0/0 without names, all times 0.
2. A bundle that a validator would refuse is not packaged; the refusal names everything that is wrong.
3. The output never lies inside the bundle, where it would change the identity it carries. It appears complete or not
   at all.
"""

from __future__ import annotations

import gzip
import io
import os
import secrets
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from config.canonical import sha256_hex, sorted_paths
from config.errors import IntakeError
from config.limits import INTAKE, IntakeLimits
from config.target_catalog import TargetCatalog
from intake.content_hash import HashedFile, hash_files
from intake.refusal import host_fault
from intake.scan import screen_directory

_LEVEL = 9


class PackagedBundle(NamedTuple):
    """A written archive: where it is, what it identifies, and what it covers (path order)."""

    path: Path
    content_hash: str
    archive_sha256: str
    archive_bytes: int
    files: tuple[HashedFile, ...]


class PackedArchive(NamedTuple):
    """An archive in memory: its bytes, what they identify, and what they cover (path order)."""

    data: bytes
    content_hash: str
    files: tuple[HashedFile, ...]


def package_bundle(
    directory: Path, out: Path, *, limits: IntakeLimits = INTAKE, catalog: TargetCatalog | None = None
) -> PackagedBundle:
    """Write the archive of a bundle folder to `out`, replacing an older file.

    Raises `IntakeError`: OUTPUT_INSIDE_BUNDLE, OUTPUT_UNWRITABLE, ARCHIVE_TOO_LARGE, whatever a validator would refuse
    (`BundleRefused`); `NotFoundError` (BUNDLE_NOT_FOUND).
    """
    target = Path(os.path.realpath(out))
    root = Path(os.path.realpath(directory))
    if target == root or root in target.parents:
        raise IntakeError(
            "OUTPUT_INSIDE_BUNDLE",
            "the archive would lie inside the bundle and change its content hash.",
            hint="Choose an output path outside the bundle folder.",
        )
    packed = pack_bundle(directory, limits=limits, catalog=catalog)
    _write(target, packed.data)
    return PackagedBundle(target, packed.content_hash, sha256_hex(packed.data), len(packed.data), packed.files)


def pack_bundle(
    directory: Path, *, limits: IntakeLimits = INTAKE, catalog: TargetCatalog | None = None
) -> PackedArchive:
    """Return the archive of a bundle folder.

    Raises `IntakeError`: ARCHIVE_TOO_LARGE, whatever a validator would refuse (`BundleRefused`); `NotFoundError`
    (BUNDLE_NOT_FOUND).
    """
    screened = screen_directory(directory, limits=limits, catalog=catalog)
    archive = package_bytes(screened.files)
    if len(archive) > limits.archive_bytes:
        raise IntakeError("ARCHIVE_TOO_LARGE", f"the archive is larger than {limits.archive_bytes} bytes.")
    covered = tuple(HashedFile(entry.path, entry.size) for entry in screened.report.files)
    return PackedArchive(archive, screened.report.content_hash, covered)


def package_bytes(files: Mapping[str, bytes]) -> bytes:
    """Return the archive of a file table (path -> content). Raises `IntakeError` (BUNDLE_EMPTY, NAME_*)."""
    wrapper = f"bundle-{hash_files(files)[:16]}"
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=buffer, mtime=0) as compressed:
        with tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path in sorted_paths(files):
                member = tarfile.TarInfo(f"{wrapper}/{path}")
                member.size = len(files[path])
                member.mode = 0o644
                archive.addfile(member, io.BytesIO(files[path]))
    return buffer.getvalue()


def _write(target: Path, data: bytes) -> None:
    if target.exists() and not target.is_file():
        kind = "a folder" if target.is_dir() else "no regular file"
        raise host_fault("OUTPUT_UNWRITABLE", f"{target} is {kind}.", hint="Choose another output path.")
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb") as stream:
            stream.write(data)
        os.replace(temporary, target)
    except OSError as error:
        raise host_fault(
            "OUTPUT_UNWRITABLE", f"{target} cannot be written: {error.strerror}.", hint="Choose another output path."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
