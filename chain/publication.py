"""Publishing weights: exactly one extrinsic per intent, confirmed only by reading the chain back.

Invariants
1. Sign first: nonce and mortal era are fixed, the signed bytes are journalled, and only then are they submitted. After
   a crash or a lost connection the very same bytes are submitted again or found on the chain, never others.
2. A new intent needs proof that the old one is over: included, or its era final without it.
3. At most one publication per chain epoch (`SubnetEpochIndex`, read where the extrinsic was included).
4. Confirmation is the own weights row equal to the intended row at a finalized block; with commit-reveal not before
   the reveal epoch. Return codes, events and `LastUpdate` never confirm: a commit with a stale version key succeeds and
   is dropped in silence.
5. What is not applied in its reveal epoch is `dropped` with a reason and tried again in the next epoch.
6. Reasons to wait are results (`Waiting`), not errors; an unreadable chain raises and changes nothing.
"""

from __future__ import annotations

from typing import Any

import msgspec

from chain.abi import Call, Storage, mechanism_index
from chain.blocks import BlockRef
from chain.client import ChainClient, SignedCall
from chain.hyperparameters import Hyperparameters, read_hyperparameters
from chain.inclusion import Inclusion, find_inclusion
from chain.metagraph import read_metagraph
from chain.publication_record import (
    PublicationJournal,
    PublicationRecord,
    Status,
    journal_moved,
    publication_id,
    record_digest,
)
from chain.sealing import SealedRow, sealer_for
from chain.signer import Signer
from chain.weights import (
    Waiting,
    WeightRow,
    WeightTarget,
    reason_not_to_burn,
    reason_to_wait,
    resolve_row,
    rows_match,
)
from config.errors import ChainError

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


class PublicationOptions(msgspec.Struct, frozen=True):
    """How to publish. `era_blocks`: life of a signed extrinsic, a power of two >= 4. `refresh_epochs`: an unchanged,
    confirmed vector is published again after this many epochs."""

    netuid: int
    profile: str
    mechanism: int = 0
    era_blocks: int = 64
    refresh_epochs: int = 1


class StepResult(msgspec.Struct, frozen=True):
    """The journal's newest record after the step, the finalized block the step looked at, and why it stopped there."""

    head: PublicationRecord | None
    block: BlockRef
    waiting: Waiting | None = None


async def step(
    client: ChainClient,
    signer: Signer,
    journal: PublicationJournal,
    desired: WeightTarget | None,
    options: PublicationOptions,
) -> StepResult:
    """Do what can be done at the finalized head: settle what is open, or begin a publication of `desired`.

    Call it once per finalized block; with `desired` None it only settles. `desired.epoch` must be the chain's epoch at
    the finalized head, otherwise the step waits for a vector computed for it.

    Raises `NetworkError` and `ChainError` of the client, `InternalError` WEIGHT_VECTOR_INVALID and
    PUBLICATION_JOURNAL_MOVED. Any of them leaves the journal consistent; call again.
    """
    head = await journal.head()
    publisher = _Publisher(client, signer, journal, options, await client.finalized_head())
    if head is not None and head.is_open:
        return await publisher.settle(head)
    if desired is None:
        return StepResult(head, publisher.block)
    return await publisher.begin(head, desired)


