"""What the pages say about submissions: public documents, and how they are read from the store.

Invariants
1. A document holds what the chain, a verdict or a receipt says; paths never.
2. A sentence about a fault that is not the miner's could name this machine, so the code's own summary stands in its
   place. What an attempt says is told when the attempt is over.
3. One page is one consistent picture: one read transaction, a bounded number of rows.
"""

from __future__ import annotations

import msgspec
from sqlalchemy import Connection

from config.codes import load_codes
from config.errors import Blame, NotFoundError
from node.jobs import FINAL
from node.kinship import Kinship
from node.kinship import decode as decode_kinship
from node.store.evidence_rows import AttemptRow
from node.store.job_rows import Entry
from node.store.queries import chain_view
from node.store.receipt_rows import ReceiptQuery, ReceiptRow, receipt_page, receipt_row
from node.store.submission_pages import PageQuery, attempts_of, crowns_of, fetch_counts, latest_shares, page_of, row_of


class AttemptView(msgspec.Struct, frozen=True):
    """One attempt; bounds are ppm (1_000_000 = as fast as the incumbent), and everything else empty until graded."""

    role: str
    state: str
    outcome: str = ""
    code: str = ""
    lower_ppm: int = 0
    upper_ppm: int = 0
    launches: int = 0
    digest: str = ""
    receipt_digest: str = ""


class SubmissionView(msgspec.Struct, frozen=True):
    """One submission. `speedup_ppm` is the credited speed-up, 0 without a crown; `weight_ppm` its confirmed share."""

    id: str
    hotkey: str
    block: int
    event_index: int
    content_hash: str
    url: str
    state: str
    final: bool
    code: str
    blame: str
    detail: str
    target_id: str
    seen_hash: str
    earlier_id: str
    fetches: int
    not_before_ms: int
    attempts: tuple[AttemptView, ...]
    speedup_ppm: int
    weight_ppm: int
    kinship: Kinship | None = None


class SubmissionPage(msgspec.Struct, frozen=True):
    """Submissions, newest first. `next` is the `after` of the following page, "" on the last one.

    `genesis_hash`, `netuid` and `cursor_block` say of which chain this is, and how far it was read.
    """

    genesis_hash: str
    netuid: int
    cursor_block: int
    submissions: tuple[SubmissionView, ...]
    next: str


class ReceiptPage(msgspec.Struct, frozen=True):
    """Receipts, newest first. `next` is the `after` of the following page, "" on the last one."""

    genesis_hash: str
    netuid: int
    receipts: tuple[ReceiptRow, ...]
    next: str


def read_page(connection: Connection, query: PageQuery) -> SubmissionPage:
    """Return one page. Raises `NotFoundError` (SUBMISSION_NOT_FOUND) for an `after` that is unknown."""
    if query.after and row_of(connection, query.after) is None:
        raise _unknown(query.after)
    chain = chain_view(connection)
    found = page_of(connection, msgspec.structs.replace(query, limit=query.limit + 1))
    shown = found[: query.limit]
    return SubmissionPage(
        genesis_hash=chain.genesis_hash if chain else "",
        netuid=chain.netuid if chain else 0,
        cursor_block=chain.cursor_block if chain else 0,
        submissions=_views(connection, shown),
        next=shown[-1].submission.submission_id if len(found) > query.limit else "",
    )


def read_receipts(connection: Connection, query: ReceiptQuery) -> ReceiptPage:
    """Return one page of receipts. Raises `NotFoundError` (DOCUMENT_NOT_FOUND) for an `after` that is unknown."""
    if query.after and receipt_row(connection, query.after) is None:
        raise NotFoundError(
            "DOCUMENT_NOT_FOUND", f"this node has no receipt {query.after}",
            hint="`after` is the digest of the last receipt of the page before",
        )
    chain = chain_view(connection)
    found = receipt_page(connection, msgspec.structs.replace(query, limit=query.limit + 1))
    shown = tuple(found[: query.limit])
    return ReceiptPage(
        genesis_hash=chain.genesis_hash if chain else "", netuid=chain.netuid if chain else 0, receipts=shown,
        next=shown[-1].digest if len(found) > query.limit else "",
    )


def read_submission(connection: Connection, submission_id: str) -> SubmissionView:
    """Return one submission. Raises `NotFoundError` (SUBMISSION_NOT_FOUND)."""
    entry = row_of(connection, submission_id)
    if entry is None:
        raise _unknown(submission_id)
    return _views(connection, [entry])[0]


def _views(connection: Connection, shown: list[Entry]) -> tuple[SubmissionView, ...]:
    names = [entry.submission.submission_id for entry in shown]
    attempts, fetches, crowns = (
        attempts_of(connection, names), fetch_counts(connection, names), crowns_of(connection, names),
    )
    shares = latest_shares(connection) if crowns else {}
    return tuple(
        _view(
            entry, attempts.get(name, []), fetches.get(name, 0),
            speedup_ppm=crowns[name].speedup_ppm if name in crowns else 0,
            weight_ppm=shares.get(entry.submission.hotkey, 0) if name in crowns and not crowns[name].ended_by else 0,
        )
        for name, entry in zip(names, shown, strict=True)
    )


def _view(
    entry: Entry, attempts: list[AttemptRow], fetches: int, *, speedup_ppm: int, weight_ppm: int
) -> SubmissionView:
    job, submission = entry
    final = job.state in FINAL
    return SubmissionView(
        id=submission.submission_id, hotkey=submission.hotkey, block=submission.block,
        event_index=submission.event_index, content_hash=submission.content_hash, url=submission.url,
        state=job.state.value, final=final, code=job.code, blame=job.blame,
        detail=told(job.code, job.blame, job.detail), target_id=job.target_id, seen_hash=job.seen_hash,
        earlier_id=job.earlier_id, fetches=fetches, not_before_ms=0 if final else job.not_before_ms,
        attempts=tuple(_attempt(attempt) for attempt in attempts), speedup_ppm=speedup_ppm, weight_ppm=weight_ppm,
        kinship=decode_kinship(job.kinship),
    )


def told(code: str, blame: str, detail: str) -> str:
    """Return what may be said to anybody: the detail when the miner is at fault, else the code's summary."""
    if not code or blame == Blame.MINER.value:
        return detail if code else ""
    document = load_codes().get(code)
    return document.summary if document is not None else ""


def _attempt(attempt: AttemptRow) -> AttemptView:
    if attempt.state != "graded":
        return AttemptView(attempt.role, attempt.state)
    return AttemptView(
        attempt.role, attempt.state, attempt.outcome, attempt.code, attempt.lower_ppm, attempt.upper_ppm,
        attempt.launches, attempt.digest, attempt.receipt_digest,
    )


def _unknown(submission_id: str) -> NotFoundError:
    return NotFoundError(
        "SUBMISSION_NOT_FOUND", f"this node knows no submission {submission_id}",
        hint="a submission is known once its reveal is final; `?hotkey=...` lists those of a hotkey",
    )
