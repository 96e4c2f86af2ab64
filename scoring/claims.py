"""A claim: what a crown is worth, and how that worth decays. Exact integers.

Invariants
1. The full credit of a crown is its credited gain in ppm above equal speed.
2. The standing credit falls as H / (H + age): half at age H, a third at 2 H. Age counts from the reveal's block.
3. A claim from the future is an error, never a number; one with a negative height or without a claimant is unreadable.
"""

from __future__ import annotations

import msgspec

from config.canonical import canonical_json, domain_digest_of
from config.errors import Blame, InternalError

EQUAL_PPM = 1_000_000


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One live crown's entitlement. `crowned_block` is the block of the reveal that won it."""

    claim_id: str  # digest of the crown event that created it
    target_id: str
    hotkey: str
    speedup_ppm: int
    crowned_block: int


class ClaimFault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A claim that cannot be used; it is set aside and named, and the others go on."""

    claim_id: str
    code: str
    message: str


def full_credit(claim: Claim) -> int:
    """Return the undecayed credit. Raises `InternalError` (CLAIM_WORTHLESS) for a speed-up that is no gain."""
    if claim.speedup_ppm <= EQUAL_PPM:
        raise InternalError("CLAIM_WORTHLESS", f"claim {claim.claim_id[:12]} has no gain: {claim.speedup_ppm} ppm")
    return claim.speedup_ppm - EQUAL_PPM


def standing_credit(claim: Claim, block: int, half_life_blocks: int) -> int:
    """Return the credit left at `block`.

    Raises `InternalError`: CLAIM_WORTHLESS, CLAIM_FROM_FUTURE (`block` lies before the crown), HALF_LIFE_INVALID.
    """
    if half_life_blocks < 1:
        raise InternalError(
            "HALF_LIFE_INVALID", f"a half-life of {half_life_blocks} blocks is not positive", blame=Blame.OPERATOR
        )
    age = block - claim.crowned_block
    if age < 0:
        raise InternalError(
            "CLAIM_FROM_FUTURE",
            f"claim {claim.claim_id[:12]} was crowned at block {claim.crowned_block}, after block {block}",
        )
    return full_credit(claim) * half_life_blocks // (half_life_blocks + age)


def read_claim(row: object) -> Claim:
    """Return the claim in a decoded document. Raises `InternalError` (CLAIM_UNREADABLE)."""
    try:
        claim = msgspec.convert(row, Claim, strict=True)
    except msgspec.ValidationError as error:
        raise InternalError("CLAIM_UNREADABLE", f"a claim cannot be read: {error}") from error
    if claim.crowned_block < 0 or not (claim.claim_id and claim.target_id and claim.hotkey):
        raise InternalError("CLAIM_UNREADABLE", "a claim has a negative height, or lacks its id, target or hotkey")
    return claim


def claims_digest(claims: tuple[Claim, ...]) -> str:
    """Return the digest of a set of claims, whatever order they come in."""
    rows = sorted(claims, key=lambda claim: claim.claim_id)
    try:
        payload = msgspec.json.encode(rows, order="sorted")  # of text and integers: canonical JSON, ten times faster
    except (OverflowError, UnicodeError):  # beyond 64 bits, or text that is none
        payload = canonical_json(msgspec.to_builtins(rows))
    return domain_digest_of("cacheon.claims", payload)
