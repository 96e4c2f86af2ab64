"""From claims to one weight vector: who gets how many ppm at a block, and why.

Invariants
1. The same claims, block, policy and set of present hotkeys give the same bytes, in whatever order they come.
2. The vector sums to 1,000,000 ppm and has no zero row; hotkeys ascend.
3. The share of a claimant who left the subnet goes to the validator's hotkey or is burned, as the policy says; the
   claim itself is unchanged, and nobody else's share changes by it.
4. Everything burns while nothing is crowned. Credit lost to decay is shared out again (`renormalise`) or burned
   (`burn`), as the policy says.
5. A claim that cannot be used is set aside and named; it never stops the others. If faults leave none, nothing is
   projected: burning because of a fault would take what was earned. A claim on a target that is not registered any more
   is named too and paid nothing, but is no fault: dropping a target is a decision.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

import msgspec

from config.canonical import domain_digest
from config.errors import Blame, CacheonError, InternalError
from scoring.apportion import PPM, apportion
from scoring.claims import Claim, ClaimFault, claims_digest, full_credit, read_claim, standing_credit

WEIGHTS_SCHEMA = "cacheon.weights.v1"
TARGET_GONE = "CLAIM_TARGET_UNKNOWN"


class WeightPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How credit becomes weight. A field with its default is left out of documents and of the digest, so receipts that
    were made before the field existed keep theirs."""

    half_life_blocks: int
    undistributed: Literal["renormalise", "burn"]
    burn_hotkey: str
    validator_hotkey: str
    absent: Literal["validator", "burn"] = "validator"  # who receives the shares of absent claimants

    @property
    def heir(self) -> str:
        """The hotkey that receives the shares of absent claimants."""
        return self.burn_hotkey if self.absent == "burn" else self.validator_hotkey

    @property
    def digest(self) -> str:
        """Lower-hex identity of this policy."""
        return domain_digest("cacheon.weight-policy", msgspec.to_builtins(self))


class WeightVector(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be published: ((hotkey, ppm), ...) at a block, bound to its inputs by digest."""

    schema: str
    block: int
    entries: tuple[tuple[str, int], ...]
    claims_digest: str
    policy_digest: str

    @property
    def digest(self) -> str:
        """Lower-hex identity of this vector."""
        return domain_digest("cacheon.weights", msgspec.to_builtins(self))


class ShareLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one claim entered the vector."""

    claim_id: str
    target_id: str
    hotkey: str
    recipient: str
    full_credit: int
    standing_credit: int


class Projection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A weight vector, its derivation, and the claims that were set aside."""

    vector: WeightVector
    lines: tuple[ShareLine, ...]
    burned_credit: int
    faults: tuple[ClaimFault, ...]


def project(
    claims: Iterable[Claim | dict[str, object]], *, block: int, present: Collection[str], policy: WeightPolicy,
    targets: Collection[str] | None = None,
) -> Projection:
    """Return the weight vector at `block`. `present` holds the hotkeys in the metagraph at that block, `targets` the
    registered targets (None: those of all claims).

    Raises `InternalError`: CLAIM_DUPLICATE, NO_USABLE_CLAIM, HALF_LIFE_INVALID.
    """
    if policy.half_life_blocks < 1:
        raise InternalError(
            "HALF_LIFE_INVALID", f"a half-life of {policy.half_life_blocks} blocks is not positive",
            blame=Blame.OPERATOR,
        )
    usable, lines, faults = _lines(
        claims, block, frozenset(present), policy, None if targets is None else frozenset(targets)
    )
    broken = [fault for fault in faults if fault.code != TARGET_GONE]
    if broken and not lines:
        raise InternalError("NO_USABLE_CLAIM", f"none of {len(faults)} claims can be used: {broken[0].message}")
    credit_of: dict[str, int] = {}
    for line in lines:
        credit_of[line.recipient] = credit_of.get(line.recipient, 0) + line.standing_credit
    burned = _burned(lines, policy)
    if burned:
        credit_of[policy.burn_hotkey] = credit_of.get(policy.burn_hotkey, 0) + burned
    shares = apportion(credit_of) or {policy.burn_hotkey: PPM}
    vector = WeightVector(WEIGHTS_SCHEMA, block, tuple(sorted(shares.items())), claims_digest(usable), policy.digest)
    return Projection(vector, lines, burned, faults)


def _lines(
    claims: Iterable[Claim | dict[str, object]], block: int, present: frozenset[str], policy: WeightPolicy,
    targets: frozenset[str] | None,
) -> tuple[tuple[Claim, ...], tuple[ShareLine, ...], tuple[ClaimFault, ...]]:
    usable: dict[str, Claim] = {}
    lines: list[ShareLine] = []
    faults: list[ClaimFault] = []
    for row in claims:
        try:
            claim = row if isinstance(row, Claim) else read_claim(row)
            standing = standing_credit(claim, block, policy.half_life_blocks)
            full = full_credit(claim)
            _require_registered(claim, targets)
        except CacheonError as error:
            faults.append(ClaimFault(_claim_id(row), error.code, error.message))
            continue
        if claim.claim_id in usable:
            raise InternalError("CLAIM_DUPLICATE", f"claim {claim.claim_id[:12]} appears twice")
        usable[claim.claim_id] = claim
        recipient = claim.hotkey if claim.hotkey in present else policy.heir
        lines.append(ShareLine(claim.claim_id, claim.target_id, claim.hotkey, recipient, full, standing))
    return (
        tuple(usable[key] for key in sorted(usable)),
        tuple(sorted(lines, key=lambda line: line.claim_id)),
        tuple(sorted(faults, key=lambda fault: (fault.claim_id, fault.code))),
    )


def _require_registered(claim: Claim, targets: frozenset[str] | None) -> None:
    if targets is not None and claim.target_id not in targets:
        raise InternalError(
            "CLAIM_TARGET_UNKNOWN", f"claim {claim.claim_id[:12]} is on {claim.target_id}, no registered target",
            blame=Blame.OPERATOR,
        )


def _claim_id(row: Claim | dict[str, object]) -> str:
    return row.claim_id if isinstance(row, Claim) else str(row.get("claim_id", ""))[:64]


def _burned(lines: tuple[ShareLine, ...], policy: WeightPolicy) -> int:
    if policy.undistributed == "renormalise":
        return 0
    return sum(line.full_credit - line.standing_credit for line in lines)
