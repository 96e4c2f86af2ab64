"""Statements signed with a validator's receipt key: Ed25519 over the DSSE encoding of `config.statement`.

Invariants
1. A key's id is the SHA-256 of its 32 public bytes. Only keys the caller names are believed.
2. Nothing of a payload is interpreted before a signature over it has been verified.
"""

from __future__ import annotations

from collections.abc import Iterable

from nacl.exceptions import BadSignatureError, CryptoError
from nacl.signing import SigningKey, VerifyKey

from config.canonical import sha256_hex
from config.errors import Blame, GradeError, InternalError
from config.statement import (
    PAYLOAD_TYPE,
    STATEMENT_TYPE,
    Statement,
    Subject,
    open_envelope,
    payload_of,
    pre_authentication,
    read_statement,
    seal,
)

__all__ = [
    "PAYLOAD_TYPE", "STATEMENT_TYPE", "Statement", "Subject", "key_id", "public_key", "sign", "verify", "verify_signed",
]


def key_id(public_key: bytes) -> str:
    """Return the id of a 32-byte Ed25519 public key."""
    return sha256_hex(public_key)


def public_key(secret: bytes) -> bytes:
    """Return the 32 public bytes of a 32-byte Ed25519 seed. Raises `InternalError` (RECEIPT_KEY_INVALID)."""
    return bytes(_signing_key(secret).verify_key)


def sign(statement: Statement, secret: bytes) -> bytes:
    """Return the canonical envelope of `statement` signed with a 32-byte Ed25519 seed.

    Raises `InternalError` (RECEIPT_KEY_INVALID).
    """
    key = _signing_key(secret)
    payload = payload_of(statement)
    return seal(payload, key_id(bytes(key.verify_key)), key.sign(pre_authentication(payload)).signature)


def verify(data: bytes, trusted_keys: Iterable[bytes]) -> Statement:
    """Return the statement in an envelope that one of `trusted_keys` (32 public bytes each) has signed.

    Raises `GradeError`: RECEIPT_MALFORMED, RECEIPT_UNTRUSTED (no signature by a trusted key), RECEIPT_FORGED (a
    signature that names a trusted key does not verify), RECEIPT_KEY_INVALID.
    """
    return verify_signed(data, trusted_keys)[0]


def verify_signed(data: bytes, trusted_keys: Iterable[bytes]) -> tuple[Statement, str]:
    """Return the statement in an envelope and the id of the trusted key that signed it. Raises what `verify` raises."""
    sealed = open_envelope(data)
    trusted = {key_id(key): key for key in trusted_keys}
    by_trusted = [(keyid, signature) for keyid, signature in sealed.signatures if keyid in trusted]
    if not by_trusted:
        raise GradeError(
            "RECEIPT_UNTRUSTED", "no trusted key signed this receipt", hint="name the validator's receipt key"
        )
    ((name, signature),) = by_trusted
    _verify_one(trusted[name], sealed.message, signature)
    return read_statement(sealed.payload), name


def _signing_key(secret: bytes) -> SigningKey:
    try:
        return SigningKey(secret)
    except (CryptoError, ValueError, TypeError) as error:
        raise InternalError(
            "RECEIPT_KEY_INVALID", "a receipt key is a seed of 32 bytes", blame=Blame.OPERATOR
        ) from error


def _verify_one(key: bytes, message: bytes, signature: bytes) -> None:
    try:
        VerifyKey(key).verify(message, signature)
    except BadSignatureError as error:
        raise GradeError("RECEIPT_FORGED", "the receipt was changed after it had been signed") from error
    except (CryptoError, ValueError, TypeError) as error:
        raise GradeError("RECEIPT_KEY_INVALID", "a trusted key or a signature has the wrong size") from error