class _Publisher:
    """One step at one finalized block."""

    def __init__(
        self,
        client: ChainClient,
        signer: Signer,
        journal: PublicationJournal,
        options: PublicationOptions,
        block: BlockRef,
    ) -> None:
        self._client = client
        self._signer = signer
        self._journal = journal
        self._options = options
        self.block = block

    # -- beginning -----------------------------------------------------------------------------------------------

    async def begin(self, head: PublicationRecord | None, desired: WeightTarget) -> StepResult:
        """Sign and submit `desired` unless this epoch had its publication or the chain would refuse."""
        options, hotkey = self._options, self._signer.ss58_address
        parameters = await read_hyperparameters(self._client, options.netuid, self.block)
        if head is not None and head.epoch >= parameters.epoch and head.status != "expired":
            return StepResult(head, self.block)
        newest = await read_hyperparameters(self._client, options.netuid, await self._client.head())
        if desired.epoch != parameters.epoch or newest.epoch != parameters.epoch:
            return self._wait(head, _stale(desired, newest))
        metagraph = await read_metagraph(self._client, options.netuid, self.block, options.mechanism)
        validator = metagraph.by_hotkey(hotkey)
        if validator is None:
            return self._wait(head, _not_registered(hotkey, options.netuid))
        unburnable = reason_not_to_burn(desired, metagraph)
        if unburnable is not None:
            return self._wait(head, unburnable)
        row = resolve_row(desired, metagraph, validator)
        if await self._is_fresh(head, desired, row, parameters, validator.uid):
            return StepResult(head, self.block)
        waiting = reason_to_wait(row, validator, parameters, len(metagraph.neurons))
        if waiting is not None:
            return self._wait(head, waiting)
        version_key = max(parameters.version_key, newest.version_key)
        signed = await self._sign(row, newest, version_key)
        record = PublicationRecord(
            publication_id=publication_id(signed.hash, parameters.epoch, desired.digest),
            epoch=parameters.epoch,
            vector_digest=desired.digest,
            status="intent",
            netuid=options.netuid,
            hotkey=hotkey,
            uids=row.uids,
            values=row.values,
            hotkeys=row.hotkeys,
            extrinsic_hex=signed.data.hex(),
            extrinsic_hash=signed.hash,
            nonce=signed.nonce,
            era_end_block=signed.era_end_block,
            version_key=version_key,
            commit_reveal=newest.commit_reveal_enabled,
            submit_block=self.block.number,
        )
        return await self._submit(await self._append(record, head))

    async def _is_fresh(
        self,
        head: PublicationRecord | None,
        desired: WeightTarget,
        row: WeightRow,
        parameters: Hyperparameters,
        own_uid: int,
    ) -> bool:
        """Say whether the chain already holds `row`, confirmed by us and young enough."""
        if head is None or head.status != "confirmed" or head.vector_digest != desired.digest:
            return False
        if parameters.epoch - head.epoch >= self._options.refresh_epochs:
            return False
        return rows_match(row.uids, row.values, await self._stored_row(own_uid))

    async def _sign(self, row: WeightRow, newest: Hyperparameters, version_key: int) -> SignedCall:
        options = self._options
        arguments: dict[str, object] = {"netuid": options.netuid, "mecid": options.mechanism}
        if newest.commit_reveal_enabled:
            call = Call.COMMIT_WEIGHTS
            plain = SealedRow(self._signer.public_key, row.uids, row.values, version_key)
            sealed = await sealer_for(options.profile).seal_row(self._client, plain, newest)
            arguments |= {
                "commit": sealed.ciphertext,
                "reveal_round": sealed.reveal_round,
                "commit_reveal_version": newest.commit_reveal_version,
            }
        else:
            call = Call.SET_WEIGHTS
            arguments |= {"dests": list(row.uids), "weights": list(row.values), "version_key": version_key}
        nonce = await self._client.next_nonce(self._signer.ss58_address)
        return await self._client.sign(
            call, arguments, self._signer, nonce=nonce, at=self.block, period=options.era_blocks
        )

    # -- submitting ----------------------------------------------------------------------------------------------

    async def _submit(self, record: PublicationRecord) -> StepResult:
        answer = await self._client.submit(bytes.fromhex(record.extrinsic_hex))
        match answer.fate:
            case "accepted":
                return await self._submitted(record)
            case "refused":
                message = f"The endpoint does not take the extrinsic: {answer.message}."
                return self._wait(record, _until_era_end("EXTRINSIC_REFUSED", message, record))
            case "unknown":
                message = f"It is not known whether the extrinsic arrived: {answer.message}"
                return self._wait(record, _until_era_end("EXTRINSIC_UNKNOWN", message, record))

    async def _submitted(self, record: PublicationRecord) -> StepResult:
        if record.status == "intent":
            record = await self._follow(record, status="submitted")
        message = f"Extrinsic {record.extrinsic_hash} waits to be included in a finalized block."
        return self._wait(record, _until_era_end("NOT_INCLUDED_YET", message, record))

    # -- settling ------------------------------------------------------------------------------------------------

    async def settle(self, record: PublicationRecord) -> StepResult:
        """Find out from the chain what became of an open publication."""
        if record.included_block is not None:
            if self.block.number < record.included_block:
                return await self._submitted(record)  # the endpoint in use lags behind the one that showed the inclusion
            return await self._confirm(record)
        used = await self._client.account_nonce(record.hotkey, self.block)
        if used > record.nonce:
            last = min(self.block.number, record.era_end_block)
            found = await find_inclusion(self._client, record.extrinsic_hash, record.submit_block + 1, last)
            if found is None:
                return await self._end(record, "expired", f"another extrinsic of this hotkey used nonce {record.nonce}")
            record = await self._included(record, found)
            return await self._confirm(record) if record.is_open else StepResult(record, self.block)
        if self.block.number > record.era_end_block:
            return await self._end(record, "expired", f"not included before block {record.era_end_block}")
        if await self._client.next_nonce(record.hotkey) > record.nonce:
            return await self._submitted(record)  # the endpoint's pool, or a block that is not final yet, has it
        return await self._submit(record)

    async def _included(self, record: PublicationRecord, found: Inclusion) -> PublicationRecord:
        success: bool | None = None
        error, epoch = "", record.epoch
        try:
            outcome = await self._client.outcome(found.block, found.index)
            (number,) = await self._client.read(found.block, [(Storage.EPOCH_INDEX, [record.netuid])])
            success, error, epoch = outcome.success, outcome.error, int(number)
        except ChainError as problem:
            if problem.code != "CHAIN_STATE_PRUNED":
                raise
            # After a long outage only the block's body may be left. The row itself will tell.
        changes: dict[str, Any] = {"included_block": found.block.number, "epoch": epoch}
        if success is False:
            return await self._follow(record, status="dropped", reason=f"the chain refused it: {error}", **changes)
        return await self._follow(record, status="submitted", **changes)

    async def _confirm(self, record: PublicationRecord) -> StepResult:
        parameters = await read_hyperparameters(self._client, record.netuid, self.block)
        reveal_epoch = record.epoch + parameters.reveal_period_epochs
        if record.commit_reveal and parameters.epoch < reveal_epoch:
            return self._wait(record, _reveal_pending(parameters, reveal_epoch))
        (uid,) = await self._client.read(self.block, [(Storage.UIDS, [record.netuid, record.hotkey])])
        if uid is None:
            return await self._end(record, "dropped", f"hotkey {record.hotkey} is no longer registered")
        if rows_match(record.uids, record.values, await self._stored_row(int(uid))):
            return await self._end(record, "confirmed", await self._reassigned(record))
        if record.commit_reveal and parameters.epoch == reveal_epoch and await self._is_sealed(record):
            return self._wait(record, _reveal_pending(parameters, reveal_epoch))
        return await self._end(record, "dropped", _why_not_applied(record, parameters))

    async def _stored_row(self, uid: int) -> tuple[tuple[int, int], ...]:
        index = mechanism_index(self._options.netuid, self._options.mechanism)
        (row,) = await self._client.read(self.block, [(Storage.WEIGHTS, [index, uid])])
        return tuple((int(target), int(value)) for target, value in row)

    async def _is_sealed(self, record: PublicationRecord) -> bool:
        """Say whether the chain still keeps commits of this hotkey from the record's epoch."""
        index = mechanism_index(record.netuid, self._options.mechanism)
        (queue,) = await self._client.read(self.block, [(Storage.TIMELOCKED_WEIGHT_COMMITS, [index, record.epoch])])
        return any(str(entry[0]) == record.hotkey for entry in queue or [])

    async def _reassigned(self, record: PublicationRecord) -> str:
        """Return "" or which UIDs of a confirmed row meanwhile belong to someone else; the next epoch corrects them."""
        owners = await self._client.read(self.block, [(Storage.KEYS, [record.netuid, uid]) for uid in record.uids])
        moved = [uid for uid, owner, hotkey in zip(record.uids, owners, record.hotkeys, strict=True) if owner != hotkey]
        return f"uids {moved} changed hands after signing" if moved else ""

    # -- journal -------------------------------------------------------------------------------------------------

    async def _append(self, record: PublicationRecord, prior: PublicationRecord | None) -> PublicationRecord:
        expected = record_digest(prior) if prior is not None else None
        chained = msgspec.structs.replace(record, prior_digest=expected or "")
        await self._journal.append(chained, expected)
        return chained

    async def _follow(self, record: PublicationRecord, *, status: Status, **changes: Any) -> PublicationRecord:
        return await self._append(msgspec.structs.replace(record, status=status, **changes), record)

    async def _end(self, record: PublicationRecord, status: Status, reason: str) -> StepResult:
        confirmed = self.block.number if status == "confirmed" else None
        ended = await self._follow(record, status=status, reason=reason, confirmed_block=confirmed)
        return StepResult(ended, self.block)

    def _wait(self, head: PublicationRecord | None, waiting: Waiting) -> StepResult:
        return StepResult(head, self.block, waiting)


