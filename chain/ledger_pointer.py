"""What a validator commits about its crown ledger, and how it is spelled in a commitment.

A plain commitment of exactly three fields: `Raw` with the text `cacheon-ledger:1:<url>`, `Sha256` with the digest of
the ledger document, `Raw32` with the 32 bytes of the Ed25519 key that signed it. The document lies at `<url>/<digest>`.

Invariants
1. One pointer has one spelling; what is not exactly that is no pointer, and another version is said to be one.
2. The fields are read raw, because the SDK's decoder confuses text with hexadecimal.
3. Everything fits the runtime's limits: three fields, 128 bytes of text.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from chain.scale import ScaleError, ScaleReader
from config.canonical import is_digest
from config.errors import ConfigurationError
from config.urls import url_problem

PREFIX = "cacheon-ledger:1:"
_FAMILY = b"cacheon-ledger:"
_RAW_0, _RAW_128, _SHA256 = 1, 129, 131
_HASHES = range(130, 134)
_SEALED = (134, 137)  # timelocked, and timelocked but not opened
_BIG_RAW = 136
_REGISTRATION_HEAD = 8 + 4  # deposit and block before the fields
URL_LIMIT = _RAW_128 - _RAW_0 - len(PREFIX)


class LedgerPointer(msgspec.Struct, frozen=True):
    """Where a validator's ledger lies: its digest, the base URL, and the public key (hex) that signs it."""

    digest: str
    url: str
    receipt_key: str

    @property
    def document_url(self) -> str:
        """The URL of the document itself."""
        return f"{self.url}/{self.digest}"


class LedgerCommitment(msgspec.Struct, frozen=True):
    """What a stored commitment is: `pointer` only for a ledger; `block` is where it was committed."""

    kind: Literal["none", "ledger", "other-version", "sealed", "other"]
    block: int = 0
    pointer: LedgerPointer | None = None


def ledger_base_url(url: str, *, allow_loopback_http: bool) -> str:
    """Return the base URL as it is committed, without a slash at its end.

    Raises `ConfigurationError` (LEDGER_URL_INVALID).
    """
    base = url.rstrip("/")
    problem = url_problem(f"{base}/{'0' * 64}", allow_loopback_http=allow_loopback_http)
    if not problem and len(base) > URL_LIMIT:
        problem = f"has {len(base)} characters, and a commitment holds {URL_LIMIT}"
    if problem:
        raise ConfigurationError(
            "LEDGER_URL_INVALID", f"`publication.ledger_url` {problem}.",
            hint=f"give a public https:// URL of at most {URL_LIMIT} characters under which the folder is served",
        )
    return base


def pointer_arguments(netuid: int, pointer: LedgerPointer) -> dict[str, object]:
    """Return the arguments of `set_commitment` that commit `pointer`."""
    text = (PREFIX + pointer.url).encode("ascii")
    fields = [
        {f"Raw{len(text)}": text},
        {"Sha256": bytes.fromhex(pointer.digest)},
        {"Raw32": bytes.fromhex(pointer.receipt_key)},
    ]
    return {"netuid": netuid, "info": {"fields": [fields]}}


def read_commitment(raw: bytes | None) -> LedgerCommitment:
    """Return what the raw value of `Commitments.CommitmentOf` is; never raises."""
    if raw is None:
        return LedgerCommitment("none")
    block = int.from_bytes(raw[8:_REGISTRATION_HEAD], "little")
    try:
        fields = _read_fields(raw)
    except ScaleError:
        return LedgerCommitment("other", block)
    if any(variant in _SEALED for variant, _ in fields):
        return LedgerCommitment("sealed", block)
    pointer = _pointer_of(fields)
    if pointer is not None:
        return LedgerCommitment("ledger", block, pointer)
    ours = bool(fields) and fields[0][1].startswith(_FAMILY) and not fields[0][1].startswith(PREFIX.encode())
    return LedgerCommitment("other-version" if ours else "other", block)


def _pointer_of(fields: list[tuple[int, bytes]]) -> LedgerPointer | None:
    if len(fields) != 3:
        return None
    (_, text), (middle, digest), (last, key) = fields
    if not text.startswith(PREFIX.encode()) or not text.isascii() or middle != _SHA256 or last != _RAW_0 + 32:
        return None
    pointer = LedgerPointer(digest.hex(), text.decode("ascii").removeprefix(PREFIX), key.hex())
    return pointer if is_digest(pointer.digest) else None


def _read_fields(raw: bytes) -> list[tuple[int, bytes]]:
    """Return (variant, data) of each field."""
    reader = ScaleReader(raw, _REGISTRATION_HEAD)
    fields: list[tuple[int, bytes]] = []
    for _ in range(reader.compact()):
        variant = reader.unsigned(1)
        if _RAW_0 <= variant <= _RAW_128:
            fields.append((variant, reader.take(variant - _RAW_0)))
        elif variant in _HASHES:
            fields.append((variant, reader.take(32)))
        elif variant in _SEALED:
            fields.append((variant, reader.sized_bytes()))
            reader.take(8)
        elif variant == _BIG_RAW:
            fields.append((variant, reader.sized_bytes()))
        else:
            fields.append((variant, b""))
    reader.done()
    return fields
