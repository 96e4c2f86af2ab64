"""Settlement: which finished candidates become crowns, in which order, and what that does to the rest. Pure.

Invariants
1. A plan depends on its inputs as sets: the order in which candidates were listed or finished changes nothing.
2. A candidate concerns its members and what comes or goes with them: the other members of crowns that it displaces, and
   slots that share a binding (`config.active_set.footprint`). It is current when the crowns over these are those it was
   measured against, and its crown would make the tree it was measured in. Others are returned for re-measurement
   (STALE_INCUMBENT), free of charge, in finalized order.
3. An unresolved earlier submission holds back only candidates that concern a slot of its own; one whose slots are not
   known yet holds back nobody. A candidate that is held back is unresolved itself: a later one over its slots waits
   with it, so that nobody can stop a candidate with a submission in front of it and win its slots meanwhile.
4. Of the current, unblocked candidates the fastest wins; ties go to finalized order. Candidates that concern a slot of
   a winner are re-measured against it; others win in the same transition.
5. A crown retires the holder of its target and displaces every other crown that shares a member with it.
6. A crown whose bundle failed a check of its own, twice, is revoked: it ends without a successor, and whoever was
   measured against it is stale.
7. Events form a hash chain, and replaying them gives the state again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from config.canonical import domain_digest
from config.errors import InternalError
from scoring.claims import EQUAL_PPM, Claim

GENESIS = "0" * 64


class FinalizedOrder(NamedTuple):
    """Where a reveal stands in the finalized chain; compares in that order."""

    block: int
    event_index: int
    sub_index: int
    hotkey: str
    content_hash: str


class Candidate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A submission with two PASS verdicts. `measured_against` holds the submission ids that `incumbents` gave for the
    slots it concerns when the primary attempt began, `tree_digest` the tree that was measured."""

    submission_id: str
    order: FinalizedOrder
    target_id: str
    members: tuple[str, ...]
    tree_digest: str
    speedup_ppm: int
    measured_against: tuple[str, ...]
    evidence: tuple[str, ...] = ()  # digests of the two attempt files
    footprint: tuple[str, ...] = ()  # all slots it concerns; empty: its members and no others
    tree_now: str = ""  # digest of the tree that its crown would make now; empty: `tree_digest`

    @property
    def slots(self) -> frozenset[str]:
        """The slots it concerns."""
        return frozenset(self.footprint or self.members)


class Unresolved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A submission still on its way; `members` are the slots it concerns, empty while its target is not known."""

    submission_id: str
    order: FinalizedOrder
    members: tuple[str, ...] = ()


class Crown(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A live crown."""

    submission_id: str
    target_id: str
    members: tuple[str, ...]
    hotkey: str
    content_hash: str
    tree_digest: str
    speedup_ppm: int
    crowned_block: int  # block of the reveal
    event_digest: str  # of the CROWN event; the claim's id


