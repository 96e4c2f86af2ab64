"""Settlements in the store: the chain of settlement events, and the crowns it leads to.

Invariants
1. `settlement_events` holds what `scoring.settle` planned, unaltered; `crown_state` replays it and is the truth.
2. `crowns` is its read model, written in the same transaction: a crown is live until an event ends it.
3. An event that does not follow the last one is refused, so nothing is crowned twice, whatever is repeated.
4. A claim is a live crown seen by the weight vector (`scoring.settle.live_claims`); it has no row of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec
from sqlalchemy import Connection, insert, select, tuple_, update
from sqlalchemy.dialects.sqlite import insert as insert_or

from node.store.events import append_event, now_ms
from node.store.evidence_rows import find_bundle
from node.store.schema import bundles, crowns, settlement_events, submissions
from node.store.submission_rows import ORDER, Submission, load_submission
from scoring.settle import GENESIS, CrownState, SettlementEvent, apply_event, replay


class CrownRow(msgspec.Struct, frozen=True):
    """One crown. `block` is the reveal's block, from which the claim's age counts; the ratio is ppm."""

    submission_id: str
    target_id: str
    content_hash: str
    hotkey: str
    block: int
    speedup_ppm: int
    event_digest: str
    receipt_digest: str = ""
    ended_by: str = ""  # the submission that retired or displaced it; its own id when it was revoked


def crown_state(connection: Connection) -> CrownState:
    """Return the state of all crowns. Raises `InternalError` (EVENT_CHAIN_BROKEN)."""
    return replay(all_settlement_events(connection))


def all_settlement_events(connection: Connection) -> list[SettlementEvent]:
    """Return every settlement event, oldest first."""
    bodies = connection.execute(select(settlement_events.c.body).order_by(settlement_events.c.sequence)).scalars()
    return [msgspec.json.decode(body, type=SettlementEvent) for body in bodies]


def settlement_head(connection: Connection) -> str:
    """Return the digest of the newest settlement event, as `CrownState.head` has it."""
    newest = select(settlement_events.c.digest).order_by(settlement_events.c.sequence.desc()).limit(1)
    return connection.scalar(newest) or GENESIS


def all_crowns(connection: Connection) -> list[CrownRow]:
    """Return every crown ever awarded, oldest first."""
    columns = [crowns.c[name] for name in CrownRow.__struct_fields__]
    rows = connection.execute(select(*columns).order_by(crowns.c.crowned_ms, crowns.c.submission_id)).mappings()
    return [CrownRow(**row) for row in rows]


def crowned_kin(
    connection: Connection, submission: Submission, public: Collection[str]
) -> tuple[Submission, str] | None:
    """Return the earliest crowned submission of another hotkey, before this one in chain order, whose copy this one is,
    with how that is; None when there is none.

    For the same target, one of the two holds all of the other. For any target, nothing in this one's bundle is not in
    crowned ones of others: to put two crowned slots together for the target that displaces both is no work. Pieces that
    are `public` make nobody a copy, and fingerprints of another version are not compared.
    """
    own = find_bundle(connection, submission.content_hash)
    if own is None or not own.pieces:
        return None
    rows = connection.execute(
        select(bundles.c.pieces, crowns.c.submission_id, crowns.c.target_id)
        .select_from(crowns.join(submissions).join(bundles, bundles.c.content_hash == crowns.c.content_hash))
        .where(
            submissions.c.hotkey != submission.hotkey,
            tuple_(*ORDER) < tuple_(*submission.order), bundles.c.pieces != "",
            bundles.c.print_version == own.print_version,
        )
        .order_by(*ORDER)
    )
    held = set(own.pieces.split())
    left, first = held.difference(public), ""
    for row in rows:
        crowned = set(row.pieces.split())
        if not (crowned & held).difference(public):
            continue
        first = first or row.submission_id
        left -= crowned
        if row.target_id == own.target_id and (crowned <= held or held <= crowned):
            how = "every implementation of" if crowned <= held else "no implementation that is not in"
            return load_submission(connection, row.submission_id), how
    if left or not first:
        return None
    how = "no implementation that is not in crowned bundles of others, the first of them"
    return load_submission(connection, first), how


def record_settlement(
    connection: Connection, events: Sequence[SettlementEvent], receipts: Mapping[str, str]
) -> CrownState:
    """Append settlement `events` and update the crowns; `receipts` gives the receipt digest by crowned submission.

    Raises `InternalError` (EVENT_CHAIN_BROKEN) when they do not follow the stored ones.
    """
    state = crown_state(connection)
    for event in events:
        state = apply_event(state, event)
        connection.execute(insert(settlement_events).values(
            sequence=event.sequence, type=event.type, submission_id=event.submission_id, digest=event.digest,
            body=msgspec.json.encode(event).decode(),
        ))
        match event.type:
            case "CROWN":
                receipt = receipts.get(event.submission_id, "")
                values = {
                    "submission_id": event.submission_id, "target_id": event.target_id,
                    "content_hash": event.order.content_hash, "hotkey": event.order.hotkey,
                    "block": event.order.block, "speedup_ppm": event.speedup_ppm, "event_digest": event.digest,
                    "receipt_digest": receipt, "crowned_ms": now_ms(), "ended_by": "",
                }
                connection.execute(  # a submission whose crown was revoked by our fault can earn one again
                    insert_or(crowns).values(**values).on_conflict_do_update(
                        index_elements=["submission_id"], set_=values, where=crowns.c.ended_by != ""
                    )
                )
            case "RETIRE" | "DISPLACE" | "REVOKE":
                ended = crowns.c.submission_id == event.submission_id
                connection.execute(update(crowns).where(ended).values(ended_by=event.cause))
            case "STALE_INCUMBENT":
                pass
        append_event(connection, f"settlement.{event.type.lower()}", event.submission_id, {
            "sequence": event.sequence, "digest": event.digest, "cause": event.cause, "target_id": event.target_id,
            "speedup_ppm": event.speedup_ppm, **({"reason": event.reason} if event.reason else {}),
        })
    return state
