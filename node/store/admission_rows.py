"""Admitting reserved jobs: for free, for a payment, or for a credit.

Invariants
1. A payment admits one submission; using it up and admitting the job are one transaction. So are spending a credit and
   admitting.
2. A credit is spent only when the submission names no payment.
3. Of submissions that point at the same payment the earliest in chain order is admitted, whichever is looked up first.
"""

from __future__ import annotations

from sqlalchemy import Connection, insert, select, tuple_

from chain.payment import UNPAID, USED, Payment, PaymentRefusal
from config.errors import Blame, CacheonError
from node.jobs import Job, JobState, RetryBudget, fail, transition
from node.store.credit_rows import CREDIT, PAID, spend_oldest
from node.store.events import append_event, now_ms
from node.store.job_rows import Entry, due, save
from node.store.schema import jobs, payments, submissions
from node.store.submission_rows import FREE, ORDER, Submission


def waiting(connection: Connection, budget: RetryBudget, limit: int) -> list[Entry]:
    """Return at most `limit` jobs that wait to be admitted and whose delay is over, in finalized order."""
    return due(connection, JobState.RESERVED, budget, limit, where=jobs.c.admission == "")


def admit_free(connection: Connection, job: Job) -> Job:
    """Admit a job for which nothing is due."""
    return _admit(connection, job, FREE)


def admit_unpaid(connection: Connection, entry: Entry) -> Job:
    """Admit a job without a payment for its miner's oldest credit, or fail it."""
    job, submission = entry
    if spend_oldest(connection, submission.hotkey, job.submission_id):
        return _admit(connection, job, CREDIT)
    detail = f"a submission revealed in block {submission.block} has to be paid for, and the hotkey has no credit"
    return save(connection, job, fail(job, job.token, UNPAID, detail=detail))


def admit_paid(connection: Connection, entry: Entry, found: Payment | PaymentRefusal, budget: RetryBudget) -> Job:
    """Admit a job for the payment that was found, or fail it; one that an earlier submission may use waits for it."""
    job, submission = entry
    if isinstance(found, PaymentRefusal):
        return save(connection, job, fail(job, job.token, found.code, detail=found.message))
    place = (payments.c.payment_block == found.block) & (payments.c.payment_index == found.index)
    user = connection.scalar(select(payments.c.submission_id).where(place))
    if user is not None:
        detail = f"the payment in block {found.block}, extrinsic {found.index}, admitted submission {user}"
        return save(connection, job, fail(job, job.token, USED, detail=detail))
    if _earlier_claimant(connection, submission):
        return save(connection, job, transition(
            job, JobState.RESERVED, job.token, not_before_ms=now_ms() + budget.delay_ms(1),
            detail="an earlier submission names the same payment",
        ))
    connection.execute(insert(payments).values(
        payment_block=found.block, payment_index=found.index, submission_id=job.submission_id, payer=found.payer,
        destination=found.destination, amount_rao=found.amount_rao, used_ms=now_ms(),
    ))
    append_event(connection, "payment.used", job.submission_id, {
        "block": found.block, "index": found.index, "payer": found.payer, "amount_rao": found.amount_rao,
    })
    return _admit(connection, job, PAID)


def postpone(connection: Connection, job: Job, error: Exception, budget: RetryBudget) -> Job:
    """Let a job wait whose payment could not be looked up; never an end, however often it happens."""
    code, detail, blame = "UNEXPECTED", f"{type(error).__name__}: {error}", Blame.INTERNAL
    if isinstance(error, CacheonError):
        code, detail, blame = error.code, error.message, error.blame
    faults = job.faults + 1
    return save(connection, job, transition(
        job, JobState.RESERVED, job.token, faults=faults, not_before_ms=now_ms() + budget.delay_ms(faults),
        code=code, detail=detail, blame=blame.value,
    ))


def _admit(connection: Connection, job: Job, admission: str) -> Job:
    return save(connection, job, transition(
        job, JobState.RESERVED, job.token, admission=admission, faults=0, not_before_ms=0, code="", detail="", blame=""
    ))


def _earlier_claimant(connection: Connection, submission: Submission) -> bool:
    """Whether a submission before this one, still to be admitted, has the same content, hotkey and payment."""
    same = (
        (submissions.c.payment_block == submission.payment_block)
        & (submissions.c.payment_index == submission.payment_index)
        & (submissions.c.hotkey == submission.hotkey) & (submissions.c.content_hash == submission.content_hash)
    )
    still = (jobs.c.state == JobState.RESERVED.value) & (jobs.c.admission == "")
    before = tuple_(*ORDER) < tuple_(*submission.order)
    found = connection.execute(select(jobs.c.submission_id).join(submissions).where(same, still, before)).first()
    return found is not None
