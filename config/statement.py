"""The format of signed statements: an in-toto Statement v1 inside a DSSE envelope, whatever key signs it.

Invariants
1. What is signed is the DSSE pre-authentication encoding of the payload type and the exact payload bytes.
2. The payload is canonical JSON, and so is the envelope: one statement has one byte form.
3. An envelope has one signature at most: who hands a receipt on cannot make a second one of it.
4. What is read is bounded before it is parsed: in bytes by whoever reads the file, in parts and numbers here.
5. Nothing here signs, verifies or believes: `scoring.dsse` does that with receipt keys, `chain.key_binding` with
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
PARTS = 500_000  # objects and lists of one document; a crown ledger has five per event
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
    if (count := len(envelope.signatures)) > 1:
        raise GradeError("RECEIPT_MALFORMED", f"a receipt has one signature, and this one has {count}")
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
    parts = data.count(b"{") + data.count(b"[")
    if parts > PARTS:
        raise GradeError("RECEIPT_MALFORMED", f"the receipt has {parts} objects and lists, above {PARTS}")
    try:
        value = read_json(data, require_canonical=True)
        read = msgspec.convert(value, kind, strict=True)
    except (CanonicalJsonError, msgspec.ValidationError, RecursionError) as error:
        raise GradeError("RECEIPT_MALFORMED", f"the receipt cannot be read: {error}") from error
    if not _countable(value):
        raise GradeError("RECEIPT_MALFORMED", "the receipt holds a number of more than 64 bits")
    return read


def _countable(value: object) -> bool:
    """Say whether all integers of a document, which was read and so is no deeper than the stack, fit 64 bits."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    if isinstance(value, dict):
        return all(map(_countable, value.values()))
    return not isinstance(value, list) or all(map(_countable, value))
