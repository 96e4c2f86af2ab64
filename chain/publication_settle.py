"""Finding out from the chain what became of an open publication.

Invariants
1. The row decides: confirmed, or dropped with the best reason that can be read. Nothing here needs a wallet.
2. Bytes are submitted again only while nobody has them, and only while every UID in them belongs to whom it was signed
   for; otherwise they wait for the end of their era.
3. Blocks that no endpoint has any more leave the decision to the row, at the latest in the epoch after the last one
   in which the extrinsic could have applied. No state waits for a person.
"""

from __future__ import annotations

from typing import Any

from chain.abi import Storage, mechanism_index
from chain.hyperparameters import Hyperparameters
from chain.inclusion import Inclusion
from chain.pending import fate_of
from chain.publication_record import PublicationRecord
from chain.publication_step import PublicationStep, StepResult
from chain.validator_state import ValidatorState, read_row
from chain.waiting import archive_needed, reveal_pending, uids_reassigned
from chain.weights import rows_match
from config.errors import ChainError


async def settle(step: PublicationStep, record: PublicationRecord) -> StepResult:
    """Move an open record as far as the step's block allows."""
    state = await step.read_state(record, watch=record.uids)
    if record.included_block is None:
        fate = await fate_of(step.client, record.pending, step.block, state.nonce)
        match fate.kind:
            case "expired":
                return await step.end(record, "expired", fate.reason)
            case "waiting":
                return await step.submitted(record)
            case "absent":
                moved = state.moved(record.uids, record.hotkeys)
                return step.wait(record, uids_reassigned(moved, state)) if moved else await step.submit(record)
            case "unreadable":
                return await _settle_blind(step, record, state)
            case "included":
                record = await _included(step, record, state, fate.inclusion)
    elif step.block.number < record.included_block:
        return await step.submitted(record)  # the endpoint in use lags behind the one that showed the inclusion
    return await _confirm(step, record, state) if record.is_open else StepResult(record, step.block)


async def _included(
    step: PublicationStep, record: PublicationRecord, state: ValidatorState, found: Inclusion | None
) -> PublicationRecord:
    if found is None:
        return record
    success: bool | None = None
    error, epoch = "", _epoch_around(found.block.number, record, state.parameters)
    try:
        outcome = await step.client.outcome(found.block, found.index)
        (number,) = await step.client.read(found.block, [(Storage.EPOCH_INDEX, [record.netuid])])
        success, error, epoch = outcome.success, outcome.error, int(number)
    except ChainError as problem:
        if problem.code != "CHAIN_STATE_PRUNED":
            raise
        # After a long outage only the block's body may be left. The row itself will tell.
    changes: dict[str, Any] = {"included_block": found.block.number, "epoch": epoch}
    if success is False:
        return await step.follow(record, status="dropped", reason=f"the chain refused it: {error}", **changes)
    return await step.follow(record, status="submitted", **changes)


async def _confirm(step: PublicationStep, record: PublicationRecord, state: ValidatorState) -> StepResult:
    parameters = state.parameters
    moved = state.moved(record.uids, record.hotkeys)
    reveal_epoch = record.epoch + parameters.reveal_period_epochs
    if record.commit_reveal and parameters.epoch < reveal_epoch:
        return step.wait(record, reveal_pending(parameters, reveal_epoch, moved))
    if state.uid is None:
        return await step.end(record, "dropped", f"hotkey {record.hotkey} is no longer registered")
    if await _holds_row(step, record, state.uid):
        # A UID that changed hands is in the row: the record says so, and the next publication leaves it out.
        return await step.end(record, "confirmed", f"uids {list(moved)} changed hands after signing" if moved else "")
    if record.commit_reveal and parameters.epoch == reveal_epoch and await _is_sealed(step, record):
        return step.wait(record, reveal_pending(parameters, reveal_epoch, moved))
    return await step.end(record, "dropped", _why_not_applied(record, state))


async def _settle_blind(step: PublicationStep, record: PublicationRecord, state: ValidatorState) -> StepResult:
    """The nonce is used, and the blocks that would tell by what are gone."""
    parameters = state.parameters
    if state.uid is not None and await _holds_row(step, record, state.uid):
        return await step.end(record, "confirmed", "the block that included it is pruned; its row stands")
    last_epoch = record.epoch + 1 + (parameters.reveal_period_epochs if record.commit_reveal else 0)
    if parameters.epoch <= last_epoch:
        return step.wait(record, archive_needed(record, parameters, last_epoch + 1))
    return await step.end(
        record, "dropped", "its row is not on the chain, and the blocks that would tell why are pruned"
    )


async def _holds_row(step: PublicationStep, record: PublicationRecord, uid: int) -> bool:
    stored = await read_row(step.client, record.netuid, uid, step.block, record.mechanism)
    return rows_match(record.uids, record.values, stored)


async def _is_sealed(step: PublicationStep, record: PublicationRecord) -> bool:
    """Say whether the chain still keeps commits of this hotkey from the record's epoch."""
    index = mechanism_index(record.netuid, record.mechanism)
    (queue,) = await step.client.read(step.block, [(Storage.TIMELOCKED_WEIGHT_COMMITS, [index, record.epoch])])
    return any(str(entry[0]) == record.hotkey for entry in queue or [])


def _epoch_around(number: int, record: PublicationRecord, parameters: Hyperparameters) -> int:
    """Return the epoch of height `number` as far as present parameters tell: an era spans two epochs at most."""
    if number >= parameters.last_epoch_block:
        return parameters.epoch
    return max(record.epoch, min(record.epoch + 1, parameters.epoch - 1))


def _why_not_applied(record: PublicationRecord, state: ValidatorState) -> str:
    parameters = state.parameters
    if record.version_key < parameters.version_key:
        return f"not applied: it carries version key {record.version_key}, the subnet wants {parameters.version_key}"
    included = record.included_block or record.submit_block
    if not record.commit_reveal:
        if state.last_update > included:
            return f"another program replaced the row in block {state.last_update}"
        return "the weights row on the chain is not the one in the extrinsic"
    if not state.permit and record.uids != (state.uid,):
        return "not applied: the runtime dropped the commit; the hotkey has no validator permit"
    if state.alpha_rao < parameters.stake_threshold and not state.is_owner:
        return (
            f"not applied: the runtime dropped the commit; the hotkey's stake is {state.alpha_rao} rao, and setting "
            f"weights may need {parameters.stake_threshold}"
        )
    return "not applied in its reveal epoch: the runtime dropped the commit and says no reason"
