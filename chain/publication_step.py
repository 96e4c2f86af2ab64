"""What every step of a publication shares: the block it looks at, the journal it writes, and submitting.

Invariants
1. A record is journalled before anything follows from it; each follows the one before by compare and swap.
2. Only journalled bytes are submitted, and the endpoint's answer decides nothing: it becomes a reason to wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from chain.blocks import BlockRef
from chain.client import ChainClient
from chain.publication_plan import PublicationOptions
from chain.publication_record import PublicationJournal, PublicationRecord, Status, record_digest
from chain.validator_state import ValidatorState, read_validator
from chain.waiting import Waiting, until_era_end


class StepResult(msgspec.Struct, frozen=True):
    """The journal's newest record after the step, the finalized block the step looked at, and why it stopped there."""

    head: PublicationRecord | None
    block: BlockRef
    waiting: Waiting | None = None


class PublicationStep:
    """One step at one finalized block."""

    def __init__(
        self, client: ChainClient, journal: PublicationJournal, options: PublicationOptions, block: BlockRef
    ) -> None:
        self.client = client
        self.options = options
        self.block = block
        self._journal = journal

    async def read_state(self, record: PublicationRecord, watch: Sequence[int] = ()) -> ValidatorState:
        """Read all that decides about `record` at the step's block."""
        return await read_validator(
            self.client, record.netuid, record.hotkey, self.block, mechanism=record.mechanism, watch=watch
        )

    async def append(self, record: PublicationRecord, prior: PublicationRecord | None) -> PublicationRecord:
        """Journal `record` after `prior`."""
        expected = record_digest(prior) if prior is not None else None
        chained = msgspec.structs.replace(record, prior_digest=expected or "")
        await self._journal.append(chained, expected)
        return chained

    async def follow(self, record: PublicationRecord, *, status: Status, **changes: Any) -> PublicationRecord:
        """Journal the next state of `record`."""
        return await self.append(msgspec.structs.replace(record, status=status, **changes), record)

    async def end(self, record: PublicationRecord, status: Status, reason: str) -> StepResult:
        """Journal the last state of `record`."""
        confirmed = self.block.number if status == "confirmed" else None
        ended = await self.follow(record, status=status, reason=reason, confirmed_block=confirmed)
        return StepResult(ended, self.block)

    def wait(self, head: PublicationRecord | None, waiting: Waiting) -> StepResult:
        """Stop here for a reason."""
        return StepResult(head, self.block, waiting)

    async def submit(self, record: PublicationRecord) -> StepResult:
        """Hand the journalled bytes to the endpoint."""
        answer = await self.client.submit(record.pending.data)
        match answer.fate:
            case "accepted":
                return await self.submitted(record)
            case "refused":
                message = f"The endpoint does not take the extrinsic: {answer.message}."
                return self.wait(record, until_era_end("EXTRINSIC_REFUSED", message, record, current=answer.message))
            case "unknown":
                message = f"It is not known whether the extrinsic arrived: {answer.message}"
                return self.wait(record, until_era_end("EXTRINSIC_UNKNOWN", message, record))

    async def submitted(self, record: PublicationRecord) -> StepResult:
        """Note that the extrinsic is on its way."""
        if record.status == "intent":
            record = await self.follow(record, status="submitted")
        message = f"Extrinsic {record.extrinsic_hash} waits to be included in a finalized block."
        return self.wait(record, until_era_end("NOT_INCLUDED_YET", message, record))
