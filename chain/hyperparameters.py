"""The subnet's parameters that decide when and how weights can be set, all read at one block.

Invariants
1. One request, one block hash: the epoch, the version key and the commit-reveal switch always belong together.
2. The epoch is the chain's own counter (`SubnetEpochIndex`). It is never derived from a height, because the schedule is
   stateful: owners can trigger an epoch early and the chain can defer one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from chain.abi import Storage
from chain.blocks import BlockRef
from chain.client import ChainClient
from chain.codec import StorageRead


class Hyperparameters(msgspec.Struct, frozen=True):
    """Parameters of one subnet at one block; heights and periods are blocks unless named otherwise."""

    netuid: int
    block: BlockRef
    tempo: int
    epoch: int
    last_epoch_block: int
    pending_epoch_at: int  # height of an owner-triggered epoch, 0 = none
    blocks_since_last_step: int
    commit_reveal_enabled: bool
    commit_reveal_version: int
    reveal_period_epochs: int
    version_key: int
    rate_limit: int
    min_allowed_weights: int
    max_weight_limit: int  # largest share of one weight, in 1/65535
    mechanism_count: int = 1
    stake_threshold: int = 0  # least stake weight, in rao, of a hotkey that sets weights; 0 = any

    @property
    def next_epoch_block(self) -> int | None:
        """The height at which the next epoch is expected, or None for a subnet that never runs one."""
        if self.tempo == 0:
            return None
        due = self.last_epoch_block + self.tempo
        return min(due, self.pending_epoch_at) if self.pending_epoch_at > self.block.number else due


async def read_hyperparameters(client: ChainClient, netuid: int, block: BlockRef) -> Hyperparameters:
    """Return the parameters of `netuid` at `block`. Raises `ChainError` (SUBNET_NOT_FOUND) among others."""
    values = await client.read(block, hyperparameter_reads(netuid))
    found = parse_hyperparameters(netuid, block, values)
    if found is None:
        await client.require_subnet(netuid, block)
        return await read_hyperparameters(client, netuid, block)
    return found


def hyperparameter_reads(netuid: int) -> list[StorageRead]:
    """Return the storage items that `parse_hyperparameters` takes, in its order."""
    return [(item, [] if item in _GLOBAL else [netuid]) for item in _ITEMS.values()]


def parse_hyperparameters(netuid: int, block: BlockRef, values: Sequence[Any]) -> Hyperparameters | None:
    """Return the parameters in the values of `hyperparameter_reads`, or None when the subnet does not exist."""
    found = dict(zip(_ITEMS, values, strict=True))
    if not found.pop("exists"):
        return None
    enabled = bool(found.pop("commit_reveal_enabled"))
    numbers = {name: int(value or 0) for name, value in found.items()}
    return Hyperparameters(netuid=netuid, block=block, commit_reveal_enabled=enabled, **numbers)


_GLOBAL = frozenset({Storage.COMMIT_REVEAL_VERSION, Storage.STAKE_THRESHOLD})
_ITEMS = {
    "exists": Storage.NETWORKS_ADDED,
    "tempo": Storage.TEMPO,
    "epoch": Storage.EPOCH_INDEX,
    "last_epoch_block": Storage.LAST_EPOCH_BLOCK,
    "pending_epoch_at": Storage.PENDING_EPOCH_AT,
    "blocks_since_last_step": Storage.BLOCKS_SINCE_LAST_STEP,
    "commit_reveal_enabled": Storage.COMMIT_REVEAL_ENABLED,
    "commit_reveal_version": Storage.COMMIT_REVEAL_VERSION,
    "reveal_period_epochs": Storage.REVEAL_PERIOD,
    "version_key": Storage.WEIGHTS_VERSION_KEY,
    "rate_limit": Storage.WEIGHTS_RATE_LIMIT,
    "min_allowed_weights": Storage.MIN_ALLOWED_WEIGHTS,
    "max_weight_limit": Storage.MAX_WEIGHT_LIMIT,
    "mechanism_count": Storage.MECHANISM_COUNT,
    "stake_threshold": Storage.STAKE_THRESHOLD,
}
