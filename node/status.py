"""What the node is doing, read from its state folder: works while it runs and when it does not.

Invariants
1. Reading changes nothing: the database is opened read-only and no lock is taken.
2. One status is one consistent picture: everything comes from a single read transaction.
3. It holds only what is public on chain, or in receipts once an attempt is over.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from sqlalchemy import Connection

from node.jobs import FINAL
from node.kinship import Kinship
from node.kinship import decode as decode_kinship
from node.observed import observe
from node.readiness import Reason, judge_readiness
from node.store.check_rows import UNCOMPARED_LOOKS, checks
from node.store.crown_rows import CrownRow, all_crowns
from node.store.evidence_rows import AttemptRow
from node.store.job_rows import Entry, entries
from node.store.journal import find_vector
from node.store.layout import StateLayout
from node.store.queries import (
    PublicationView,
    attempts_by_submission,
    count_by_state,
    events_head,
    fetches_by_submission,
    publication_views,
)
from node.store.visit import look

STATUS_SCHEMA = "cacheon.node-status.v1"
_CHECKS_TOLD = 20


class AttemptStatus(msgspec.Struct, frozen=True):
    """One attempt; bounds are ppm (1_000_000 = as fast as the incumbent) and 0 until graded."""

    id: str
    role: str
    state: str
    outcome: str
    code: str
    lower_ppm: int
    upper_ppm: int
    launches: int
    path: str
    digest: str
    replay_of: str


class SubmissionStatus(msgspec.Struct, frozen=True):
    """One submission and its job. `speedup_ppm` is the credited speed-up, 0 without a crown."""

    id: str
    hotkey: str
    block: int
    event_index: int
    content_hash: str
    url: str
    state: str
    code: str
    blame: str
    detail: str
    seen_hash: str
    earlier_id: str
    target_id: str
    fetches: int
    not_before_ms: int
    attempts: tuple[AttemptStatus, ...]
    speedup_ppm: int
    weight_ppm: int
    final: bool
    kinship: Kinship | None = None  # what it shares with an earlier submission


class CrownStatus(msgspec.Struct, frozen=True):
    """One crown; `receipt` is the path of its signed receipt."""

    target_id: str
    submission_id: str
    hotkey: str
    content_hash: str
    speedup_ppm: int
    block: int
    live: bool
    receipt: str


class CheckStatus(msgspec.Struct, frozen=True):
    """One check of a crown. `submission_id` holds the crown; `cause` is the submission that gave reason to check it.

    `shown` counts the attempts so far that show a fault of the crowned bundle; `needed` of them revoke the crown.
    """

    submission_id: str
    target_id: str
    occasion: str
    cause: str
    state: str
    shown: int
    needed: int
    code: str
    detail: str
    not_before_ms: int
    opened_ms: int
    closed_ms: int


class PublicationStatus(msgspec.Struct, frozen=True):
    """One weight publication; `entries` are shares in ppm by hotkey."""

    publication_id: str
    epoch: int
    status: str
    digest: str
    entries: tuple[tuple[str, int], ...]
    submit_block: int | None
    included_block: int | None
    confirmed_block: int | None
    extrinsic_hash: str
    reason: str
    receipt: str


class NodeStatus(msgspec.Struct, frozen=True):
    """The whole picture. `running_pid` is 0 when no node holds the folder; `epoch` -1 before any publication.

    `ready` and `reasons` are judged by `node.readiness` from what the state folder tells; the permit is that of the
    last time the chain was reached. `head_block` is the newest finalized block that the node saw, `block_age_seconds`
    its age by the block's own clock, None while no node runs or none was seen.
    """

    schema: str
    state_dir: str
    running_pid: int
    genesis_hash: str
    netuid: int
    cursor_block: int
    cursor_hash: str
    epoch: int
    counts: dict[str, int]
    submissions: tuple[SubmissionStatus, ...]
    crowns: tuple[CrownStatus, ...]
    publication: PublicationStatus | None
    publications: tuple[PublicationStatus, ...]
    weights: tuple[tuple[str, int], ...]
    arena: str
    arena_digest: str
    waived: tuple[str, ...]
    events: int
    events_head: str
    ready: bool = False
    reasons: tuple[Reason, ...] = ()
    head_block: int = 0
    block_age_seconds: float | None = None
    checks: tuple[CheckStatus, ...] = ()  # of crowns: those under way, and the newest that are over


def read_status(state_dir: str | Path) -> NodeStatus:
    """Return the status of the node whose state lies in `state_dir`.

    Raises `NotFoundError` (STATE_NOT_FOUND) when there is none yet, `HostError` (STORE_UNUSABLE).
    """
    return look(state_dir, _read)


def all_final(status: NodeStatus, count: int) -> bool:
    """Say whether at least `count` submissions are known and every one is settled, failed or expired."""
    return len(status.submissions) >= count and all(submission.final for submission in status.submissions)


def weights_confirmed(status: NodeStatus) -> bool:
    """Say whether the last vector confirmed on chain pays every holder of a live crown."""
    paid = {hotkey for hotkey, _ in status.weights}
    return bool(paid) and {crown.hotkey for crown in status.crowns if crown.live} <= paid


def _read(connection: Connection, layout: StateLayout) -> NodeStatus:
    observed = observe(connection, layout)
    chain, started = observed.chain, observed.started
    crowns = all_crowns(connection)
    publications = tuple(_publication(connection, layout, view) for view in publication_views(connection))
    weights = next((one.entries for one in reversed(publications) if one.status == "confirmed"), ())
    count, head = events_head(connection)
    readiness = judge_readiness(observed.conditions)
    return NodeStatus(
        schema=STATUS_SCHEMA,
        state_dir=str(layout.root),
        running_pid=observed.running_pid,
        genesis_hash=chain.genesis_hash if chain else "",
        netuid=chain.netuid if chain else 0,
        cursor_block=chain.cursor_block if chain else 0,
        cursor_hash=chain.cursor_hash if chain else "",
        epoch=publications[-1].epoch if publications else -1,
        counts=count_by_state(connection),
        submissions=_submissions(connection, layout, crowns, dict(weights)),
        crowns=tuple(_crown(layout, crown) for crown in crowns),
        publication=publications[-1] if publications else None,
        publications=publications,
        weights=weights,
        arena=started.arena,
        arena_digest=started.arena_digest,
        waived=started.waived,
        events=count,
        events_head=head,
        ready=readiness.ready,
        reasons=readiness.reasons,
        head_block=observed.seen.block,
        block_age_seconds=observed.conditions.block_age_seconds,
        checks=_checks(connection),
    )


def _submissions(
    connection: Connection, layout: StateLayout, crowns: list[CrownRow], weights: dict[str, int]
) -> tuple[SubmissionStatus, ...]:
    attempts = attempts_by_submission(connection)
    fetches = fetches_by_submission(connection)
    crowned = {crown.submission_id: crown for crown in crowns}
    return tuple(
        _submission(
            layout, entry, attempts.get(entry.job.submission_id, []), fetches.get(entry.job.submission_id, 0),
            crowned.get(entry.job.submission_id), weights,
        )
        for entry in entries(connection)
    )


def _submission(
    layout: StateLayout,
    entry: Entry,
    attempts: list[AttemptRow],
    fetches: int,
    crown: CrownRow | None,
    weights: dict[str, int],
) -> SubmissionStatus:
    job, submission = entry
    live = crown is not None and not crown.ended_by
    return SubmissionStatus(
        id=job.submission_id, hotkey=submission.hotkey, block=submission.block, event_index=submission.event_index,
        content_hash=submission.content_hash, url=submission.url, state=job.state.value, code=job.code,
        blame=job.blame, detail=job.detail, seen_hash=job.seen_hash, earlier_id=job.earlier_id,
        target_id=job.target_id, fetches=fetches,
        not_before_ms=job.not_before_ms if job.state not in FINAL else 0,
        attempts=tuple(_attempt(layout, attempt) for attempt in attempts),
        speedup_ppm=crown.speedup_ppm if crown is not None else 0,
        weight_ppm=weights.get(submission.hotkey, 0) if live else 0,
        final=job.state in FINAL,
        kinship=decode_kinship(job.kinship),
    )


def _attempt(layout: StateLayout, attempt: AttemptRow) -> AttemptStatus:
    return AttemptStatus(
        id=attempt.attempt_id, role=attempt.role, state=attempt.state, outcome=attempt.outcome, code=attempt.code,
        lower_ppm=attempt.lower_ppm, upper_ppm=attempt.upper_ppm, launches=attempt.launches,
        path=str(layout.root / attempt.path) if attempt.path else "", digest=attempt.digest,
        replay_of=attempt.replay_of,
    )


def _crown(layout: StateLayout, crown: CrownRow) -> CrownStatus:
    return CrownStatus(
        target_id=crown.target_id, submission_id=crown.submission_id, hotkey=crown.hotkey,
        content_hash=crown.content_hash, speedup_ppm=crown.speedup_ppm, block=crown.block,
        live=not crown.ended_by, receipt=_receipt(layout, crown.receipt_digest),
    )


def _checks(connection: Connection) -> tuple[CheckStatus, ...]:
    """Return the checks under way and the newest that are over, oldest first."""
    every = checks(connection)
    over = [check.id for check in every if check.closed_ms][-_CHECKS_TOLD:]
    return tuple(
        CheckStatus(
            submission_id=check.submission_id, target_id=check.target_id, occasion=check.occasion, cause=check.cause,
            state=check.state, shown=check.uncompared or bool(check.first_attempt) + bool(check.second_attempt),
            needed=UNCOMPARED_LOOKS if check.uncompared else 2, code=check.code, detail=check.detail,
            not_before_ms=check.not_before_ms, opened_ms=check.opened_ms, closed_ms=check.closed_ms,
        )
        for check in every if not check.closed_ms or check.id in over
    )


def _publication(connection: Connection, layout: StateLayout, view: PublicationView) -> PublicationStatus:
    vector = find_vector(connection, view.publication_id)
    return PublicationStatus(
        publication_id=view.publication_id, epoch=view.epoch, status=view.status,
        digest=vector.digest if vector is not None else "",
        entries=vector.entries if vector is not None else (), submit_block=view.submit_block,
        included_block=view.included_block, confirmed_block=view.confirmed_block,
        extrinsic_hash=view.extrinsic_hash, reason=view.reason,
        receipt=_receipt(layout, vector.receipt_digest) if vector is not None else "",
    )


def _receipt(layout: StateLayout, digest: str) -> str:
    return str(layout.receipts / f"{digest}.json") if digest else ""
