"""Admits reserved submissions: nothing is fetched before what it costs is settled.

Invariants
1. A job is admitted or refused by what the chain says about its payment, or by its miner's credits; a chain that cannot
   be asked leaves it waiting, for as long as it takes.
2. Jobs are looked at in finalized order. A job whose own lookup fails delays nobody else's; a chain that is away is
   asked again with the next pass.
3. Whether anything is due was decided when the reveal was recorded; a price that was lifted since is not asked for.
"""

from __future__ import annotations

import structlog

from chain.client import ChainClient
from chain.payment import Claim, PaymentRefusal
from chain.payment_lookup import look_up_payment
from config.errors import NetworkError
from node.jobs import Job, JobState, StaleTokenError
from node.services.context import NodeContext
from node.services.supervisor import report_fault
from node.store.admission_rows import admit_free, admit_paid, admit_unpaid, postpone, waiting
from node.store.job_rows import Entry
from node.store.submission_rows import Submission

_AT_ONCE = 64


class AdmissionService:
    """The admission service."""

    name = "admission"

    def __init__(self, context: NodeContext, client: ChainClient) -> None:
        self._context = context
        self._client = client
        self._ear = context.wake.listen()

    async def run(self) -> None:
        """Admit whatever waits until cancelled."""
        while True:
            moved = await self.admit_once()
            if any(_is_settled(job) for job in moved):
                self._context.wake.notify()
            if len(moved) < _AT_ONCE:
                await self._ear.wait(self._context.settings.chain.poll_seconds)

    async def admit_once(self) -> list[Job]:
        """Make one pass; return the jobs as they moved."""
        context = self._context
        moved: list[Job] = []
        for entry in await context.store.read(waiting, context.transport_budget, _AT_ONCE):
            try:
                job = await self._admit(entry)
            except StaleTokenError:
                continue
            except NetworkError as error:
                moved.append(await self._postpone(entry.job, error))
                break  # whoever comes next would only wait for the same chain
            except Exception as error:  # noqa: BLE001 - one odd payment must not keep the others out
                await report_fault(context, self.name, error, entry.job.submission_id)
                job = await self._postpone(entry.job, error)
            moved.append(job)
            if _is_settled(job):
                structlog.get_logger().info(
                    "submission.admitted" if job.admission else "submission.unpaid", submission=job.submission_id,
                    admission=job.admission, code=job.code,
                )
        return moved

    async def _admit(self, entry: Entry) -> Job:
        context, (job, submission) = self._context, entry
        cost = context.settings.evaluation_cost
        if not cost.is_due(submission.block):
            return await context.store.write(admit_free, job)
        claim = _claim(submission, context.settings.chain.netuid)
        if claim is None:
            return await context.store.write(admit_unpaid, entry)
        found = await look_up_payment(self._client, claim, cost)
        if isinstance(found, PaymentRefusal) and len(context.settings.chain.endpoints) > 1:
            # A refusal costs a miner what he paid, so no endpoint is believed alone.
            await self._client.try_another()
            found = await look_up_payment(self._client, claim, cost)
        return await context.store.write(admit_paid, entry, found, context.transport_budget)

    async def _postpone(self, job: Job, error: Exception) -> Job:
        context = self._context
        postponed = await context.store.write(postpone, job, error, context.transport_budget)
        log = structlog.get_logger()
        log.warning("payment.unknown", submission=job.submission_id, code=postponed.code, faults=postponed.faults)
        return postponed


def _is_settled(job: Job) -> bool:
    return bool(job.admission) or job.state is JobState.FAILED


def _claim(submission: Submission, netuid: int) -> Claim | None:
    if submission.payment_block is None or submission.payment_index is None:
        return None
    return Claim(
        content_hash=submission.content_hash, hotkey=submission.hotkey, netuid=netuid, reveal_block=submission.block,
        payment_block=submission.payment_block, payment_index=submission.payment_index,
    )
