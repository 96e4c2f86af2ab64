"""The attempt document: everything one measured comparison leaves behind, and all that a grader may read.

Invariants
1. An attempt is canonical JSON under one of `SCHEMAS`; its identity is the SHA-256 of exactly those bytes.
2. Every schema has a module with its own structs (`scoring.attempt_v1`, `scoring.attempt_v2`). New files follow the
   newest; older ones are read by theirs and translated in memory, so that the rest of the code knows one form.
3. A document that was read is written again in the schema that it came in.
4. Reading ends with a document or with a `GradeError`, for any bytes.
"""

from __future__ import annotations

import msgspec

from config.canonical import CanonicalJsonError, canonical_json, read_json, sha256_hex
from config.errors import GradeError
from config.limits import EVIDENCE
from scoring import attempt_v1, attempt_v2
from scoring.attempt_parts import (
    AT_BOUND,
    NON_FINITE,
    Block,
    CallCheck,
    Count,
    Digest,
    DigestOrNone,
    Identity,
    LimitsInForce,
    Nanoseconds,
    Reservation,
    Role,
    RoleBlock,
    Seed,
)
from scoring.attempt_v2 import (
    ArmProcess,
    ArmRecord,
    Artifact,
    Attempt,
    CaseWork,
    ChildOutcome,
    Ending,
    Environment,
    Incident,
    Launch,
    Package,
    StageRecord,
)

__all__ = [
    "ATTEMPT_SCHEMA", "AT_BOUND", "NON_FINITE", "SCHEMAS", "ArmProcess", "ArmRecord", "Artifact", "Attempt", "Block",
    "CallCheck", "CaseWork", "ChildOutcome", "Count", "Digest", "DigestOrNone", "Ending", "Environment", "Identity",
    "Incident", "Launch", "LimitsInForce", "Nanoseconds", "Package", "Reservation", "Role", "RoleBlock", "Seed",
    "StageRecord", "attempt_digest", "encode_attempt", "read_attempt",
]  # fmt: skip

ATTEMPT_SCHEMA = attempt_v2.SCHEMA  # of new files
SCHEMAS = (attempt_v1.SCHEMA, attempt_v2.SCHEMA)


def encode_attempt(attempt: Attempt) -> bytes:
    """Return the canonical bytes of `attempt`, in the schema that it names.

    Raises `GradeError`: ATTEMPT_SCHEMA_UNKNOWN, ATTEMPT_NOT_CANONICAL (it holds what no document can).
    """
    match attempt.schema:
        case attempt_v1.SCHEMA:
            document: msgspec.Struct = attempt_v1.downgrade(attempt)
        case attempt_v2.SCHEMA:
            document = attempt
        case other:
            raise _unknown(other)
    try:
        return canonical_json(msgspec.to_builtins(document))
    except CanonicalJsonError as error:
        raise GradeError("ATTEMPT_NOT_CANONICAL", f"the attempt has no canonical form: {error}") from error


def attempt_digest(data: bytes) -> str:
    """Return the identity of an attempt file: the SHA-256 of its canonical (uncompressed) bytes."""
    return sha256_hex(data)


def read_attempt(data: bytes, *, expected_digest: str = "") -> Attempt:
    """Read one attempt document strictly.

    Raises `GradeError`: ATTEMPT_TOO_LARGE, ATTEMPT_DIGEST_MISMATCH (the bytes are not those of `expected_digest`),
    ATTEMPT_NOT_CANONICAL, ATTEMPT_SCHEMA_UNKNOWN, ATTEMPT_MALFORMED.
    """
    if len(data) > EVIDENCE.attempt_bytes:
        raise GradeError("ATTEMPT_TOO_LARGE", f"the attempt file has {len(data)} bytes, above {EVIDENCE.attempt_bytes}")
    if expected_digest and sha256_hex(data) != expected_digest:
        raise GradeError(
            "ATTEMPT_DIGEST_MISMATCH",
            f"the attempt file hashes to {sha256_hex(data)}, not to the expected {expected_digest}",
            hint="the file was changed or is not the one named; fetch it again from where it was published",
        )
    parts = data.count(b"{") + data.count(b"[")
    if parts > EVIDENCE.attempt_parts:  # before any of them is made, because each takes many times its bytes
        raise GradeError(
            "ATTEMPT_TOO_LARGE", f"the attempt file has {parts} objects and lists, above {EVIDENCE.attempt_parts}"
        )
    try:
        value = read_json(data, require_canonical=True)
    except (CanonicalJsonError, RecursionError) as error:
        raise GradeError("ATTEMPT_NOT_CANONICAL", f"the attempt file is not canonical JSON: {error}") from error
    schema = value.get("schema") if isinstance(value, dict) else None
    if schema is None:
        raise GradeError("ATTEMPT_SCHEMA_UNKNOWN", "this file is no attempt document: it names no schema")
    try:
        match schema:
            case attempt_v1.SCHEMA:
                return attempt_v1.upgrade(msgspec.convert(value, attempt_v1.Attempt, strict=True))
            case attempt_v2.SCHEMA:
                return msgspec.convert(value, Attempt, strict=True)
            case other:
                raise _unknown(other)
    except msgspec.ValidationError as error:
        raise GradeError("ATTEMPT_MALFORMED", f"the attempt document is malformed: {error}") from error


def _unknown(schema: object) -> GradeError:
    return GradeError(
        "ATTEMPT_SCHEMA_UNKNOWN", f"attempt schema {str(schema)[:80]!r} is not one this grader knows",
        hint=f"known schemas: {', '.join(SCHEMAS)}; a newer release may know it",
    )
