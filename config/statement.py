"""The format of signed statements: an in-toto Statement v1 inside a DSSE envelope, whatever key signs it.

Invariants
1. What is signed is the DSSE pre-authentication encoding of the payload type and the exact payload bytes.
2. The payload is canonical JSON, and so is the envelope: one statement has one byte form.
3. Nothing here signs, verifies or believes: `scoring.dsse` does that with receipt keys, `chain.key_binding` with
   hotkeys.
"""

from __future__ import annotations

import base64
import binascii
from typing import TypeVar

import msgspec

from config.canonical import CanonicalJsonError, canonical_json, read_json
from config.errors import GradeError

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


class Sealed(msgspec.Struct, frozen=True):
    """What an envelope carries: the exact payload, the message that is signed, and the signatures by key id. Nothing of
    it is believed yet."""

    payload: bytes
    message: bytes
    signatures: tuple[tuple[str, bytes], ...]


def payload_of(statement: Statement) -> bytes:
    """Return the canonical payload of a statement."""
    return canonical_json(msgspec.to_builtins(statement))


def pre_authentication(payload: bytes) -> bytes:
    """Return the message that a signature over `payload` covers."""
    kind = PAYLOAD_TYPE.encode("utf-8")
    return b" ".join((b"DSSEv1", str(len(kind)).encode(), kind, str(len(payload)).encode(), payload))


def seal(payload: bytes, key: str, signature: bytes) -> bytes:
    """Return the canonical envelope of `payload` with one signature by the key with id `key`."""
    signed = Signature(key, base64.b64encode(signature).decode("ascii"))
    envelope = Envelope(PAYLOAD_TYPE, base64.b64encode(payload).decode("ascii"), (signed,))
    return canonical_json(msgspec.to_builtins(envelope))


def open_envelope(data: bytes) -> Sealed:
    """Return what is in an envelope. Raises `GradeError` (RECEIPT_MALFORMED)."""
    envelope = _read(data, Envelope)
    if envelope.payload_type != PAYLOAD_TYPE:
        raise GradeError("RECEIPT_MALFORMED", f"payload type {envelope.payload_type[:60]!r} is not {PAYLOAD_TYPE!r}")
    payload = _decode(envelope.payload)
    signatures = tuple((one.keyid, _decode(one.sig)) for one in envelope.signatures)
    return Sealed(payload, pre_authentication(payload), signatures)


def read_statement(payload: bytes) -> Statement:
    """Return the statement in a payload whose signature was verified. Raises `GradeError` (RECEIPT_MALFORMED)."""
    statement = _read(payload, Statement)
    if statement.type != STATEMENT_TYPE:
        raise GradeError("RECEIPT_MALFORMED", f"statement type {statement.type[:60]!r} is not {STATEMENT_TYPE!r}")
    return statement


def _decode(text: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise GradeError("RECEIPT_MALFORMED", "a receipt field is not base64") from error
    if base64.b64encode(data).decode("ascii") != text:  # the last character has bits that decoding ignores
        raise GradeError("RECEIPT_MALFORMED", "a receipt field is not the one base64 form of its bytes")
    return data


def _read(data: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.convert(read_json(data, require_canonical=True), kind, strict=True)
    except (CanonicalJsonError, msgspec.ValidationError, RecursionError) as error:
        raise GradeError("RECEIPT_MALFORMED", f"the receipt cannot be read: {error}") from error
