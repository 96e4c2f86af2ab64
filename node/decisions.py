"""What a person may decide about a submission: the only way in which one takes part in judging.

Invariants
1. There are two occasions: a speed-up that is too good to be believed unseen is accepted or refused; and what failed,
   or lost its crown, by a fault of ours is opened again. Nobody can pass, crown or fail anything else by hand.
2. A decision needs a reason and is public: an event, and a signed receipt in the same transaction.
3. To accept is to measure again with the one guard lifted, not to count what was measured: both attempts of a crown are
   graded by the same rule, which anybody can apply to their files (`cacheon regrade --reviewed`).
4. It takes one short transaction on the node's store, beside the running node; if the submission moved on since it was
   looked at, nothing is written.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec
from sqlalchemy import Connection, select

from config.errors import Blame, ConfigurationError, HostError, NotFoundError
from node.jobs import CROWN_REVOKED, Job, JobState, fail, release, reopen
from node.services.attempt_choice import REVIEW_REFUSED
from node.services.receipts import ReceiptBook
from node.store.check_rows import checks
from node.store.decision_rows import record_decision
from node.store.events import now_ms
from node.store.evidence_rows import AttemptRow, load_attempt
from node.store.job_rows import Entry, entries, save, select_entries
from node.store.layout import StateLayout
from node.store.queries import attempts_by_submission
from node.store.receipt_outbox import SealedReceipt, mark_delivered
from node.store.schema import submissions
from node.store.values import storable
from node.store.visit import look, visit
from scoring.decision import DecisionPredicate, Kind, decision_statement
from scoring.grade import REVIEW_CODES

REASON_CHARACTERS = 500
_OPEN_STATES = (JobState.FAILED, JobState.SETTLED)


class Pending(msgspec.Struct, frozen=True):
    """A submission that waits for a person; bounds are ppm, `path` is that of the attempt file."""

    submission_id: str
    hotkey: str
    block: int
    target_id: str
    content_hash: str
    code: str
    detail: str
    attempt_id: str
    lower_ppm: int
    upper_ppm: int
    path: str


class Draft(msgspec.Struct, frozen=True):
    """A decision before it is signed: the job it was made for, and the attempt it was made on ("" for none)."""

    job: Job
    attempt_id: str
    predicate: DecisionPredicate


class Decided(msgspec.Struct, frozen=True):
    """A decision that counts."""

    submission_id: str
    kind: str
    state: str
    code: str
    reason: str
    receipt: str


def pending(state_dir: str | Path) -> list[Pending]:
    """Return what waits for a person, in finalized order. Raises what `node.store.visit.look` raises."""
    return look(state_dir, _pending)


def decide(state_dir: str | Path, kind: Kind, prefix: str, reason: str) -> Decided:
    """Decide about the submission whose id begins with `prefix`.

    Raises `ConfigurationError` (DECISION_REASON_MISSING, REVIEW_NOT_PENDING, REOPEN_NOT_FAILED), `NotFoundError`
    (SUBMISSION_NOT_FOUND, STATE_NOT_FOUND), `HostError`, `StaleTokenError` when the node was faster.
    """
    reason = storable(" ".join(reason.split()))
    if not 0 < len(reason) <= REASON_CHARACTERS:
        raise ConfigurationError(
            "DECISION_REASON_MISSING", f"a decision needs a reason of 1 to {REASON_CHARACTERS} characters",
            hint="say with --reason what was seen; it is signed and public",
        )
    draft = look(state_dir, lambda connection, _: prepare(connection, kind, prefix, reason))
    book = ReceiptBook.open(StateLayout.at(state_dir))
    receipt = book.seal(decision_statement(draft.predicate))
    job = visit(state_dir, commit, draft, receipt)
    with contextlib.suppress(HostError):  # it is decided; the node writes the file when the disk takes it again
        book.write([receipt])
        visit(state_dir, mark_delivered, [receipt.digest])
    return Decided(job.submission_id, kind, job.state.value, job.code, reason, receipt.digest)


def prepare(connection: Connection, kind: Kind, prefix: str, reason: str) -> Draft:
    """Return the decision on what the store holds now. Raises what `decide` raises about it."""
    entry = _find(connection, prefix)
    attempt = _reviewed(connection, entry) if kind != "reopen" else _failed(connection, entry)
    job, submission = entry
    return Draft(job, attempt.attempt_id if attempt else "", DecisionPredicate(
        kind=kind, submission_id=job.submission_id, hotkey=submission.hotkey, content_hash=submission.content_hash,
        target_id=job.target_id, arena_digest=attempt.arena_digest if attempt else "", code=job.code,
        attempt_digest=attempt.digest if attempt else "", verdict_receipt=attempt.receipt_digest if attempt else "",
        reason=reason, decided_unix_ms=now_ms(),
    ))


def commit(connection: Connection, draft: Draft, receipt: SealedReceipt) -> Job:
    """Write a decision down and move its job. Raises `StaleTokenError` when the job has moved since."""
    job, decision = draft.job, draft.predicate
    match decision.kind:
        case "accept":
            after = release(job)
        case "refuse":
            after = fail(
                job, job.token, REVIEW_REFUSED, blame=Blame.MINER.value,
                detail=f"a person looked at it: {decision.reason}", parked_from="", parked_on="", not_before_ms=0,
            )
        case "reopen":
            after = reopen(job)
    record_decision(connection, decision, attempt_id=draft.attempt_id, receipt=receipt)
    return save(connection, job, after)


def _pending(connection: Connection, layout: StateLayout) -> list[Pending]:
    found = []
    for entry in entries(connection, JobState.PARKED):
        if entry.job.code in REVIEW_CODES and (attempt := _latest(connection, entry)) is not None:
            job, submission = entry
            found.append(Pending(
                job.submission_id, submission.hotkey, submission.block, job.target_id, submission.content_hash,
                job.code, job.detail, attempt.attempt_id, attempt.lower_ppm, attempt.upper_ppm,
                str(layout.root / attempt.path),
            ))
    return found


def _find(connection: Connection, prefix: str) -> Entry:
    known = select(submissions.c.submission_id).where(submissions.c.submission_id.startswith(prefix, autoescape=True))
    names = connection.execute(known.limit(2)).scalars().all() if prefix else []
    if len(names) != 1:
        raise NotFoundError(
            "SUBMISSION_NOT_FOUND", f"{'no submission' if not names else 'more than one submission'} begins with "
            f"{prefix[:64]!r}", hint="`cacheon node status` lists the ids; give enough digits of one",
            blame=Blame.OPERATOR,
        )
    return select_entries(connection, submissions.c.submission_id == names[0])[0]


def _latest(connection: Connection, entry: Entry) -> AttemptRow | None:
    """Return the newest graded attempt of a submission, None before there is one."""
    own = attempts_by_submission(connection).get(entry.job.submission_id, [])
    return next((attempt for attempt in reversed(own) if attempt.state == "graded"), None)


def _reviewed(connection: Connection, entry: Entry) -> AttemptRow:
    attempt = _latest(connection, entry)
    if entry.job.state is not JobState.PARKED or entry.job.code not in REVIEW_CODES or attempt is None:
        raise ConfigurationError(
            "REVIEW_NOT_PENDING", f"submission {entry.job.submission_id} is {entry.job.state} and waits for nobody",
            hint="`cacheon node review ls` lists what does",
        )
    return attempt


def _failed(connection: Connection, entry: Entry) -> AttemptRow | None:
    """Return the attempt that ended a submission, the one that was really run; None when none did."""
    job = entry.job
    if job.state not in _OPEN_STATES or (job.state is JobState.SETTLED and job.code != CROWN_REVOKED):
        raise ConfigurationError(
            "REOPEN_NOT_FAILED", f"submission {job.submission_id} is {job.state}, so there is nothing to open again",
            hint="what is parked or on its way goes on by itself",
        )
    if job.state is JobState.SETTLED:
        revoked = [check for check in checks(connection, "revoked") if check.submission_id == job.submission_id]
        return load_attempt(connection, revoked[-1].second_attempt) if revoked else None
    name = job.reproduction_attempt or job.primary_attempt
    attempt = load_attempt(connection, name) if name else _latest(connection, entry)
    return load_attempt(connection, attempt.replay_of) if attempt and attempt.replay_of else attempt
