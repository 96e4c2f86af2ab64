"""The attempt document: everything one measured comparison leaves behind, and all that a grader may read.

Invariants
1. An attempt is canonical JSON under `ATTEMPT_SCHEMA`; its identity is the SHA-256 of exactly those bytes.
2. It holds integers in the unit their name carries (ns, bytes, ppm) and text, never a float.
3. It stores observations only. Medians, bounds and outcomes are recomputed by the grader and have no field here.
4. Rows that occur thousands of times (`CallCheck`, `RoleBlock`, `Block`) are encoded as arrays, so that 64 launches
   of 256 calls stay below 4 MB.
5. Times called `*_ns` without `unix` come from the referee's monotonic clock, counted from the start of the attempt.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from config.canonical import CanonicalJsonError, canonical_json, read_json, sha256_hex
from config.errors import GradeError
from config.limits import EVIDENCE

ATTEMPT_SCHEMA = "cacheon.attempt.v1"

Role = Literal["baseline", "candidate"]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Ppm = Annotated[int, msgspec.Meta(ge=-1, le=2**62)]
Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
DigestOrNone = Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")]
ShortDigest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
ShortDigestOrNone = Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{16})?$")]
NON_FINITE = -1  # CallCheck.worst_ppm of an output that holds NaN or infinity where the slot allows none
AT_BOUND = 1_000_000  # CallCheck.worst_ppm of an output exactly at its tolerance


class Reservation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where on the finalized chain the submission stands."""

    block: Count
    event_index: Count
    hotkey: str


class Identity(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What was compared with what, under which documents. Digests are 64 lower-case hex characters.

    `slots` and `gaps` stand in a file only when they say something; files from before they existed read the same.
    """

    content_hash: Digest
    target_id: str
    target_digest: Digest
    variants: tuple[str, ...]  # selected variants as "slot/variant", sorted
    arena_id: str
    arena_digest: Digest
    incumbent_digest: Digest  # of the engine tree that the baseline's arms run from: all crowned bundles by target
    candidate_tree_digest: Digest  # of the candidate's: that tree with the one target replaced
    tier: Literal["sealed", "host"]
    reservation: Reservation
    slots: tuple[str, ...] = ()  # what was measured, sorted, when a crown would change more than the target's members
    gaps: tuple[Count, ...] = ()  # workload cases that stock serves in both trees, ascending: asked of nobody, gain 0


class Seed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`commitment` was published before the first launch; `revealed` is the 32-byte seed in hex."""

    commitment: Digest
    revealed: Digest


class Environment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The machine as the referee saw it."""

    machine: str  # opaque, stable id of the machine
    cpu: str
    kernel: str
    python: str
    torch: str
    cores: tuple[Count, ...]  # cores arms may be pinned to; slot 0 uses cores[0], slot 1 uses cores[1]
    load_before: str  # text such as "0.12 0.20 0.15"
    load_after: str
    layers_present: tuple[str, ...]  # sandbox layers, sorted
    layers_waived: tuple[str, ...]
    timing_method: str
    governor: str = ""  # frequency governor of the arms' core; "" in older files, "none" where the kernel offers none


class CallCheck(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The check of one call. Digests are 64-bit fingerprints of the raw bytes, keyed from the seed, in hex."""

    input_digest: ShortDigest
    output_digest: ShortDigest  # at return
    late_digest: ShortDigestOrNone  # after the delay; "" when equal to output_digest
    worst_ppm: Ppm  # worst element error in ppm of its bound (AT_BOUND passes); NON_FINITE for NaN or infinity


class RoleBlock(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One role's timed calls inside one block: when it began, ns per call, one check per call."""

    start_ns: Nanoseconds
    call_ns: tuple[Nanoseconds, ...]
    checks: tuple[CallCheck, ...]


class Block(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Both roles measured once on one shape. `case` indexes the shapes of `Arena.measured`."""

    case: Count
    first: Role  # the role that ran first
    baseline: RoleBlock
    candidate: RoleBlock


class ChildOutcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a sandboxed process ended, as the sandbox reported it."""

    kind: str  # "exited", "signaled", "wall_limit", "cpu_limit", "memory_limit", "output_limit", "refused", "killed"
    exit_status: int
    signal: int
    layer: str


class ArmRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One arm of one launch."""

    slot: Count  # 0 or 1: core, start order and memory order go with the slot
    core: Count
    process: str  # id of the process, unique within the machine's uptime, such as "pid:starttime"
    start_ns: Nanoseconds  # fork requested
    ready_ns: Nanoseconds  # arm reported ready
    prepare_ns: Nanoseconds  # duration of the bundle's `prepare`; 0 when it has none
    first_call_ns: Nanoseconds  # duration of the warm-up calls, all together; 0 when the arena has none
    warmup: tuple[CallCheck, ...]  # one check per warm-up call
    outcome: ChildOutcome


class Launch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fresh pair of arms, measured to the end. An interrupted launch is an `Incident`, never a `Launch`."""

    index: Count
    candidate_slot: Count  # must equal `sealing.candidate_slot(seed, attempt_id, index)`
    timing_method: str
    start_ns: Nanoseconds
    end_ns: Nanoseconds
    baseline: ArmRecord
    candidate: ArmRecord
    blocks: tuple[Block, ...]


class StageRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One correctness stage before the launches: one shape, `calls` checked calls of the candidate."""

    stage: str
    shape: dict[str, Count]
    dtype: str
    checks: tuple[CallCheck, ...]


class Incident(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that ended the attempt. Kinds and their verdicts are the closed table of `scoring.incidents`."""

    stage: str  # "correctness", "start", "prepare", "warmup", "block", "teardown", ...
    launch: Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)]  # index of the launch, -1 outside launches
    role: Literal["baseline", "candidate", "referee"]
    kind: str
    detail: str
    outcome: ChildOutcome | None = None


class LimitsInForce(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits the arms ran under."""

    memory_bytes: int
    threads: int
    call_deadline_ms: int
    attempt_budget_seconds: int


class Attempt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One measured comparison."""

    schema: str
    attempt_id: str  # unique text chosen by the node before the attempt
    role: Literal["primary", "reproduction"]
    previous_attempt: DigestOrNone  # SHA-256 of the primary attempt's bytes; "" for a primary
    started_unix_ns: Nanoseconds
    ended_unix_ns: Nanoseconds
    identity: Identity
    seed: Seed
    environment: Environment
    limits: LimitsInForce
    stages: tuple[StageRecord, ...]
    launches: tuple[Launch, ...]
    incidents: tuple[Incident, ...]
    ending: Literal["decided", "launches", "time", "incident"]  # why the referee stopped launching


def encode_attempt(attempt: Attempt) -> bytes:
    """Return the canonical bytes of `attempt`."""
    return canonical_json(msgspec.to_builtins(attempt))


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
    try:
        value = read_json(data, require_canonical=True)
    except (CanonicalJsonError, RecursionError) as error:
        raise GradeError("ATTEMPT_NOT_CANONICAL", f"the attempt file is not canonical JSON: {error}") from error
    schema = value.get("schema") if isinstance(value, dict) else None
    if schema is None:
        raise GradeError("ATTEMPT_SCHEMA_UNKNOWN", "this file is no attempt document: it names no schema")
    if schema != ATTEMPT_SCHEMA:
        raise GradeError("ATTEMPT_SCHEMA_UNKNOWN", f"attempt schema {str(schema)[:80]!r} is not one this grader knows")
    try:
        return msgspec.convert(value, Attempt, strict=True)
    except msgspec.ValidationError as error:
        raise GradeError("ATTEMPT_MALFORMED", f"the attempt document is malformed: {error}") from error
