"""Documents that are served byte for byte: ledgers, receipts, and what stands behind them.

Invariants
1. A ledger or a receipt is served only if its bytes have the digest it was asked by; a damaged one is not there.
2. An attempt file is served only when a signed verdict names it: the attempt is over, and its shapes are public.
3. Nothing larger than `DOCUMENT_BYTES` is read, or than `RECEIPT_BYTES` of a ledger or a receipt.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from sqlalchemy import Connection, select

from config.errors import NotFoundError
from config.limits import RECEIPT_BYTES
from node.store.layout import StateLayout
from node.store.schema import attempts

DOCUMENT_BYTES = 16 * 1024 * 1024  # of what is no receipt
JSON, GZIP, TOML = "application/json", "application/gzip", "application/toml"


def read_ledger_file(layout: StateLayout, digest: str) -> bytes:
    """Return a ledger. Raises `NotFoundError` (LEDGER_NOT_FOUND)."""
    body = _bytes(layout.ledger / digest, RECEIPT_BYTES)
    if not body or hashlib.sha256(body).hexdigest() != digest:  # absent, damaged, or larger than any ledger
        raise NotFoundError(
            "LEDGER_NOT_FOUND", f"this node has no ledger document {digest}",
            hint="the validator's commitment on the chain names the newest one",
        )
    return body


def read_receipt_file(layout: StateLayout, digest: str) -> bytes:
    """Return a receipt. Raises `NotFoundError` (DOCUMENT_NOT_FOUND)."""
    body = _bytes(layout.receipts / f"{digest}.json", RECEIPT_BYTES)
    if not body or hashlib.sha256(body).hexdigest() != digest:
        raise _absent("receipt", digest)
    return body


def read_named_file(folder: Path, name: str, what: str, digest: str) -> bytes:
    """Return an arena or target document, whose reader checks it. Raises `NotFoundError` (DOCUMENT_NOT_FOUND)."""
    body = _bytes(folder / name)
    if not body:
        raise _absent(what, digest)
    return body


def attempt_path(connection: Connection, digest: str) -> str:
    """Return where the attempt file with that digest lies below the state folder.

    Raises `NotFoundError` (DOCUMENT_NOT_FOUND) when there is none that a verdict names.
    """
    wanted = (attempts.c.digest == digest) & (attempts.c.receipt_digest != "")
    path = connection.scalar(select(attempts.c.path).where(wanted).limit(1))
    if not path:
        raise _absent("attempt file that a verdict names", digest)
    return str(path)


def read_attempt_file(layout: StateLayout, path: str, digest: str) -> bytes:
    """Return an attempt file, gzipped. Raises `NotFoundError` (DOCUMENT_NOT_FOUND)."""
    return read_named_file(layout.root, path, "attempt file", digest)


def _bytes(path: Path, limit: int = DOCUMENT_BYTES) -> bytes:
    try:
        with path.open("rb") as file:
            body = file.read(limit + 1)
    except OSError:
        return b""
    return body if len(body) <= limit else b""


def _absent(what: str, digest: str) -> NotFoundError:
    return NotFoundError(
        "DOCUMENT_NOT_FOUND", f"this node has no {what} {digest}", hint="`/api/v1/receipts` lists what there is"
    )
