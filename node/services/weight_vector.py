"""Which vector is published, and what it follows from: crowns, the metagraph and the settings, at one block. Pure.

Invariants
1. The node's publication and `cacheon weights plan` decide by this one function.
2. Everything burns only while nothing is crowned. What is burned goes to `publication.burn_hotkey`, else to the
   subnet's owner: the owner's hotkey, or the first neuron of the owner's coldkey when that one is not registered.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

import msgspec
from sqlalchemy import Connection

from chain.hyperparameters import Hyperparameters
from chain.metagraph import Metagraph
from chain.weights import WeightTarget
from config.settings import PublicationSettings
from node.store.crown_rows import all_crowns, crown_state
from node.store.journal import VectorRow, newest_weights_receipt
from scoring.projection import Projection, WeightPolicy, project
from scoring.receipts import WeightsPredicate, present_claimants
from scoring.settle import CrownState, live_claims


class Ledger(msgspec.Struct, frozen=True):
    """What weights derive from: the state of the crowns, the receipts of the live ones, and the weights receipt that
    was signed for the same epoch before ("" for none)."""

    state: CrownState
    crown_receipts: tuple[str, ...]
    replaces: str = ""


class Decision(msgspec.Struct, frozen=True):
    """A decided vector: what to publish, how it came about, and the predicate of its receipt."""

    target: WeightTarget
    projection: Projection
    predicate: WeightsPredicate

    @property
    def row(self) -> VectorRow:
        """The vector as the store keeps it."""
        vector = self.projection.vector
        return VectorRow(vector.digest, vector.block, vector.entries)


def read_ledger(connection: Connection, epoch: int | None = None) -> Ledger:
    """Return the crowns as the weight vector of `epoch` sees them."""
    receipts = sorted(crown.receipt_digest for crown in all_crowns(connection) if not crown.ended_by)
    replaces = newest_weights_receipt(connection, epoch) if epoch is not None else ""
    return Ledger(crown_state(connection), tuple(receipts), replaces)


def decide(
    ledger: Ledger, parameters: Hyperparameters, metagraph: Metagraph, settings: PublicationSettings, validator: str,
    registered: Collection[str], *, waived: Collection[str] | None = None,
) -> Decision:
    """Return the vector of `validator` for the epoch and block of `parameters`; `registered` are the catalog's targets.

    `waived` are the sandbox layers that the settings give up, for the receipt.
    Raises `InternalError` of `scoring.projection.project`.
    """
    claims, block = live_claims(ledger.state), parameters.block.number
    policy = _policy(settings, metagraph, validator)
    targets = tuple(sorted({claim.target_id for claim in claims}.intersection(registered)))
    projection = project(claims, block=block, present=metagraph.hotkeys, policy=policy, targets=targets)
    predicate = WeightsPredicate(
        vector=projection.vector, vector_digest=projection.vector.digest, netuid=parameters.netuid,
        epoch=parameters.epoch, claims=claims, present=present_claimants(claims, metagraph.hotkeys), policy=policy,
        ledger_head=ledger.state.head, crown_receipts=ledger.crown_receipts, targets=targets, replaces=ledger.replaces,
        waived=tuple(sorted(set(waived))) if waived is not None else None,
    )
    row = VectorRow(projection.vector.digest, block, projection.vector.entries)
    target = WeightTarget(row.entries, row.shares_digest, parameters.epoch, policy.burn_hotkey, policy.heir)
    return Decision(target, projection, predicate)


def burn_hotkey_of(metagraph: Metagraph) -> str:
    """Return the hotkey of the subnet's owner that takes what is burned, "" when the subnet has none."""
    if metagraph.by_hotkey(metagraph.owner_hotkey) or not metagraph.owner_coldkey:
        return metagraph.owner_hotkey
    own = (one.hotkey for one in metagraph.neurons if one.coldkey == metagraph.owner_coldkey)
    return next(own, metagraph.owner_hotkey)


def _policy(settings: PublicationSettings, metagraph: Metagraph, validator: str) -> WeightPolicy:
    undistributed: Literal["burn", "renormalise"] = "burn" if settings.undistributed == "burn" else "renormalise"
    absent: Literal["validator", "burn"] = "burn" if settings.absent == "burn" else "validator"
    return WeightPolicy(
        half_life_blocks=settings.half_life_blocks, undistributed=undistributed,
        burn_hotkey=settings.burn_hotkey or burn_hotkey_of(metagraph), validator_hotkey=validator, absent=absent,
    )
