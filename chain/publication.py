"""Publishing weights: exactly one extrinsic per intent, confirmed only by reading the chain back.

Invariants
1. Sign first: nonce and mortal era are fixed, the signed bytes are journalled, and only then are they submitted. After
   a crash or a lost connection the very same bytes are submitted again or found on the chain, never others.
2. A new intent needs proof that the old one is over: included, or `expired` (see `chain.pending`).
3. At most one publication per chain epoch (`SubnetEpochIndex`, read where the extrinsic was included).
4. Confirmation is the own weights row equal to the intended row at a finalized block; with commit-reveal not before
   the reveal epoch. Return codes, events and `LastUpdate` never confirm: a commit with a stale version key succeeds and
   is dropped in silence.
5. What is not applied in its reveal epoch is `dropped` with a reason and tried again in the next epoch.
6. Reasons to wait are results (`Waiting`), not errors; an unreadable chain raises and changes nothing.
7. Everything that decides is read at one finalized block. The newest block can only hold a publication back: a rule
   that changed there, or a UID that changed hands, waits until the change is final.
"""

from __future__ import annotations

from chain.blocks import BlockRef
from chain.client import ChainClient
from chain.publication_plan import Desired, PublicationOptions, plan_publication
from chain.publication_record import PublicationJournal, PublicationRecord, journal_moved, record_digest
from chain.publication_settle import settle
from chain.publication_sign import sign_and_submit
from chain.publication_step import PublicationStep, StepResult
from chain.signer import Signer
from chain.waiting import Waiting
from chain.weights import WeightTarget

__all__ = [
    "PublicationJournal",
    "PublicationOptions",
    "PublicationRecord",
    "StepResult",
    "Waiting",
    "WeightTarget",
    "journal_moved",
    "record_digest",
    "step",
]


async def step(
    client: ChainClient,
    signer: Signer,
    journal: PublicationJournal,
    desired: Desired | None,
    options: PublicationOptions,
    block: BlockRef | None = None,
) -> StepResult:
    """Do what can be done at finalized `block` (None = the present head): settle what is open, or begin a publication.

    Call it once per finalized block. `desired` is a vector for the chain's epoch at the block, or a function that
    decides one when a publication is due; with None the step only settles.

    Raises `NetworkError` and `ChainError` of the client, `InternalError` WEIGHT_VECTOR_INVALID and
    PUBLICATION_JOURNAL_MOVED, and what `desired` raises. All leave the journal consistent; call again.
    """
    head = await journal.head()
    at = block if block is not None else await client.finalized_head()
    here = PublicationStep(client, journal, options, at)
    if head is not None and head.is_open:
        return await settle(here, head)
    if desired is None:
        return StepResult(head, at)
    plan = await plan_publication(client, signer.ss58_address, head, desired, options, at)
    if plan.waiting is not None or plan.row is None or plan.is_done:
        return StepResult(head, at, plan.waiting)
    return await sign_and_submit(here, signer, head, plan)
