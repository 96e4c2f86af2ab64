"""Why a hotkey gets its ppm: the arithmetic of one vector, number by number, from its receipt and the ledger. Pure.

Invariants
1. Every number here is an integer that the projection itself used; nothing is rounded for display.
2. The ppm of a row is `quotient_ppm`, plus 1 when it is `rounded_up`: credit * 1,000,000 // total, and the ppm that
   are left over go to the largest remainders.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from scoring.apportion import PPM
from scoring.claims import Claim, ClaimFault
from scoring.projection import Projection, WeightPolicy
from scoring.settle import CrownState, SettlementEvent, apply_event


class CrownShare(msgspec.Struct, frozen=True):
    """What one live crown brings. Credits are ppm of speed-up above equal; `lost_credit` is what decay took."""

    claim_id: str
    target_id: str
    claimant: str
    is_present: bool  # whether the claimant was in the metagraph; if not, the share is somebody else's
    crowned_block: int
    age_blocks: int
    speedup_ppm: int
    full_credit: int
    standing_credit: int
    lost_credit: int


class Row(msgspec.Struct, frozen=True):
    """One hotkey's share: `credit` of `total_credit`, which is that of its crowns and what is burned to it."""

    hotkey: str
    ppm: int
    crowns: tuple[CrownShare, ...]
    burned_credit: int
    burns_everything: bool  # the vector has no credit at all, and this is who takes what is burned
    credit: int
    total_credit: int
    quotient_ppm: int
    remainder: int  # credit * 1,000,000 modulo total_credit
    rounded_up: bool


class FormerCrown(msgspec.Struct, frozen=True):
    """A crown that ended: how (an event type), and by whose submission."""

    target_id: str
    crowned_block: int
    speedup_ppm: int
    ended: str
    by_hotkey: str
    by_block: int


class Derivation(msgspec.Struct, frozen=True):
    """A whole vector, largest share first, and the claims that were set aside."""

    block: int
    policy: WeightPolicy
    total_credit: int
    burned_credit: int
    rows: tuple[Row, ...]
    set_aside: tuple[ClaimFault, ...]


def derive(projection: Projection, claims: Sequence[Claim], policy: WeightPolicy) -> Derivation:
    """Return how each row of `projection` came about; `claims` and `policy` are those that it was made from."""
    block = projection.vector.block
    claim_of = {claim.claim_id: claim for claim in claims}
    crowns_of: dict[str, list[CrownShare]] = {}
    for line in projection.lines:
        claim = claim_of[line.claim_id]
        share = CrownShare(
            claim_id=line.claim_id, target_id=line.target_id, claimant=line.hotkey,
            is_present=line.recipient == line.hotkey, crowned_block=claim.crowned_block,
            age_blocks=block - claim.crowned_block, speedup_ppm=claim.speedup_ppm, full_credit=line.full_credit,
            standing_credit=line.standing_credit, lost_credit=line.full_credit - line.standing_credit,
        )
        crowns_of.setdefault(line.recipient, []).append(share)
    total = sum(line.standing_credit for line in projection.lines) + projection.burned_credit
    ordered = sorted(projection.vector.entries, key=lambda entry: (-entry[1], entry[0]))
    rows = tuple(
        _row(hotkey, ppm, tuple(crowns_of.get(hotkey, ())), projection.burned_credit * (hotkey == policy.burn_hotkey),
             total)
        for hotkey, ppm in ordered
    )  # fmt: skip
    return Derivation(block, policy, total, projection.burned_credit, rows, projection.faults)


def former_crowns(events: Sequence[SettlementEvent], hotkey: str) -> tuple[FormerCrown, ...]:
    """Return the crowns of `hotkey` that `events` ended, oldest first. Raises `InternalError` (EVENT_CHAIN_BROKEN)."""
    state = CrownState()
    ended: list[FormerCrown] = []
    for event in events:
        before, state = state, apply_event(state, event)
        live = {crown.event_digest for crown in state.crowns}
        ended += [
            FormerCrown(
                crown.target_id, crown.crowned_block, crown.speedup_ppm, event.type, event.order.hotkey,
                event.order.block,
            )
            for crown in before.crowns if crown.hotkey == hotkey and crown.event_digest not in live
        ]
    return tuple(ended)


def _row(hotkey: str, ppm: int, crowns: tuple[CrownShare, ...], burned: int, total: int) -> Row:
    credit = sum(crown.standing_credit for crown in crowns) + burned
    quotient, remainder = divmod(credit * PPM, total) if total else (ppm, 0)
    return Row(
        hotkey=hotkey, ppm=ppm, crowns=crowns, burned_credit=burned, burns_everything=total == 0, credit=credit,
        total_credit=total, quotient_ppm=quotient, remainder=remainder, rounded_up=ppm > quotient,
    )
