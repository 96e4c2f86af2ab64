"""What a miner's commands do, without the talking; the demo's miners use the same functions.

Invariants
1. The content hash that is committed is computed from the folder at that moment, never taken from an archive or a file.
2. What a validator would refuse is refused here first, by the same code.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chain.payload import Payload, sealable_payload
from config.errors import ConfigurationError, ErrorDocument, IntakeError, SourceLocation

if TYPE_CHECKING:
    from chain.client import ChainClient
    from chain.commitments import CommitmentReceipt
    from chain.signer import Signer


@dataclass(frozen=True)
class Prepared:
    """A bundle ready to be committed."""

    content_hash: str
    url: str
    payload: bytes


def refusal_of(finding: ErrorDocument) -> IntakeError:
    """Return the error that a finding was written from."""
    place = SourceLocation.read(finding.location) if finding.location else None
    return IntakeError(finding.code, finding.message, hint=finding.hint, location=place)


def bundle_folder(bundle: str) -> Path:
    """Return the folder of a bundle. Raises `ConfigurationError` (BUNDLE_FOLDER_MISSING)."""
    folder = Path(bundle)
    if not folder.is_dir():
        raise ConfigurationError(
            "BUNDLE_FOLDER_MISSING", f"there is no folder {bundle}", hint="name the folder that holds manifest.toml"
        )
    return folder


def bundle_path(bundle: str) -> Path:
    """Return the path of a bundle's folder or archive. Raises `ConfigurationError` (BUNDLE_FOLDER_MISSING)."""
    path = Path(bundle)
    if not (path.is_dir() or path.is_file()):  # opening a pipe would wait for a writer
        raise ConfigurationError(
            "BUNDLE_FOLDER_MISSING",
            f"there is no folder or archive {bundle}",
            hint="name the folder that holds manifest.toml, or the .tar.gz that chain-package wrote",
        )
    return path


def prepare(folder: Path, url: str, *, allow_loopback_http: bool) -> Prepared:
    """Hash and check the tree and encode payload v1.

    Raises `BundleRefused` (with all findings), `IntakeError` (a tree without a hash), `ConfigurationError`
    (PAYLOAD_INVALID, PAYLOAD_UNSEALABLE).
    """
    from intake.content_hash import hash_tree
    from intake.refusal import BundleRefused
    from intake.scan import scan_directory

    findings = scan_directory(folder)
    if findings:
        raise BundleRefused(refusal_of(findings[0]), findings)
    content_hash = hash_tree(folder).hex
    payload = sealable_payload(Payload(content_hash, url), allow_loopback_http=allow_loopback_http)
    return Prepared(content_hash, url, payload)


async def require_registration(client: ChainClient, signer: Signer, netuid: int) -> None:
    """Raise `ChainError` (SUBNET_NOT_FOUND) or `WalletError` (HOTKEY_NOT_REGISTERED) unless the hotkey may commit."""
    from chain.metagraph import read_metagraph
    from chain.wallet import require_registered

    block = await client.finalized_head()
    await client.require_subnet(netuid, block)
    require_registered(await read_metagraph(client, netuid, block), signer.ss58_address)


async def commit(
    client: ChainClient, signer: Signer, prepared: Prepared, *, netuid: int, profile: str, reveal_in_blocks: int
) -> CommitmentReceipt:
    """Seal and commit. The hotkey must be registered. Raises `WalletError`, `ChainError`, `NetworkError`."""
    from chain.commitments import submit_commitment

    await require_registration(client, signer, netuid)
    return await submit_commitment(
        client, signer, netuid, prepared.payload, profile=profile, reveal_in_blocks=reveal_in_blocks
    )


def submission_id(hotkey: str, content_hash: str) -> str:
    """Return the id under which a miner follows what was committed."""
    return f"{hotkey}:{content_hash}"
