"""`cacheon chain-package`: the archive of a bundle, its content hash, and every file the hash covers."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from config.errors import ConfigurationError, IntakeError
from intake.content_hash import hash_tree
from intake.package import PackagedBundle, package_bundle
from node.cli.miner import bundle_folder
from node.cli.output import Output, facts, table

if TYPE_CHECKING:
    from rich.console import Console


class CoveredFile(msgspec.Struct, frozen=True):
    """One file under the content hash; `size` is in bytes."""

    path: str
    size: int


class Packaged(msgspec.Struct, frozen=True):
    """The result as `--json` shows it."""

    archive: str
    content_hash: str
    archive_sha256: str
    archive_bytes: int
    files: tuple[CoveredFile, ...]


def run(bundle: str, out: str | None, *, as_json: bool) -> None:
    """Pack `bundle`. Raises `IntakeError` for what a validator would refuse, `ConfigurationError` for a bad folder."""
    output = Output("chain-package", as_json=as_json)
    folder = bundle_folder(bundle)
    packed = package(folder, Path(out) if out else Path(f"{hash_tree(folder).hex}.tar.gz"))
    result = Packaged(
        archive=str(packed.path.absolute()),
        content_hash=packed.content_hash,
        archive_sha256=packed.archive_sha256,
        archive_bytes=packed.archive_bytes,
        files=tuple(CoveredFile(file.path, file.size) for file in packed.files),
    )
    output.result(result, lambda console: _show(console, result))
    output.note(f"next: publish the archive, then `cacheon chain-submit {shlex.quote(bundle)} --url URL`")


def package(folder: Path, target: Path) -> PackagedBundle:
    """Write the archive of `folder` to `target`.

    Raises `IntakeError` for the bundle, and `ConfigurationError` (OUTPUT_UNWRITABLE, OUTPUT_INSIDE_BUNDLE) for the
    place: where to write is the command line's matter, and no rejection of the bundle.
    """
    try:
        return package_bundle(folder, target)
    except IntakeError as error:
        if not error.code.startswith("OUTPUT_"):
            raise
        raise ConfigurationError(
            error.code, error.message, hint="name a file in a writable folder with --out"
        ) from error


def _show(console: Console, result: Packaged) -> None:
    archive = f"{result.archive} ({result.archive_bytes} bytes)"
    facts(console, [("content hash", result.content_hash), ("archive", archive)])
    console.print(table(("file under the hash", "bytes"), [(file.path, str(file.size)) for file in result.files]))
