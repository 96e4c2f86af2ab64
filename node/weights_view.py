"""What a state folder tells about weights: the last vector with its derivation, the journal, and why nothing happens.

Invariants
1. Nothing is written; a running node is not disturbed.
2. Who gets what and why is computed again from the vector's signed receipt, never stored beside it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from sqlalchemy import Connection

from chain.publication_record import PublicationRecord
from config.errors import CacheonError
from node.services.weight_vector import Ledger, read_ledger
from node.store.journal import VectorRow, find_vector, read_records
from node.store.layout import StateLayout
from node.store.ledger_journal import read_commitment_head
from node.store.queries import chain_view, latest_event
from node.store.visit import look
from node.store.waiting_rows import WaitingView, read_waiting
from scoring.dsse import verify
from scoring.projection import ShareLine
from scoring.receipts import WeightsPredicate, read_predicate, recompute_weights


class Share(msgspec.Struct, frozen=True):
    """One hotkey's part of a vector, and what it follows from."""

    hotkey: str
    ppm: int
    why: tuple[str, ...]


class PublicationLine(msgspec.Struct, frozen=True):
    """The last state of one publication; heights are blocks."""

    epoch: int
    status: str
    reason: str
    extrinsic_hash: str
    nonce: int
    submit_block: int
    included_block: int | None
    confirmed_block: int | None
    era_end_block: int


class LedgerLine(msgspec.Struct, frozen=True):
    """The last state of the ledger's commitment."""

    status: str
    digest: str
    url: str
    epoch: int
    reason: str


class WeightsView(msgspec.Struct, frozen=True):
    """The whole picture of one state folder. `vector_block` is 0 before the first vector."""

    state_dir: str
    netuid: int
    genesis_hash: str
    hotkey: str
    vector_block: int
    shares: tuple[Share, ...]
    waiting: WaitingView | None
    publications: tuple[PublicationLine, ...]  # newest first
    ledger: LedgerLine | None
    head: PublicationRecord | None
    crowns: Ledger


class _Started(msgspec.Struct):
    hotkey: str = ""


def read_weights(state_dir: str | Path) -> WeightsView:
    """Return the weights of the node whose state lies in `state_dir`.

    Raises `NotFoundError` (STATE_NOT_FOUND), `HostError` (STORE_UNUSABLE).
    """
    return look(state_dir, _read)


def shares_of(
    entries: tuple[tuple[str, int], ...], lines: tuple[ShareLine, ...], burn_hotkey: str
) -> tuple[Share, ...]:
    """Return each entry of a vector with the claims behind it, largest first."""
    ordered = sorted(entries, key=lambda entry: (-entry[1], entry[0]))
    return tuple(Share(hotkey, ppm, _why(hotkey, lines, burn_hotkey)) for hotkey, ppm in ordered)


def _why(hotkey: str, lines: tuple[ShareLine, ...], burn_hotkey: str) -> tuple[str, ...]:
    reasons = []
    for line in lines:
        if line.recipient == hotkey:
            absent = "" if line.hotkey == hotkey else f"; in place of {line.hotkey}, who left the subnet"
            left = 100 * line.standing_credit / line.full_credit if line.full_credit else 0.0
            reasons.append(f"crown of {line.target_id}: {left:.1f} % of its credit left{absent}")
    if hotkey == burn_hotkey:
        reasons.append("burns what was lost to decay" if lines else "burns everything while nothing is crowned")
    return tuple(reasons)


def _read(connection: Connection, layout: StateLayout) -> WeightsView:
    chain = chain_view(connection)
    records = read_records(connection)
    head = records[-1] if records else None
    started = msgspec.json.decode(latest_event(connection, "chain.ready") or "{}", type=_Started)
    vector = find_vector(connection, head.publication_id) if head is not None else None
    commitment = read_commitment_head(connection)
    newest = {record.publication_id: record for record in records}
    return WeightsView(
        state_dir=str(layout.root), netuid=chain.netuid if chain else 0,
        genesis_hash=chain.genesis_hash if chain else "",
        hotkey=started.hotkey or (head.hotkey if head is not None else ""),
        vector_block=vector.block if vector is not None else 0,
        shares=_derived(layout, vector) if vector is not None else (),
        waiting=read_waiting(connection),
        publications=tuple(_line(record) for record in reversed(newest.values())),
        ledger=LedgerLine(
            commitment.status, commitment.pointer.digest, commitment.pointer.url, commitment.epoch, commitment.reason
        ) if commitment is not None else None,
        head=head, crowns=read_ledger(connection),
    )


def _line(record: PublicationRecord) -> PublicationLine:
    return msgspec.convert(
        {name: getattr(record, name) for name in PublicationLine.__struct_fields__}, PublicationLine
    )


def _derived(layout: StateLayout, vector: VectorRow) -> tuple[Share, ...]:
    """Return the shares with their reasons; without reasons when the receipt cannot be read any more."""
    try:
        key = bytes.fromhex(layout.receipt_key.with_suffix(".pub").read_text("ascii").strip())
        envelope = (layout.receipts / f"{vector.receipt_digest}.json").read_bytes()
        predicate = read_predicate(verify(envelope, [key]), WeightsPredicate)
        projection = recompute_weights(predicate)
    except (OSError, ValueError, CacheonError):
        return shares_of(vector.entries, (), "")
    return shares_of(vector.entries, projection.lines, predicate.policy.burn_hotkey)
