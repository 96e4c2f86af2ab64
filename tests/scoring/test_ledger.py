"""A ledger is believed for what its events lead to, not for what is written beside them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from config.errors import GradeError
from scoring.dsse import public_key, sign, verify
from scoring.ledger import LedgerPredicate, check_ledger, ledger_statement, make_ledger, read_ledger_predicate
from scoring.settle import Candidate, CrownState, FinalizedOrder, incumbents, plan

SEED = bytes(range(32))


def events(count: int = 3) -> list[Any]:
    """Crowns of one target, each retiring the one before."""
    state, found = CrownState(), []
    for number in range(count):
        order = FinalizedOrder(10 + number, 0, 0, f"5Miner{number}", f"{number:064x}")
        candidate = Candidate(
            submission_id=f"{number:064x}", order=order, target_id="t1", members=("t1",), tree_digest="",
            speedup_ppm=1_100_000 + number, measured_against=incumbents(state, ("t1",)),
        )
        done = plan(state, [candidate])
        found += done.events
        state = done.state
    return found


def ledger(count: int = 3) -> LedgerPredicate:
    """A ledger with a receipt for its last crown."""
    rows = events(count)
    receipts = {rows[-1].digest: "ee" * 32} if rows else {}
    return make_ledger(rows, receipts, genesis_hash="0x" + "11" * 32, netuid=2, hotkey="5Validator")


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_ledger_verifies_and_replays(count: int) -> None:
    """Signed, read back and replayed, it gives the live crowns; the same events give the same bytes."""
    envelope = sign(ledger_statement(ledger(count)), SEED)
    assert envelope == sign(ledger_statement(ledger(count)), SEED)
    read = read_ledger_predicate(verify(envelope, [public_key(SEED)]))
    assert read == ledger(count)
    assert len(check_ledger(read).crowns) == min(count, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"head": "ab" * 32},
        {"crowns": ()},
        {"claims": ()},
        {"events": tuple(events(3)[1:])},
        {"events": tuple(events(3)[:-1])},
        {"events": tuple(reversed(events(3)))},
        {"crown_receipts": {"ab" * 32: "ee" * 32}},
    ],
)
def test_a_ledger_that_contradicts_itself_is_refused(change: dict[str, Any]) -> None:
    """A wrong head, crown, claim or receipt, and events dropped or moved, are found without any outside help."""
    with pytest.raises(GradeError) as caught:
        check_ledger(msgspec.structs.replace(ledger(), **change))
    halved = change.get("events") == tuple(events(3)[:-1])  # a crown was taken away, and its winner is not there
    assert caught.value.code == ("LEDGER_UNLAWFUL" if halved else "LEDGER_INCONSISTENT")


def test_an_event_altered_after_the_fact_breaks_the_chain() -> None:
    """Raising a speed-up in the middle is found, because later events name the old one."""
    rows = events(3)
    rows[0] = msgspec.structs.replace(rows[0], speedup_ppm=9_000_000)
    with pytest.raises(GradeError) as caught:
        check_ledger(msgspec.structs.replace(ledger(), events=tuple(rows)))
    assert caught.value.code == "LEDGER_INCONSISTENT"
