"""Signed statements: an in-toto Statement v1 inside a DSSE envelope, signed with Ed25519.

Invariants
1. What is signed is the DSSE pre-authentication encoding of the payload type and the exact payload bytes.
2. The payload is canonical JSON, and so is the envelope: one statement has one byte form.
3. A key's id is the SHA-256 of its 32 public bytes. Only keys the caller names are believed.
4. Nothing of a payload is interpreted before a signature over it has been verified.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import TypeVar

import msgspec
from nacl.exceptions import BadSignatureError, CryptoError
from nacl.signing import SigningKey, VerifyKey

from config.canonical import CanonicalJsonError, canonical_json, read_json, sha256_hex
from config.errors import Blame, GradeError, InternalError

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
_T = TypeVar("_T")
_STATEMENT_NAMES = {"type": "_type", "predicate_type": "predicateType"}


class Subject(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a statement is about: a name and its digests (algorithm -> hex)."""

    name: str
    digest: dict[str, str]


class Statement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename=_STATEMENT_NAMES):
    """An in-toto Statement v1."""

    type: str
    subject: tuple[Subject, ...]
    predicate_type: str
    predicate: dict[str, object]


class Signature(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One signature of an envelope; `sig` is base64."""

    keyid: str
    sig: str


class Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A DSSE envelope; `payload` is base64."""

    payload_type: str
    payload: str
    signatures: tuple[Signature, ...]


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
    payload = canonical_json(msgspec.to_builtins(statement))
    signature = key.sign(_pre_authentication(PAYLOAD_TYPE, payload)).signature
    envelope = Envelope(
        PAYLOAD_TYPE,
        base64.b64encode(payload).decode("ascii"),
        (Signature(key_id(bytes(key.verify_key)), base64.b64encode(signature).decode("ascii")),),
    )
    return canonical_json(msgspec.to_builtins(envelope))


def verify(data: bytes, trusted_keys: Iterable[bytes]) -> Statement:
    """Return the statement in an envelope that one of `trusted_keys` (32 public bytes each) has signed.

    Raises `GradeError`: RECEIPT_MALFORMED, RECEIPT_UNTRUSTED (no signature by a trusted key), RECEIPT_FORGED (a
    signature that names a trusted key does not verify), RECEIPT_KEY_INVALID.
    """
    envelope = _read(data, Envelope)
    if envelope.payload_type != PAYLOAD_TYPE:
        raise GradeError("RECEIPT_MALFORMED", f"payload type {envelope.payload_type[:60]!r} is not {PAYLOAD_TYPE!r}")
    payload = _decode(envelope.payload)
    trusted = {key_id(key): key for key in trusted_keys}
    by_trusted = [signature for signature in envelope.signatures if signature.keyid in trusted]
    if not by_trusted:
        raise GradeError(
            "RECEIPT_UNTRUSTED", "no trusted key signed this receipt", hint="name the validator's receipt key"
        )
    for signature in by_trusted:
        _verify_one(trusted[signature.keyid], _pre_authentication(PAYLOAD_TYPE, payload), _decode(signature.sig))
    statement = _read(payload, Statement)
    if statement.type != STATEMENT_TYPE:
        raise GradeError("RECEIPT_MALFORMED", f"statement type {statement.type[:60]!r} is not {STATEMENT_TYPE!r}")
    return statement


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


def _pre_authentication(payload_type: str, payload: bytes) -> bytes:
    kind = payload_type.encode("utf-8")
    return b" ".join((b"DSSEv1", str(len(kind)).encode(), kind, str(len(payload)).encode(), payload))


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise GradeError("RECEIPT_MALFORMED", "a receipt field is not base64") from error


def _read(data: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.convert(read_json(data, require_canonical=True), kind, strict=True)
    except (CanonicalJsonError, msgspec.ValidationError, RecursionError) as error:
        raise GradeError("RECEIPT_MALFORMED", f"the receipt cannot be read: {error}") from error
