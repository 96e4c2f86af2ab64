"""Publishes the weight vector, at most once per chain epoch, and follows it until the chain shows it.

Invariants
1. One step of `chain.publication` per new finalized block. While a publication is open it is only followed; a vector
   is computed only when the epoch still needs one.
2. The vector follows from the live crowns and the metagraph at that block (`scoring.projection`). Everything burns
   only while nothing is crowned, and nobody is paid in the place of an absent burn hotkey.
3. The vector and its signed receipt are stored in the same transaction as the intent that publishes it.
4. Reasons to wait are logged once, and whenever they change.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import structlog
from sqlalchemy import Connection

from chain.blocks import BlockRef
from chain.client import ChainClient
from chain.hyperparameters import read_hyperparameters
from chain.metagraph import Metagraph, read_metagraph
from chain.publication import PublicationOptions, WeightTarget, step
from chain.publication_record import PublicationRecord
from chain.signer import Signer
from node.services.context import NodeContext
from node.services.heads import HeadWatch
from node.services.receipts import ReceiptBook
from node.store.crown_rows import all_crowns, crown_state
from node.store.journal import StoreJournal, VectorRow, read_head
from scoring.projection import Projection, WeightPolicy, project
from scoring.receipts import WeightsPredicate, present_claimants, weights_statement
from scoring.settle import CrownState, live_claims

_OPERATOR_MUST_ACT = frozenset({
    "BURN_HOTKEY_NOT_REGISTERED", "NOT_REGISTERED", "NOT_PERMITTED", "WEIGHTS_TOO_FEW", "WEIGHT_ABOVE_LIMIT",
})


class Ledger(msgspec.Struct, frozen=True):
    """What weights derive from: the state of the crowns, and the receipts of the live ones."""

    state: CrownState
    crown_receipts: tuple[str, ...]


class PublicationService:
    """The publication service."""

    name = "publication"

    def __init__(
        self, context: NodeContext, client: ChainClient, signer: Signer, heads: HeadWatch, receipts: ReceiptBook
    ) -> None:
        self._context = context
        self._client = client
        self._signer = signer
        self._heads = heads
        self._receipts = receipts
        self._journal = StoreJournal(context.store)
        self._options = PublicationOptions(netuid=context.settings.chain.netuid, profile=context.settings.profile)
        self._last_waiting = ""

    async def run(self) -> None:
        """Make one step per finalized block until cancelled."""
        seen = -1
        while True:
            head = await self._heads.wait_beyond(seen)
            await self.step_once(head)
            seen = head.number

    async def step_once(self, block: BlockRef) -> PublicationRecord | None:
        """Make one step at finalized `block`; return the journal's newest record."""
        before = await self._context.store.read(read_head)
        desired = await self._desired(before, block)
        result = await step(self._client, self._signer, self._journal, desired, self._options)
        waiting = result.waiting.code if result.waiting is not None else ""
        if result.waiting is not None and waiting != self._last_waiting:
            log = structlog.get_logger()
            tell = log.warning if waiting in _OPERATOR_MUST_ACT else log.info
            tell("publication.waiting", code=waiting, message=result.waiting.message)
        self._last_waiting = waiting
        if result.head is not None and result.head != before:
            structlog.get_logger().info(
                f"publication.{result.head.status}", epoch=result.head.epoch, vector=result.head.vector_digest,
                extrinsic=result.head.extrinsic_hash, reason=result.head.reason,
            )
            self._context.wake.notify()
        return result.head

    async def _desired(self, head: PublicationRecord | None, block: BlockRef) -> WeightTarget | None:
        """Return the vector for the present epoch, or None when an open or finished publication covers it."""
        if head is not None and head.is_open:
            return None
        netuid = self._options.netuid
        epoch = (await read_hyperparameters(self._client, netuid, block)).epoch
        if head is not None and head.epoch >= epoch and head.status != "expired":
            return None
        metagraph = await read_metagraph(self._client, netuid, block)
        ledger = await self._context.store.read(read_ledger)
        policy = self._policy(metagraph)
        projection = project(
            live_claims(ledger.state), block=block.number, present=metagraph.hotkeys, policy=policy
        )
        for fault in projection.faults:
            structlog.get_logger().error("claim.set_aside", claim=fault.claim_id, code=fault.code)
        row = self._propose(projection, ledger, metagraph, policy, epoch)
        return WeightTarget(row.entries, row.shares_digest, epoch, policy.burn_hotkey)

    def _policy(self, metagraph: Metagraph) -> WeightPolicy:
        settings, own = self._context.settings.publication, self._signer.ss58_address
        undistributed: Literal["burn", "renormalise"] = (
            "burn" if settings.undistributed == "burn" else "renormalise"
        )
        return WeightPolicy(
            half_life_blocks=settings.half_life_blocks, undistributed=undistributed,
            burn_hotkey=settings.burn_hotkey or metagraph.owner_hotkey, validator_hotkey=own,
        )

    def _propose(
        self, projection: Projection, ledger: Ledger, metagraph: Metagraph, policy: WeightPolicy, epoch: int
    ) -> VectorRow:
        """Keep the vector ready to be stored together with the intent that publishes it."""
        vector, claims = projection.vector, live_claims(ledger.state)
        predicate = WeightsPredicate(
            vector=vector, vector_digest=vector.digest, netuid=self._options.netuid, epoch=epoch, claims=claims,
            present=present_claimants(claims, metagraph.hotkeys), policy=policy, ledger_head=ledger.state.head,
            crown_receipts=ledger.crown_receipts,
        )
        row = VectorRow(vector.digest, vector.block, vector.entries)
        self._journal.propose(row, lambda: self._receipts.sign(weights_statement(predicate)))
        return row


def read_ledger(connection: Connection) -> Ledger:
    """Return the crowns as the weight vector sees them."""
    receipts = sorted(crown.receipt_digest for crown in all_crowns(connection) if not crown.ended_by)
    return Ledger(crown_state(connection), tuple(receipts))
