"""Publishes the weight vector, at most once per chain epoch, and follows it until the chain shows it.

Invariants
1. One step of `chain.publication` per new finalized block. While a publication is open it is only followed; a vector
   is decided (`node.services.weight_vector`) only when the epoch still needs one.
2. The vector and its signed receipt are stored in the same transaction as the intent that publishes it.
3. A reason to wait is logged once, and kept for as long as it stands, with the block that holds now.
4. The crown ledger (`node.services.ledger`) has its turn after the weights of the same block, so that one task signs
   for the hotkey and weights come first; so has the statement that binds the receipt key (`node.services.key_binding`).
5. The ledger that a vector derives from is in the store before the vector's receipt is signed; their files are written
   in that order, at once or when the disk takes them again.
"""

from __future__ import annotations

import msgspec
import structlog

from chain.blocks import BlockRef
from chain.client import ChainClient
from chain.hyperparameters import Hyperparameters
from chain.metagraph import Metagraph
from chain.publication import PublicationOptions, Waiting, WeightTarget, step
from chain.publication_record import PublicationRecord
from chain.signer import Signer
from chain.validator_state import validator_reads
from node.services.context import NodeContext
from node.services.heads import HeadWatch
from node.services.key_binding import KeyBinder
from node.services.ledger import LedgerKeeper
from node.services.receipts import ReceiptBook, deliver_or_tell
from node.services.weight_vector import decide, read_ledger
from node.store.journal import StoreJournal
from node.store.waiting_rows import WaitingView, record_waiting
from scoring.receipts import weights_statement

_ON_ITS_WAY = frozenset({"NOT_INCLUDED_YET", "REVEAL_PENDING", "TARGET_EPOCH_STALE"})
_OPERATOR_MUST_ACT = frozenset({
    "BURN_HOTKEY_NOT_REGISTERED", "NOT_REGISTERED", "NOT_PERMITTED", "STAKE_TOO_LOW", "MECHANISM_MISSING",
    "WEIGHTS_TOO_FEW", "WEIGHT_ABOVE_LIMIT", "TOO_MANY_COMMITS", "ARCHIVE_NEEDED",
    "CLOCK_DIFFERS",
})


class PublicationService:
    """The publication service."""

    name = "publication"

    def __init__(
        self, context: NodeContext, client: ChainClient, signer: Signer, heads: HeadWatch, receipts: ReceiptBook
    ) -> None:
        settings = context.settings
        self._context = context
        self._client = client
        self._signer = signer
        self._heads = heads
        self._receipts = receipts
        self._journal = StoreJournal(context.store)
        self._options = PublicationOptions(
            netuid=settings.chain.netuid, profile=settings.profile, mechanism=settings.publication.mechanism,
            refresh_epochs=settings.publication.refresh_epochs,
        )
        self._ledger = LedgerKeeper(context, client, signer, receipts)
        self._binder = KeyBinder(context, signer, receipts)
        self._watched: tuple[int, ...] | None = None
        self._watch(())
        self._last_reason: tuple[str, str, int | None] | None = ("", "", None)  # of the life before: not known

    async def run(self) -> None:
        """Make one step per finalized block until cancelled."""
        seen = -1
        while True:
            head = await self._heads.wait_beyond(seen)
            await self.step_once(head)
            seen = head.number

    async def step_once(self, block: BlockRef) -> PublicationRecord | None:
        """Make one step at finalized `block`; return the journal's newest record."""
        before = await self._journal.head()
        result = await step(self._client, self._signer, self._journal, self._decide, self._options, block)
        await deliver_or_tell(self._context.store, self._receipts)
        self._watch(result.head.uids if result.head is not None and result.head.is_open else ())
        await self._note(result.waiting)
        if result.head is not None and result.head != before:
            structlog.get_logger().info(
                f"publication.{result.head.status}", epoch=result.head.epoch, vector=result.head.vector_digest,
                extrinsic=result.head.extrinsic_hash, reason=result.head.reason,
            )
            self._context.wake.notify()
        await self._ledger.follow(block, result.head)
        await self._binder.follow()
        return result.head

    def _watch(self, uids: tuple[int, ...]) -> None:
        """Have what a step reads fetched with every head that is followed, so that most steps ask for nothing."""
        if uids == self._watched:
            return
        self._watched, options = uids, self._options
        reads = validator_reads(options.netuid, self._signer.ss58_address, options.mechanism, uids)
        self._client.watch(self.name, reads)

    async def _decide(self, parameters: Hyperparameters, metagraph: Metagraph) -> WeightTarget:
        """Decide the vector, and keep it ready to be stored together with the intent that publishes it."""
        kept = await self._ledger.keep()
        while (ledger := await self._context.store.read(read_ledger, parameters.epoch)).state.head != kept:
            kept = await self._ledger.keep()  # something was settled in between
        decision = decide(
            ledger, parameters, metagraph, self._context.settings.publication, self._signer.ss58_address,
            self._context.catalog.targets, waived=self._context.settings.sandbox.waive,
        )
        for fault in decision.projection.faults:
            structlog.get_logger().error("claim.set_aside", claim=fault.claim_id, code=fault.code)
        self._journal.propose(decision.row, lambda: self._receipts.seal(weights_statement(decision.predicate)))
        return decision.target

    @property
    def waiting_code(self) -> str:
        """Why the newest step stopped, "" when nothing was in its way."""
        return self._last_reason[0] if self._last_reason is not None else ""

    async def _note(self, waiting: Waiting | None) -> None:
        """Log a reason to wait that is new, and keep it for `cacheon weights` unless it passes by itself."""
        reason = (waiting.code, waiting.needed, waiting.at_block) if waiting is not None else None
        if reason == self._last_reason:
            return
        previous, self._last_reason = self._last_reason, reason
        if waiting is not None and (previous is None or waiting.code != previous[0]):
            log = structlog.get_logger()
            tell = log.warning if waiting.code in _OPERATOR_MUST_ACT else log.info
            tell(
                "publication.waiting", code=waiting.code, message=waiting.message, current=waiting.current,
                needed=waiting.needed, at_block=waiting.at_block,
            )
        stands = waiting is not None and waiting.code not in _ON_ITS_WAY
        await self._context.store.write(record_waiting, _view(waiting) if waiting is not None and stands else None)


def _view(waiting: Waiting) -> WaitingView:
    return WaitingView(**msgspec.structs.asdict(waiting))
