"""Committing the ledger pointer: the discipline of weights (sign, journal, submit, look for) on an errand of its own.

Invariants
1. At most one commitment per chain epoch, and only when the chain does not show the wanted pointer already.
2. Weights come first: while weights are signed and not included, nothing is signed here, and nothing is submitted again
   unless the weights' nonce follows this one's.
3. Only journalled bytes are submitted; they are looked for in finalized blocks, and `confirmed` means that the stored
   commitment at a finalized block is the pointer.
4. A sealed commitment of the same hotkey is not overwritten: it would be lost to whoever submitted it. It is looked for
   in the finalized and in the newest block, and nothing is signed while anything of the hotkey waits in the pool.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import msgspec

from chain.abi import Call, Storage
from chain.blocks import BlockRef
from chain.client import ChainClient
from chain.inclusion import Inclusion
from chain.ledger_pointer import LedgerPointer, pointer_arguments, read_commitment
from chain.pending import PendingExtrinsic, fate_of
from chain.signer import Signer
from chain.waiting import Waiting
from config.canonical import domain_digest
from config.errors import Blame, ChainError, InternalError

ERA_BLOCKS = 64
CommitmentStatus = Literal["intent", "submitted", "confirmed", "failed", "expired"]


class CommitmentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One state of one commitment. `epoch` is the chain's when it was signed."""

    commitment_id: str  # the extrinsic's hash
    status: CommitmentStatus
    epoch: int
    netuid: int
    pointer: LedgerPointer
    hotkey: str
    extrinsic_hex: str
    nonce: int
    era_end_block: int
    submit_block: int
    spec_version: int = 0
    included_block: int | None = None
    confirmed_block: int | None = None
    reason: str = ""
    prior_digest: str = ""

    @property
    def pending(self) -> PendingExtrinsic:
        """The signed extrinsic."""
        return PendingExtrinsic(
            data=bytes.fromhex(self.extrinsic_hex),
            hash=self.commitment_id,
            hotkey=self.hotkey,
            nonce=self.nonce,
            signed_block=self.submit_block,
            era_end_block=self.era_end_block,
            spec_version=self.spec_version,
        )

    @property
    def is_open(self) -> bool:
        """Whether its fate is still to be read from the chain."""
        return self.status in ("intent", "submitted")


class CommitmentJournal(Protocol):
    """Durable storage of records, newest last; both are one short transaction."""

    async def head(self) -> CommitmentRecord | None:
        """Return the newest record."""
        ...

    async def append(self, record: CommitmentRecord, expected_head: str | None) -> None:
        """Append if the newest record's digest is `expected_head` (None = empty), else raise `InternalError`."""
        ...


def commitment_digest(record: CommitmentRecord) -> str:
    """Return the digest that names a record, and through `prior_digest` everything before it."""
    return domain_digest("cacheon.ledger-commitment", msgspec.to_builtins(record))


def ledger_journal_moved() -> InternalError:
    """Return the error of a journal whose newest record is not the expected one."""
    return InternalError(
        "LEDGER_JOURNAL_MOVED",
        "The journal of ledger commitments was written by someone else in the meantime.",
        hint="Only one node may use a state folder; stop the other one.",
        blame=Blame.OPERATOR,
    )


class CommitmentResult(msgspec.Struct, frozen=True):
    """The newest record after a step, and why it stopped there."""

    head: CommitmentRecord | None
    waiting: Waiting | None = None


async def commitment_step(
    client: ChainClient,
    signer: Signer,
    journal: CommitmentJournal,
    wanted: LedgerPointer,
    *,
    netuid: int,
    epoch: int,
    block: BlockRef,
    weights_nonce: int | None,
) -> CommitmentResult:
    """Do what can be done at finalized `block` of chain epoch `epoch`.

    `weights_nonce` is the nonce of weights that are signed and not included yet, else None. Raises what the client
    raises, and LEDGER_JOURNAL_MOVED; the journal stays consistent.
    """
    head = await journal.head()
    step = _CommitmentStep(client, journal, head, block)
    if head is not None and head.is_open:
        return await step.settle(head, may_submit=weights_nonce is None or weights_nonce > head.nonce)
    if weights_nonce is not None or (head is not None and head.epoch >= epoch and head.status != "expired"):
        return CommitmentResult(head)
    (raw,) = await client.read_raw(block, [(Storage.COMMITMENT_OF, [netuid, signer.ss58_address])])
    stored = read_commitment(raw)
    if stored.pointer == wanted:
        return CommitmentResult(head)
    if stored.kind == "sealed":
        return CommitmentResult(head, _occupied(stored.block))
    (uid,) = await client.read(block, [(Storage.UIDS, [netuid, signer.ss58_address])])
    if uid is None:
        return CommitmentResult(head)  # weights say so already
    return await step.sign(signer, wanted, netuid, epoch)


