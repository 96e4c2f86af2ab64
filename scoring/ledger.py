"""The crown ledger: every settlement event there ever was, and the crowns and claims they lead to, signed.

Invariants
1. A ledger has no time in it: the same events give the same bytes, so its digest changes only when a crown does.
2. Nothing in it is believed because it is written there: `check_ledger` replays the events from nothing, asks whether
   settling can have made them, and compares head, crowns and claims.
3. Weights derive from it: a weights receipt names the same head (`ledger_head`) and the same crown receipts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from config.errors import GradeError, InternalError
from scoring.claims import Claim
from scoring.dsse import STATEMENT_TYPE, Statement, Subject
from scoring.history import follow_history
from scoring.settle import Crown, CrownState, SettlementEvent, live_claims, replay

LEDGER_V1 = "urn:cacheon:receipt:ledger.v1"


class LedgerPredicate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The predicate of `ledger.v1`. `crown_receipts` gives the receipt of each CROWN event, by event digest."""

    genesis_hash: str
    netuid: int
    hotkey: str  # the validator whose ledger this is
    head: str  # digest of the last event
    events: tuple[SettlementEvent, ...]
    crowns: tuple[Crown, ...]  # live ones
    claims: tuple[Claim, ...]
    crown_receipts: dict[str, str]


def make_ledger(
    events: Sequence[SettlementEvent],
    crown_receipts: Mapping[str, str],
    *,
    genesis_hash: str,
    netuid: int,
    hotkey: str,
) -> LedgerPredicate:
    """Return the ledger of `events`. Raises `InternalError` (EVENT_CHAIN_BROKEN)."""
    state = replay(events)
    return LedgerPredicate(
        genesis_hash, netuid, hotkey, state.head, tuple(events), state.crowns, live_claims(state), dict(crown_receipts)
    )


def ledger_statement(predicate: LedgerPredicate) -> Statement:
    """Return the statement of one ledger. Raises `GradeError` (LEDGER_INCONSISTENT, LEDGER_UNLAWFUL)."""
    check_ledger(predicate)
    subject = Subject("ledger", {"sha256": predicate.head})
    return Statement(STATEMENT_TYPE, (subject,), LEDGER_V1, msgspec.to_builtins(predicate))


def read_ledger_predicate(statement: Statement) -> LedgerPredicate:
    """Return the ledger in a verified statement. Raises `GradeError` (RECEIPT_KIND, RECEIPT_MALFORMED)."""
    if statement.predicate_type != LEDGER_V1:
        raise GradeError("RECEIPT_KIND", f"the receipt is {statement.predicate_type[:60]!r}, not {LEDGER_V1!r}")
    try:
        return msgspec.convert(statement.predicate, LedgerPredicate, strict=True)
    except msgspec.ValidationError as error:
        raise GradeError("RECEIPT_MALFORMED", f"the ledger is malformed: {error}") from error


def check_ledger(predicate: LedgerPredicate) -> CrownState:
    """Replay the ledger's events and return the state they lead to.

    Raises `GradeError`: LEDGER_INCONSISTENT when the chain breaks, or head, crowns, claims or receipts do not follow;
    LEDGER_UNLAWFUL when the events are none that settling makes.
    """
    try:
        state = follow_history(predicate.events)
    except InternalError as error:
        raise _inconsistent(error.message) from error
    if state.head != predicate.head:
        raise _inconsistent(f"its events end with {state.head[:12]}, and it names {predicate.head[:12]} as its head")
    if state.crowns != predicate.crowns:
        raise _inconsistent("its live crowns are not those its events lead to")
    if live_claims(state) != predicate.claims:
        raise _inconsistent("its claims are not those of its crowns")
    crowned = {event.digest for event in predicate.events if event.type == "CROWN"}
    if set(predicate.crown_receipts) - crowned:
        raise _inconsistent("it names a receipt for an event that crowned nobody")
    return state


def _inconsistent(why: str) -> GradeError:
    return GradeError("LEDGER_INCONSISTENT", f"the ledger contradicts itself: {why}")
