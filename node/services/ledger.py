"""Keeps the crown ledger as a signed document, and its digest on the chain.

Invariants
1. A document is on disk, under its digest in `ledger/`, before a commitment is signed that names it, and in the store,
   from which its file is written before later ones, before a vector is signed that derives from it.
2. The same crowns give the same document, so nothing is committed again for a ledger that did not change, unless the
   chain lost the commitment.
3. The document is written whether or not it is committed, because weight receipts are recomputed from it. Without
   `publication.ledger_url` nothing is asked of the chain. A disk that takes no files, and a chain that takes no
   commitment, never stop weights; a ledger that cannot be made or stored does, as nobody could check them.
4. Every ledger holds all events of those before it, so the newest `LEDGERS_KEPT` are enough, with those that the newest
   commitments name; older ones are forgotten, row first, or their folder would grow with the square of the crowns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import structlog
from sqlalchemy import Connection

from chain.abi import Storage
from chain.blocks import BlockRef
from chain.client import ChainClient
from chain.ledger_pointer import LedgerPointer, ledger_base_url
from chain.ledger_publication import CommitmentRecord, commitment_step
from chain.publication_record import PublicationRecord
from chain.signer import Signer
from config.canonical import is_digest
from config.errors import CacheonError, HostError
from config.limits import RECEIPT_BYTES
from node.services.context import NodeContext
from node.services.receipts import ReceiptBook, deliver
from node.store.crown_rows import all_crowns, all_settlement_events, settlement_head
from node.store.ledger_journal import StoreLedgerJournal
from node.store.queries import chain_view
from node.store.receipt_outbox import SealedReceipt, record_receipt
from node.store.receipt_rows import forget_ledgers, receipt_row
from scoring.ledger import LedgerPredicate, ledger_statement, make_ledger

LEDGERS_KEPT = 16


class LedgerKeeper:
    """Writes the ledger and commits it; used by the publication service after each of its steps."""

    def __init__(self, context: NodeContext, client: ChainClient, signer: Signer, receipts: ReceiptBook) -> None:
        settings = context.settings
        self._context = context
        self._client = client
        self._signer = signer
        self._receipts = receipts
        self._journal = StoreLedgerJournal(context.store)
        self._url = settings.publication.ledger_url and ledger_base_url(
            settings.publication.ledger_url, allow_loopback_http=settings.is_devnet
        )
        self._settled_epoch = -1  # in which nothing is left to do
        self._newest: tuple[str, str] | None = None  # head of the settlement events, digest of the document
        self._delivered = ""  # digest of the document whose file was written and after which older ones were removed
        self._last_trouble = ""

    async def follow(self, block: BlockRef, weights: PublicationRecord | None) -> None:
        """Make one step at finalized `block`; `weights` is the newest record of their journal."""
        if not self._url:
            return
        try:
            await self._step(block, weights)
        except CacheonError as error:
            self._tell(error.code, error.message)
        except Exception as error:  # noqa: BLE001 - a full disk or a defect of ours here must not end the weights' task
            self._tell("UNEXPECTED", f"{type(error).__name__}: {error}")
        else:
            self._last_trouble = ""

    async def _step(self, block: BlockRef, weights: PublicationRecord | None) -> None:
        netuid = self._context.settings.chain.netuid
        (epoch,) = await self._client.read(block, [(Storage.EPOCH_INDEX, [netuid])])
        if int(epoch) == self._settled_epoch:
            return
        pointer = LedgerPointer(await self.write(), self._url, self._receipts.public_key.hex())
        in_flight = weights is not None and weights.is_open and weights.included_block is None
        result = await commitment_step(
            self._client, self._signer, self._journal, pointer, netuid=netuid, epoch=int(epoch), block=block,
            weights_nonce=weights.nonce if weights is not None and in_flight else None,
        )
        if result.waiting is not None:
            self._tell(result.waiting.code, result.waiting.message)
        head: CommitmentRecord | None = result.head
        if result.waiting is None and not in_flight and (head is None or not head.is_open):
            self._settled_epoch = int(epoch)
            if head is not None:
                structlog.get_logger().info(
                    f"ledger.{head.status}", ledger=head.pointer.digest, epoch=head.epoch, reason=head.reason
                )

    async def keep(self) -> str:
        """See that the store holds the ledger as it is now, write its file if the disk takes it, and return its head.

        Raises `GradeError` and `InternalError` for a history that makes no ledger, `HostError` for a store that takes
        none: weights that derive from it must not be signed.
        """
        head, digest = await self._stored()
        try:
            await self._deliver(digest)
        except HostError as error:
            self._tell(error.code, error.message)
        return head

    async def write(self) -> str:
        """Write the ledger as it is now, unless its file is there, and return the digest of its document."""
        _, digest = await self._stored()
        await self._deliver(digest)
        return digest

    async def _stored(self) -> tuple[str, str]:
        """Return the ledger that the store holds now, by the head of its events and the digest of its document."""
        head = await self._context.store.read(settlement_head)
        if self._newest is None or self._newest[0] != head:
            head, document = await self._signed()
            await self._context.store.write(_list, document, head)
            if len(document.envelope) > RECEIPT_BYTES * 3 // 4:
                structlog.get_logger().warning(
                    "ledger.large", bytes=len(document.envelope), limit=RECEIPT_BYTES,
                    hint="a document beyond the limit is signed and named as before, and this release reads none",
                )
            self._newest = head, document.digest
        return self._newest

    async def _signed(self) -> tuple[str, SealedReceipt]:
        predicate = await self._context.store.read(read_ledger_document, self._signer.ss58_address)
        return predicate.head, await asyncio.to_thread(lambda: self._receipts.seal(ledger_statement(predicate)))

    async def _deliver(self, digest: str) -> None:
        path = self._context.layout.ledger / digest
        if self._delivered == digest and await asyncio.to_thread(path.exists):
            return
        await deliver(self._context.store, self._receipts)
        if not await asyncio.to_thread(path.exists):  # it was there once, and somebody removed it
            await asyncio.to_thread(self._receipts.write, [(await self._signed())[1]])
        stay = await self._context.store.write(forget_ledgers, digest, LEDGERS_KEPT)
        try:
            await asyncio.to_thread(self._tidy, stay)
        except OSError as error:  # too many of them are no harm
            self._tell("STATE_UNWRITABLE", f"older ledgers cannot be removed: {error.strerror or error}")
        self._delivered = digest

    def _tidy(self, stay: Collection[str]) -> None:
        """Remove the files of forgotten ledgers, also those that a kill has left."""
        for path in self._context.layout.ledger.iterdir():
            if path.name not in stay and is_digest(path.name):
                path.unlink(missing_ok=True)

    def _tell(self, code: str, message: str) -> None:
        if code != self._last_trouble:
            structlog.get_logger().warning("ledger.waiting", code=code, message=message)
        self._last_trouble = code


def _list(connection: Connection, document: SealedReceipt, head: str) -> None:
    if receipt_row(connection, document.digest) is None:
        record_receipt(connection, document, head)


def read_ledger_document(connection: Connection, hotkey: str) -> LedgerPredicate:
    """Return the ledger of the store, as validator `hotkey` signs it."""
    chain = chain_view(connection)
    receipts = {crown.event_digest: crown.receipt_digest for crown in all_crowns(connection) if crown.receipt_digest}
    return make_ledger(
        all_settlement_events(connection), receipts, genesis_hash=chain.genesis_hash if chain else "",
        netuid=chain.netuid if chain else 0, hotkey=hotkey,
    )
