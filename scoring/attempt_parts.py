"""What attempt documents of all schemas so far are made of.

Invariants
1. A struct stands here as long as every schema has it in the same form. A schema that changes one takes its own copy
   into its own module, and the older ones take theirs: nothing here is ever edited.
2. Rows that occur thousands of times (`CallCheck`, `RoleBlock`, `Block`) are encoded as arrays, so that 64 launches of
   256 calls stay below 4 MB.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

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


class LimitsInForce(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits the arms ran under."""

    memory_bytes: int
    threads: int
    call_deadline_ms: int
    attempt_budget_seconds: int
