"""Signs receipts with the node's receipt key and keeps them as files named by digest.

Invariants
1. The key is made once, from the system's randomness, readable by its owner only; a key that others can read or that
   is damaged is refused, never replaced.
2. A receipt's file is completely on disk before its digest is handed out; the same statement gives the same file.
3. The public half lies beside the key as `receipt.pub`, for whoever checks receipts. That of a key that was replaced
   is kept as `receipt.<its first digits>.pub`, because older receipts verify under nothing else.
"""

from __future__ import annotations

import stat
from pathlib import Path

import structlog
from nacl.utils import random

from config.canonical import is_digest, sha256_hex
from config.errors import GradeError, HostError
from node.store.layout import StateLayout, write_durably
from scoring.dsse import Statement, public_key, sign, verify
from scoring.receipts import VerdictPredicate, read_predicate

_SEED_BYTES = 32


class ReceiptBook:
    """The signing key and the folder of receipts. All methods block for one small file."""

    def __init__(self, layout: StateLayout, seed: bytes) -> None:
        self._layout = layout
        self._seed = seed

    @classmethod
    def open(cls, layout: StateLayout) -> ReceiptBook:
        """Load the key, or make it on the first start. Raises `HostError` (RECEIPT_KEY_UNUSABLE)."""
        path = layout.receipt_key
        try:
            if not path.exists():
                write_durably(path, random(_SEED_BYTES).hex().encode() + b"\n")
            if stat.S_IMODE(path.stat().st_mode) & 0o077:
                raise _unusable(path, "others can read it")
            seed = bytes.fromhex(path.read_text("ascii").strip())
        except (OSError, ValueError) as error:  # a failing write is a HostError of its own
            raise _unusable(path, str(error)) from error
        if len(seed) != _SEED_BYTES:
            raise _unusable(path, "it is no Ed25519 seed of 32 bytes")
        book = cls(layout, seed)
        _keep_public(path.with_suffix(".pub"), book.public_key.hex())
        return book

    @property
    def public_key(self) -> bytes:
        """The 32 public bytes that receipts verify under."""
        return public_key(self._seed)

    def sign(self, statement: Statement) -> str:
        """Sign `statement`, store the envelope and return its digest."""
        return self.keep(self.seal(statement))

    def keep(self, envelope: bytes) -> str:
        """Store an envelope, signed here or elsewhere, and return its digest."""
        digest = sha256_hex(envelope)
        path = self.path(digest)
        if not path.exists():
            write_durably(path, envelope, mode=0o644)
        return digest

    def seal(self, statement: Statement) -> bytes:
        """Sign `statement` and return the envelope; nothing is stored."""
        return sign(statement, self._seed)

    def waived(self, verdicts: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return the sandbox layers that were waived in any of the attempts behind these verdict receipts, sorted.

        None when a receipt is gone, or was signed by a key that was replaced since: then nobody here can say.
        """
        layers: set[str] = set()
        try:
            for digest in verdicts:
                statement = verify(self.path(digest).read_bytes(), [self.public_key])
                layers.update(read_predicate(statement, VerdictPredicate).environment.layers_waived)
        except (OSError, GradeError):
            return None
        return tuple(sorted(layers))

    def path(self, digest: str) -> Path:
        """Return where the receipt with that digest lies."""
        return self._layout.receipts / f"{digest}.json"


def _keep_public(path: Path, text: str) -> None:
    try:
        former = path.read_text("ascii", "replace").strip() if path.exists() else ""
        if former and former != text:
            structlog.get_logger().warning("receipt_key.replaced", former=former, present=text)
            if is_digest(former):  # 64 hexadecimal digits
                path.replace(path.with_name(f"receipt.{former[:16]}.pub"))
    except OSError as error:
        raise _unusable(path, str(error)) from error
    if former != text:
        write_durably(path, text.encode() + b"\n", mode=0o644)


def _unusable(path: Path, reason: str) -> HostError:
    return HostError(
        "RECEIPT_KEY_UNUSABLE", f"the receipt key {path} cannot be used: {reason}",
        hint="restore it from a backup and give it mode 0600; without a backup, move it away to start a new key",
    )