class _CommitmentStep:
    def __init__(
        self, client: ChainClient, journal: CommitmentJournal, head: CommitmentRecord | None, block: BlockRef
    ) -> None:
        self._client = client
        self._journal = journal
        self._head = head
        self._block = block

    async def sign(self, signer: Signer, wanted: LedgerPointer, netuid: int, epoch: int) -> CommitmentResult:
        included, waiting = await self._newest(netuid, signer.ss58_address)
        if waiting is not None:
            return CommitmentResult(self._head, waiting)
        nonce = await self._client.next_nonce(signer.ss58_address)
        if nonce > included:
            return CommitmentResult(self._head, _busy(nonce - included))
        arguments = pointer_arguments(netuid, wanted)
        signed = await self._client.sign(
            Call.SET_COMMITMENT, arguments, signer, nonce=nonce, at=self._block, period=ERA_BLOCKS
        )
        record = CommitmentRecord(
            commitment_id=signed.hash,
            status="intent",
            epoch=epoch,
            netuid=netuid,
            pointer=wanted,
            hotkey=signer.ss58_address,
            extrinsic_hex=signed.data.hex(),
            nonce=signed.nonce,
            era_end_block=signed.era_end_block,
            submit_block=self._block.number,
            spec_version=signed.spec_version,
        )
        return await self._submit(await self._append(record))

    async def _newest(self, netuid: int, hotkey: str) -> tuple[int, Waiting | None]:
        """Return the hotkey's nonce at the newest block, and why its commitment there must stay."""
        newest = await self._client.head()
        (raw,) = await self._client.read_raw(newest, [(Storage.COMMITMENT_OF, [netuid, hotkey])])
        stored = read_commitment(raw)
        included = await self._client.account_nonce(hotkey, newest)
        return included, _occupied(stored.block) if stored.kind == "sealed" else None

    async def settle(self, record: CommitmentRecord, *, may_submit: bool) -> CommitmentResult:
        nonce = await self._client.account_nonce(record.hotkey, self._block)
        fate = await fate_of(self._client, record.pending, self._block, nonce)
        match fate.kind:
            case "expired":
                return CommitmentResult(await self._follow(record, "expired", reason=fate.reason))
            case "unreadable":
                return await self._confirm(record, "the block that included it is pruned")
            case "waiting":
                return await self._submitted(record)
            case "absent":
                # Nobody sealed anything since: it would have taken this nonce.
                return await self._submit(record) if may_submit else CommitmentResult(record)
            case "included":
                return await self._included(record, fate.inclusion)

    async def _included(self, record: CommitmentRecord, found: Inclusion | None) -> CommitmentResult:
        if found is None:
            return CommitmentResult(record)
        record = msgspec.structs.replace(record, included_block=found.block.number)
        try:
            outcome = await self._client.outcome(found.block, found.index)
        except ChainError as error:
            if error.code != "CHAIN_STATE_PRUNED":
                raise
            return await self._confirm(record, "the state that would say why is pruned")
        return await self._confirm(record, f"the chain refused it: {outcome.error}" if outcome.success is False else "")

    async def _confirm(self, record: CommitmentRecord, failure: str) -> CommitmentResult:
        """The stored commitment decides; `failure` is the reason when it is another one."""
        (raw,) = await self._client.read_raw(self._block, [(Storage.COMMITMENT_OF, [record.netuid, record.hotkey])])
        if read_commitment(raw).pointer == record.pointer:
            return CommitmentResult(await self._follow(record, "confirmed", confirmed_block=self._block.number))
        reason = failure or "another commitment of this hotkey took its place"
        return CommitmentResult(await self._follow(record, "failed", reason=reason))

    async def _submit(self, record: CommitmentRecord) -> CommitmentResult:
        answer = await self._client.submit(record.pending.data)
        if answer.fate == "accepted":
            return await self._submitted(record)
        code = "EXTRINSIC_REFUSED" if answer.fate == "refused" else "EXTRINSIC_UNKNOWN"
        message = f"The ledger's commitment is not known to be in a pool: {answer.message}."
        return CommitmentResult(record, Waiting(code, message, record.status, "included", record.era_end_block))

    async def _submitted(self, record: CommitmentRecord) -> CommitmentResult:
        if record.status == "intent":
            record = await self._follow(record, "submitted")
        return CommitmentResult(record)

    async def _follow(self, record: CommitmentRecord, status: CommitmentStatus, **changes: Any) -> CommitmentRecord:
        return await self._append(msgspec.structs.replace(record, status=status, **changes))

    async def _append(self, record: CommitmentRecord) -> CommitmentRecord:
        expected = commitment_digest(self._head) if self._head is not None else None
        chained = msgspec.structs.replace(record, prior_digest=expected or "")
        await self._journal.append(chained, expected)
        self._head = chained
        return chained


def _occupied(block: int) -> Waiting:
    return Waiting(
        "LEDGER_SLOT_OCCUPIED",
        f"The hotkey's commitment of block {block} is sealed and not revealed yet; the ledger does not overwrite it.",
        current="a sealed commitment",
        needed="its reveal",
    )


def _busy(count: int) -> Waiting:
    return Waiting(
        "LEDGER_HOTKEY_BUSY",
        f"{count} extrinsics of the hotkey wait in the pool, perhaps a sealed commitment among them; the ledger goes "
        "after them.",
        current=f"{count} in the pool",
        needed="none",
    )