class CrownState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All live crowns, sorted by target, and the head of the event chain."""

    crowns: tuple[Crown, ...] = ()
    sequence: int = 0
    head: str = GENESIS


EventType = Literal["CROWN", "RETIRE", "DISPLACE", "STALE_INCUMBENT", "REVOKE"]


class SettlementEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One link of the chain. `cause` is the submission that made it happen; of a REVOKE it is the crowned one itself,
    `reason` the code of what it did, and `evidence` names the two attempts that show it. Other events have no reason,
    and their digests do not know the field."""

    sequence: int
    type: EventType
    submission_id: str
    cause: str
    order: FinalizedOrder
    target_id: str
    members: tuple[str, ...]
    tree_digest: str
    speedup_ppm: int
    evidence: tuple[str, ...]
    previous: str
    reason: str = ""

    @property
    def digest(self) -> str:
        """Lower-hex identity of this event; the next event's `previous`."""
        return domain_digest("cacheon.settlement-event", msgspec.to_builtins(self))


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a settlement pass does."""

    events: tuple[SettlementEvent, ...]
    state: CrownState
    remeasure: tuple[str, ...]  # submission ids, in finalized order
    waiting: tuple[str, ...]  # blocked by an earlier unresolved submission


def incumbents(state: CrownState, members: Iterable[str]) -> tuple[str, ...]:
    """Return the submission ids, sorted, of the live crowns over any of `members`; empty means stock."""
    wanted = frozenset(members)
    return tuple(sorted(crown.submission_id for crown in state.crowns if wanted & set(crown.members)))


def plan(state: CrownState, candidates: Sequence[Candidate], unresolved: Sequence[Unresolved] = ()) -> Plan:
    """Return what settling `candidates` now would do.

    Raises `InternalError`: CANDIDATE_DUPLICATE, CANDIDATE_SETTLED, CANDIDATE_NO_GAIN, CANDIDATE_NO_MEMBERS.
    """
    ordered = sorted(candidates, key=lambda candidate: (candidate.order, candidate.submission_id))
    _check(state, ordered)
    current = [c for c in ordered if _is_current(state, c)]
    stale = [c for c in ordered if not _is_current(state, c)]
    waiting = _held_back(current, unresolved)
    held = {c.submission_id for c in waiting}
    chain = _Chain(state)
    for candidate in stale:
        chain.append("STALE_INCUMBENT", candidate, cause=candidate.submission_id)
    winners: list[Candidate] = []
    for candidate in sorted(current, key=lambda c: (-c.speedup_ppm, c.order, c.submission_id)):
        if candidate.submission_id not in held and not any(_overlap(candidate, winner) for winner in winners):
            winners.append(candidate)
            chain.crown(candidate)
    won = {winner.submission_id for winner in winners}
    lost = [c for c in current if c.submission_id not in won and any(_overlap(c, winner) for winner in winners)]
    for candidate in lost:
        cause = next(winner for winner in winners if _overlap(candidate, winner))
        chain.append("STALE_INCUMBENT", candidate, cause=cause.submission_id)
    again = sorted([*stale, *lost], key=lambda candidate: (candidate.order, candidate.submission_id))
    lost_ids = {c.submission_id for c in lost}
    return Plan(
        tuple(chain.events),
        chain.state,
        tuple(c.submission_id for c in again),
        tuple(c.submission_id for c in waiting if c.submission_id not in lost_ids),
    )


def revoke(
    state: CrownState, submission_id: str, order: FinalizedOrder, *, reason: str, evidence: tuple[str, str]
) -> Plan:
    """Return what revoking the live crown of a submission, whose reveal stands at `order`, does.

    `evidence` names the two attempts, at stake is the crown and nothing else. Raises `InternalError` (CROWN_NOT_LIVE).
    """
    crown = next((crown for crown in state.crowns if crown.submission_id == submission_id), None)
    if crown is None:
        raise InternalError("CROWN_NOT_LIVE", f"submission {submission_id[:12]} holds no crown")
    event = SettlementEvent(
        state.sequence + 1, "REVOKE", submission_id, submission_id, order, crown.target_id, crown.members,
        crown.tree_digest, crown.speedup_ppm, evidence, state.head, reason,
    )
    return Plan((event,), apply_event(state, event), (), ())


def apply_event(state: CrownState, event: SettlementEvent) -> CrownState:
    """Return the state after `event`. Raises `InternalError` (EVENT_CHAIN_BROKEN) when it does not follow `state`."""
    if event.sequence != state.sequence + 1 or event.previous != state.head:
        raise InternalError("EVENT_CHAIN_BROKEN", f"event {event.sequence} does not follow event {state.sequence}")
    crowns = {crown.submission_id: crown for crown in state.crowns}
    match event.type:
        case "CROWN":
            crowns[event.submission_id] = Crown(
                event.submission_id, event.target_id, event.members, event.order.hotkey, event.order.content_hash,
                event.tree_digest, event.speedup_ppm, event.order.block, event.digest,
            )
        case "RETIRE" | "DISPLACE" | "REVOKE":
            if crowns.pop(event.submission_id, None) is None:
                raise InternalError("EVENT_CHAIN_BROKEN", f"event {event.sequence} ends a crown that is not live")
        case "STALE_INCUMBENT":
            pass
    live = tuple(sorted(crowns.values(), key=lambda crown: (crown.target_id, crown.submission_id)))
    return CrownState(live, event.sequence, event.digest)


def replay(events: Iterable[SettlementEvent]) -> CrownState:
    """Return the state that `events` lead to from nothing. Raises `InternalError` (EVENT_CHAIN_BROKEN)."""
    state = CrownState()
    for event in events:
        state = apply_event(state, event)
    return state


def live_claims(state: CrownState) -> tuple[Claim, ...]:
    """Return the claims of the live crowns."""
    return tuple(
        Claim(crown.event_digest, crown.target_id, crown.hotkey, crown.speedup_ppm, crown.crowned_block)
        for crown in state.crowns
    )


def _check(state: CrownState, candidates: Sequence[Candidate]) -> None:
    crowned = {crown.submission_id for crown in state.crowns}
    seen: set[str] = set()
    for candidate in candidates:
        if candidate.submission_id in crowned:
            raise InternalError("CANDIDATE_SETTLED", f"submission {candidate.submission_id[:12]} is crowned already")
        if candidate.submission_id in seen:
            raise InternalError("CANDIDATE_DUPLICATE", f"submission {candidate.submission_id[:12]} is listed twice")
        seen.add(candidate.submission_id)
        if candidate.speedup_ppm <= EQUAL_PPM:
            raise InternalError("CANDIDATE_NO_GAIN", f"submission {candidate.submission_id[:12]} has no gain to crown")
        if not candidate.members:
            raise InternalError("CANDIDATE_NO_MEMBERS", f"submission {candidate.submission_id[:12]} has no members")


def _is_current(state: CrownState, candidate: Candidate) -> bool:
    same_tree = candidate.tree_now in ("", candidate.tree_digest)
    return same_tree and candidate.measured_against == incumbents(state, candidate.slots)


def _held_back(current: Sequence[Candidate], unresolved: Sequence[Unresolved]) -> list[Candidate]:
    """Return those of `current`, which is in finalized order, that wait for a submission before them."""
    waiting: list[Candidate] = []
    for candidate in current:
        if _blocked(candidate, unresolved) or any(_overlap(candidate, earlier) for earlier in waiting):
            waiting.append(candidate)
    return waiting


def _blocked(candidate: Candidate, unresolved: Iterable[Unresolved]) -> bool:
    return any(
        earlier.order < candidate.order and candidate.slots.intersection(earlier.members) for earlier in unresolved
    )


def _overlap(one: Candidate, other: Candidate) -> bool:
    return not one.slots.isdisjoint(other.slots)


class _Chain:
    """Appends events and keeps the state they lead to."""

    def __init__(self, state: CrownState) -> None:
        self.state = state
        self.events: list[SettlementEvent] = []

    def crown(self, candidate: Candidate) -> None:
        replaced = [crown for crown in self.state.crowns if not set(crown.members).isdisjoint(candidate.members)]
        for crown in replaced:
            self._end("RETIRE" if crown.target_id == candidate.target_id else "DISPLACE", crown, candidate)
        self.append("CROWN", candidate, cause=candidate.submission_id)

    def append(self, kind: EventType, candidate: Candidate, *, cause: str) -> None:
        self._add(
            SettlementEvent(
                self.state.sequence + 1, kind, candidate.submission_id, cause, candidate.order, candidate.target_id,
                candidate.members, candidate.tree_digest, candidate.speedup_ppm, candidate.evidence, self.state.head,
            )
        )

    def _end(self, kind: EventType, crown: Crown, winner: Candidate) -> None:
        self._add(
            SettlementEvent(
                self.state.sequence + 1, kind, crown.submission_id, winner.submission_id, winner.order,
                crown.target_id, crown.members, crown.tree_digest, crown.speedup_ppm, (), self.state.head,
            )
        )

    def _add(self, event: SettlementEvent) -> None:
        self.events.append(event)
        self.state = apply_event(self.state, event)
