"""The immutable, content-addressed store of screened bundles.

Layout: `<store>/<first two hex>/<content hash>/tree/...` and `report.json` beside `tree`.

Invariants
1. The only names made from input are the content hash and paths that pass `intake.names`.
2. An entry appears complete, by one rename, or not at all; whatever a crash leaves behind lies under `.staging`.
3. Files are 0444 and folders 0555 whatever the umask; nothing in an entry is executable or a link.
4. An entry is believed only after its tree was hashed again. A damaged one is replaced by `publish`, and refused by
   `open_published`, so a bad disk or a bad hand heals with the next fetch.
5. Publishing twice gives the same entry; a newer report of the same bytes replaces the older one.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from config.canonical import is_digest, sha256_hex
from config.errors import Blame, CacheonError, HostError, IntakeError, NotFoundError
from intake.content_hash import hash_files, read_tree
from intake.file_stream import read_stream
from intake.report import IntakeReport, decode_report, encode_report

_FILE_MODE = 0o444
_FOLDER_MODE = 0o555
_ENTRY_MODE = 0o755
_STAGING = ".staging"


class PublishedBundle(NamedTuple):
    """One entry of the store: its identity, its tree and its report."""

    content_hash: str
    tree: Path
    report_path: Path


def entry_path(store: Path, content_hash: str) -> Path:
    """Return where the entry of a content hash lies. Raises `IntakeError` (BUNDLE_HASH_INVALID)."""
    if not is_digest(content_hash):
        raise IntakeError("BUNDLE_HASH_INVALID", f"{content_hash[:80]!r} is not a content hash.")
    return store / content_hash[:2] / content_hash


def publish(stream: bytes | memoryview, report: IntakeReport, store: Path) -> PublishedBundle:
    """Publish the file stream of an accepted bundle and its report.

    Raises `IntakeError` (FILE_STREAM_MALFORMED; REPORT_MISMATCH when report and stream disagree) and `HostError`
    (STORE_WRITE_FAILED).
    """
    files = read_stream(stream)
    _check_agreement(stream, files, report)
    entry = entry_path(store, report.content_hash)
    try:
        if _is_sound(entry, report.content_hash):
            _write_report(entry, report)
            return _published(entry, report.content_hash)
        _discard(entry, store)
        staged = _stage(files, report, store)
        try:
            entry.parent.mkdir(parents=True, exist_ok=True)
            os.chmod(entry.parent, _ENTRY_MODE)
            os.rename(staged, entry)
        except OSError:
            # Somebody else may have published the same bytes meanwhile.
            if not _is_sound(entry, report.content_hash):
                raise
        finally:
            _remove(staged)
        _sync(entry.parent)
    except OSError as error:
        raise HostError(
            "STORE_WRITE_FAILED",
            f"the bundle store {store} cannot be written: {error.strerror or error}.",
            hint="Check free space and permissions of the state folder.",
        ) from error
    return _published(entry, report.content_hash)


def open_published(store: Path, content_hash: str) -> PublishedBundle:
    """Return a published bundle after verifying every byte of it.

    Raises `NotFoundError` (BUNDLE_NOT_PUBLISHED) and `HostError` (STORE_ENTRY_DAMAGED).
    """
    entry = entry_path(store, content_hash)
    if not entry.exists():
        raise NotFoundError(
            "BUNDLE_NOT_PUBLISHED",
            f"no bundle {content_hash} is in {store}.",
            hint="It has to be fetched and screened.",
        )
    if not _is_sound(entry, content_hash):
        raise HostError(
            "STORE_ENTRY_DAMAGED",
            f"the stored bundle {content_hash} does not match its hash.",
            hint="It is replaced when the bundle is fetched and published again; check the disk.",
        )
    return _published(entry, content_hash)


def sweep_staging(store: Path) -> None:
    """Remove what crashed publications left behind. Call it only while nobody publishes."""
    staging = store / _STAGING
    if staging.is_dir():
        for leftover in staging.iterdir():
            _remove(leftover)


def _published(entry: Path, content_hash: str) -> PublishedBundle:
    return PublishedBundle(content_hash, entry / "tree", entry / "report.json")


def _check_agreement(stream: bytes | memoryview, files: Mapping[str, memoryview], report: IntakeReport) -> None:
    listed = tuple((entry.path, entry.size, entry.sha256) for entry in report.files)
    actual = tuple((path, len(content), sha256_hex(content)) for path, content in files.items())
    if not report.accepted or sha256_hex(stream) != report.content_hash or listed != actual:
        raise IntakeError(
            "REPORT_MISMATCH", "an intake report does not describe the files that came with it.", blame=Blame.INTERNAL
        )


def _is_sound(entry: Path, content_hash: str) -> bool:
    """Say whether an entry holds exactly the bytes of its hash, with a readable report and no way to change it."""
    if not entry.is_dir():
        return False
    try:
        tree = entry / "tree"
        if {item.name for item in entry.iterdir()} != {"tree", "report.json"} or not _is_sealed(tree):
            return False
        report = decode_report((entry / "report.json").read_bytes())
        return report.content_hash == content_hash and hash_files(read_tree(tree, strict=True)) == content_hash
    except (OSError, CacheonError):
        return False


def _is_sealed(tree: Path) -> bool:
    for folder, _, names in os.walk(tree):
        paths = [folder, *(os.path.join(folder, name) for name in names)]
        if any(stat.S_IMODE(os.lstat(path).st_mode) & 0o222 for path in paths):
            return False
    return True


def _stage(files: Mapping[str, memoryview], report: IntakeReport, store: Path) -> Path:
    staged = store / _STAGING / f"{report.content_hash[:16]}-{secrets.token_hex(8)}"
    tree = staged / "tree"
    tree.mkdir(parents=True)
    folders = {tree}
    for path, content in files.items():
        target = tree / path
        if target.parent not in folders:
            target.parent.mkdir(parents=True, exist_ok=True)
            folders.add(target.parent)
        _write_file(target, content)
    _write_file(staged / "report.json", encode_report(report))
    for folder, _, _ in os.walk(tree, topdown=False):
        os.chmod(folder, _FOLDER_MODE)
    os.chmod(staged, _ENTRY_MODE)
    return staged


def _write_report(entry: Path, report: IntakeReport) -> None:
    data = encode_report(report)
    if (entry / "report.json").read_bytes() == data:
        return
    temporary = entry.parent / f".{entry.name}-{secrets.token_hex(8)}"
    try:
        _write_file(temporary, data)
        os.replace(temporary, entry / "report.json")
    finally:
        temporary.unlink(missing_ok=True)


def _write_file(path: Path, content: bytes | memoryview) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as stream:
        stream.write(content)
        os.fchmod(descriptor, _FILE_MODE)


def _discard(entry: Path, store: Path) -> None:
    """Move a damaged entry out of the way, then remove it."""
    if not os.path.lexists(entry):
        return
    staging = store / _STAGING
    staging.mkdir(parents=True, exist_ok=True)
    doomed = staging / f"damaged-{secrets.token_hex(8)}"
    os.rename(entry, doomed)
    _remove(doomed)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for folder, _, _ in os.walk(path):
            with contextlib.suppress(OSError):
                os.chmod(folder, 0o700)
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