def _stale(desired: WeightTarget, newest: Hyperparameters) -> Waiting:
    return Waiting(
        "TARGET_EPOCH_STALE",
        f"The vector was computed for epoch {desired.epoch}, and the chain is in epoch {newest.epoch}.",
        current=str(desired.epoch),
        needed=str(newest.epoch),
    )


def _not_registered(hotkey: str, netuid: int) -> Waiting:
    return Waiting(
        "NOT_REGISTERED",
        f"Hotkey {hotkey} is not registered on subnet {netuid}, so it has no weights row.",
        current="not registered",
        needed="registered",
    )


def _until_era_end(code: str, message: str, record: PublicationRecord) -> Waiting:
    return Waiting(code, message, current=record.status, needed="included", at_block=record.era_end_block)


def _reveal_pending(parameters: Hyperparameters, reveal_epoch: int) -> Waiting:
    return Waiting(
        "REVEAL_PENDING",
        f"The committed weights apply in epoch {reveal_epoch}; the chain is in epoch {parameters.epoch}.",
        current=f"epoch {parameters.epoch}",
        needed=f"epoch {reveal_epoch}",
        at_block=parameters.next_epoch_block,
    )


def _why_not_applied(record: PublicationRecord, parameters: Hyperparameters) -> str:
    if record.version_key < parameters.version_key:
        return f"not applied: it carries version key {record.version_key}, the subnet wants {parameters.version_key}"
    if record.commit_reveal:
        return "not applied in its reveal epoch: the runtime dropped the commit and says no reason"
    return "the weights row on the chain is not the one in the extrinsic"
