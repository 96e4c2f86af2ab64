"""`cacheon chain-publish`: put a bundle's archive where validators can fetch it, and fetch it as they do.

Invariants
1. What is uploaded is packed from the folder at that moment, and refused first if a validator would refuse it.
2. Success means: the object was read again without credentials, by the validator's own fetcher, and unpacks to the
   content hash. What the store said of the upload counts for nothing.
3. An object at the key that is not this bundle is never replaced.
"""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from config.canonical import sha256_hex
from config.errors import CacheonError, ConfigurationError, IntakeError
from config.limits import INTAKE
from config.settings import Settings
from node.cli.miner import bundle_folder, prepare
from node.cli.options import ChainChoice
from node.cli.output import Output, facts
from node.cli.resolve import resolve

if TYPE_CHECKING:
    from rich.console import Console

    from intake.package import PackedArchive
    from node.object_store import ObjectStore, Place

SCHEMA = "bundle-archive-v1"
CONTENT_TYPE = "application/gzip"
CACHE_CONTROL = "public, max-age=31536000, immutable"
_REOPEN_TRIES = 3
_REOPEN_SECONDS = 1.0


@dataclass(frozen=True)
class Wish:
    """What the command line says about the place."""

    place: Place
    prefix: str
    dry_run: bool


class Published(msgspec.Struct, frozen=True):
    """The result as `--json` shows it. `uploaded` is False when the object was there already, or in a dry run."""

    url: str
    bucket: str
    key: str
    content_hash: str
    archive_sha256: str
    archive_bytes: int
    uploaded: bool
    dry_run: bool = False


def run(bundle: str, wish: Wish, choice: ChainChoice, *, as_json: bool) -> None:
    """Publish `bundle`.

    Raises `IntakeError` for what a validator would refuse, `ConfigurationError`, `HostError` and `NetworkError` (S3_*)
    for the store, and what `intake.fetch` raises when the object cannot be fetched.
    """
    from intake.package import pack_bundle

    output = Output("chain-publish", as_json=as_json)
    settings = resolve(choice.config, choice.overrides()).settings
    folder = bundle_folder(bundle)
    packed = pack_bundle(folder)
    published = _publish(folder, packed, wish, settings, output)
    output.result(published, lambda console: _show(console, published))
    if wish.dry_run:
        output.note("nothing was uploaded")
    flags = "".join(f" {flag}" for flag in choice.chain_flags())
    output.note(f"next: `cacheon chain-submit {shlex.quote(bundle)} --url {shlex.quote(published.url)}{flags}`")


def _publish(folder: Path, packed: PackedArchive, wish: Wish, settings: Settings, output: Output) -> Published:
    from node.object_store import ObjectStore, object_key

    key = object_key(wish.prefix, packed.content_hash)
    store = ObjectStore(wish.place)
    try:
        url = store.url(key)
        prepare(folder, url, allow_loopback_http=settings.is_devnet)  # before anything is sent: can it be committed?
        uploaded = False
        if not wish.dry_run:
            uploaded = upload(store, key, packed)
            output.note("uploaded" if uploaded else "the object is there already")
            asyncio.run(reopen(url, packed.content_hash, settings))
            output.note("fetched without credentials and hashed: it is this bundle")
    finally:
        store.close()
    archive_sha256 = sha256_hex(packed.data)
    return Published(
        url, wish.place.bucket, key, packed.content_hash, archive_sha256, len(packed.data), uploaded, wish.dry_run
    )


def upload(store: ObjectStore, key: str, packed: PackedArchive) -> bool:
    """Make sure that the object is there; return whether it had to be written.

    Raises `ConfigurationError` (S3_OBJECT_DIFFERS) when something else is there.
    """
    from node.object_store import NewObject

    if _is_there(store, key, packed.content_hash):
        return False
    metadata = {
        "cacheon-content-sha256": packed.content_hash,
        "cacheon-archive-sha256": sha256_hex(packed.data),
        "cacheon-schema": SCHEMA,
    }
    if store.create(NewObject(key, packed.data, CONTENT_TYPE, CACHE_CONTROL, metadata)):
        return True
    _is_there(store, key, packed.content_hash)  # somebody was faster, or the first answer got lost
    return False


def _is_there(store: ObjectStore, key: str, content_hash: str) -> bool:
    """Whether this bundle is at `key`; False also when these credentials cannot tell, which `reopen` then does."""
    from node.object_store import Unread

    found = store.read(key, INTAKE.archive_bytes)
    if isinstance(found, Unread):
        return False
    seen = content_hash_of(found)
    if seen != content_hash:
        what = f"a bundle with content hash {seen}" if seen else "no archive that a validator would read"
        raise ConfigurationError(
            "S3_OBJECT_DIFFERS",
            f"the object {key} exists and is {what}; it is not replaced",
            hint="remove it yourself if nothing was committed with its URL, or publish under another --prefix",
        )
    return True


def content_hash_of(archive: bytes) -> str:
    """Return the content hash of a packed bundle; "" for bytes that are none."""
    from intake.archive import unpack
    from intake.content_hash import hash_files

    try:
        return hash_files(unpack(archive))
    except IntakeError:
        return ""


async def reopen(url: str, content_hash: str, settings: Settings) -> None:
    """Fetch `url` as a validator does and compare.

    Raises `ConfigurationError` (S3_NOT_PUBLIC, S3_PUBLIC_DIFFERS) and whatever else `ArchiveFetcher.fetch` raises.
    """
    from intake.fetch import ArchiveFetcher, FetchPolicy

    async with ArchiveFetcher(FetchPolicy.from_settings(settings.intake, settings.profile)) as fetcher:
        for remaining in reversed(range(_REOPEN_TRIES)):
            try:
                fetched = await fetcher.fetch(url)
                break
            except CacheonError as error:
                if error.code != "FETCH_STATUS":
                    raise
                if not remaining:
                    raise ConfigurationError(
                        "S3_NOT_PUBLIC",
                        f"the object is stored, but not readable by everybody at {url}: {error.message}",
                        hint="allow anonymous reads (s3:GetObject) of the prefix in the bucket's policy, "
                        "or give its public address with --public-url",
                    ) from error
            await asyncio.sleep(_REOPEN_SECONDS)  # a front cache may need a moment
    seen = content_hash_of(fetched.data)
    if seen != content_hash:
        raise ConfigurationError(
            "S3_PUBLIC_DIFFERS",
            f"{url} serves {f'content hash {seen}' if seen else 'something that is no bundle'}, not this bundle",
            hint="check --public-url, and that no proxy changes or unpacks the archive",
        )


def _show(console: Console, published: Published) -> None:
    archive = f"{published.archive_sha256} ({published.archive_bytes} bytes)"
    rows = [("url", published.url), ("content hash", published.content_hash), ("archive sha256", archive)]
    facts(console, rows)
