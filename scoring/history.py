"""Is a chain of settlement events one that settling can make? Pure.

Invariants
1. Events follow one another by number and digest, and every one is what `scoring.settle` would write.
2. No slot is held by two live crowns. Who crowns over a live crown has ended it in the events just before, and nothing
   else ends a crown for a challenger: RETIRE on the same target, DISPLACE on another one that shares a slot.
3. An event that ends a crown repeats the crown's terms. A crown that was taken by a challenger never comes back; one
   that was revoked can be won again, by other attempts.
4. No attempt is evidence for two events.
"""

from __future__ import annotations

from collections.abc import Iterable

from config.errors import GradeError
from scoring.claims import EQUAL_PPM
from scoring.settle import Crown, CrownState, SettlementEvent, apply_event


def follow_history(events: Iterable[SettlementEvent]) -> CrownState:
    """Return the state that `events` lead to.

    Raises `InternalError` (EVENT_CHAIN_BROKEN) and `GradeError` (LEDGER_UNLAWFUL).
    """
    history = _History()
    for event in events:
        after = apply_event(history.state, event)
        problem = history.problem(event)
        if problem:
            raise GradeError("LEDGER_UNLAWFUL", f"event {event.sequence} of the ledger is not lawful: {problem}")
        history.state = after
    if history.ending:
        raise GradeError("LEDGER_UNLAWFUL", "the ledger ends with a crown taken away and nobody who took it")
    return history.state


class _History:
    """The state so far, and what the next event has to respect."""

    def __init__(self) -> None:
        self.state = CrownState()
        self.ending: list[SettlementEvent] = []  # crowns that were taken away for a crown that has to come next
        self._over: set[str] = set()  # submissions whose crown was taken by a challenger
        self._evidence: set[str] = set()

    def problem(self, event: SettlementEvent) -> str:
        """Say what is wrong with the next event, "" when nothing is."""
        match event.type:
            case "CROWN":
                return self._crown(event)
            case "RETIRE" | "DISPLACE":
                return self._taken(event)
            case "REVOKE":
                return self._revoked(event)
            case "STALE_INCUMBENT":
                return "a crown was taken away, and its winner does not follow" if self.ending else ""

    def _crown(self, event: SettlementEvent) -> str:
        ending, self.ending = self.ending, []
        holders = [crown for crown in self.state.crowns if not set(crown.members).isdisjoint(event.members)]
        for wrong, complaint in (
            (event.cause != event.submission_id, "somebody else's submission caused the crown"),
            (event.reason != "", "a crown has no reason"),
            (not event.members or len(set(event.members)) != len(event.members), "it has no slots, or one twice"),
            (event.speedup_ppm <= EQUAL_PPM, "it crowns what is no faster"),
            (self._live(event) is not None, "the submission holds a crown already"),
            (event.submission_id in self._over, "the submission's crown was taken by a challenger before"),
            (bool(holders), "a live crown over the same slot was not taken away first, so both would earn"),
            (any(one.cause != event.submission_id or one.order != event.order for one in ending),
             "a crown was taken away for another submission than the one that is crowned"),
            (any(set(one.members).isdisjoint(event.members) for one in ending),
             "a crown was taken away that shares no slot with the new one"),
            (any((one.type == "RETIRE") != (one.target_id == event.target_id) for one in ending),
             "a crown ended in another way than its target says"),
        ):
            if wrong:
                return complaint
        return self._proof_used(event)

    def _taken(self, event: SettlementEvent) -> str:
        if self.ending and self.ending[-1].cause != event.cause:
            return "two submissions take crowns at once"
        if event.cause == event.submission_id or event.evidence or event.reason:
            return "a crown that was taken away names evidence or a reason of its own"
        self.ending.append(event)
        self._over.add(event.submission_id)
        return _other_terms(self._live(event), event)

    def _revoked(self, event: SettlementEvent) -> str:
        crown = self._live(event)
        if self.ending:
            return "a crown was taken away, and its winner does not follow"
        if event.cause != event.submission_id or not event.reason:
            return "a revoked crown names no reason, or another submission as its cause"
        if len(set(event.evidence)) != len(event.evidence) or len(event.evidence) != len(("check", "recheck")):
            return "a crown is revoked on two attempts, and it does not name two"
        if crown is not None and (crown.hotkey, crown.content_hash, crown.crowned_block) != (
            event.order.hotkey, event.order.content_hash, event.order.block,
        ):
            return "it revokes the crown of another reveal than it names"
        return _other_terms(crown, event) or self._proof_used(event)

    def _live(self, event: SettlementEvent) -> Crown | None:
        return next((crown for crown in self.state.crowns if crown.submission_id == event.submission_id), None)

    def _proof_used(self, event: SettlementEvent) -> str:
        if self._evidence.intersection(event.evidence):
            return "it rests on an attempt that an earlier event rests on"
        self._evidence.update(event.evidence)
        return ""


def _other_terms(crown: Crown | None, event: SettlementEvent) -> str:
    """Say how a crown that ends differs from the one that is live; one that is not live is for `apply_event` to tell.
    """
    if crown is None:
        return ""
    own = (crown.target_id, crown.members, crown.tree_digest, crown.speedup_ppm)
    same = own == (event.target_id, event.members, event.tree_digest, event.speedup_ppm)
    return "" if same else "it ends a crown on other terms than the crown had"
