"""All that decides about a validator's weights, read at one block with one request.

Invariants
1. Subnet parameters, the validator's own place, permit, stake, nonce and the owners of the UIDs that are watched come
   from one block hash. Two states are compared only as a whole.
2. `validator_reads` is the complete list, so that a client can fetch it together with other items of the same block.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from chain.abi import Storage, mechanism_index
from chain.blocks import BlockRef
from chain.client import ChainClient
from chain.codec import StorageRead
from chain.hyperparameters import Hyperparameters, hyperparameter_reads, parse_hyperparameters


class ValidatorState(msgspec.Struct, frozen=True):
    """A validator at one block; heights are blocks."""

    parameters: Hyperparameters
    hotkey: str
    uid: int | None  # None = not registered
    permit: bool
    last_update: int  # block at which weights were last set or committed, 0 = never
    alpha_rao: int  # the hotkey's own stake on the subnet
    is_owner: bool  # whether it is the subnet owner's hotkey, whom the stake threshold does not bind
    nonce: int  # extrinsics of the hotkey included up to and with the block
    owners: dict[int, str]  # who has each of the watched UIDs

    @property
    def block(self) -> BlockRef:
        """The block that was read."""
        return self.parameters.block

    def moved(self, uids: Sequence[int], hotkeys: Sequence[str]) -> tuple[int, ...]:
        """Return those of the watched `uids` that belong to another hotkey than the one beside them."""
        pairs = zip(uids, hotkeys, strict=True)
        return tuple(uid for uid, hotkey in pairs if self.owners.get(uid, hotkey) != hotkey)


def validator_reads(netuid: int, hotkey: str, mechanism: int = 0, watch: Sequence[int] = ()) -> list[StorageRead]:
    """Return the storage items that make a `ValidatorState`; `watch` lists UIDs whose owners matter."""
    own: list[StorageRead] = [
        (Storage.UIDS, [netuid, hotkey]),
        (Storage.VALIDATOR_PERMIT, [netuid]),
        (Storage.LAST_UPDATE, [mechanism_index(netuid, mechanism)]),
        (Storage.HOTKEY_ALPHA, [hotkey, netuid]),
        (Storage.SUBNET_OWNER_HOTKEY, [netuid]),
        (Storage.ACCOUNT, [hotkey]),
    ]
    owners: list[StorageRead] = [(Storage.KEYS, [netuid, uid]) for uid in watch]
    return [*hyperparameter_reads(netuid), *own, *owners]


async def read_validator(
    client: ChainClient, netuid: int, hotkey: str, block: BlockRef, *, mechanism: int = 0, watch: Sequence[int] = ()
) -> ValidatorState:
    """Return the state of `hotkey` at `block`. Raises `ChainError` (SUBNET_NOT_FOUND) and what `client.read` raises."""
    values = await client.read(block, validator_reads(netuid, hotkey, mechanism, watch))
    count = len(hyperparameter_reads(netuid))
    parameters = parse_hyperparameters(netuid, block, values[:count])
    if parameters is None:
        await client.require_subnet(netuid, block)
        return await read_validator(client, netuid, hotkey, block, mechanism=mechanism, watch=watch)
    uid, permits, updates, alpha, owner_hotkey, account, *owners = values[count:]
    return ValidatorState(
        parameters=parameters,
        hotkey=hotkey,
        uid=None if uid is None else int(uid),
        permit=uid is not None and bool(_entry(permits, uid)),
        last_update=int(_entry(updates, uid)) if uid is not None else 0,
        alpha_rao=int(alpha),
        is_owner=owner_hotkey == hotkey,
        nonce=int(account["nonce"]),
        owners={one: str(owner) for one, owner in zip(watch, owners, strict=True)},
    )


async def read_row(client: ChainClient, netuid: int, uid: int, block: BlockRef, mechanism: int = 0) -> WeightsOnChain:
    """Return the weights row of `uid` at `block` as (uid, value) pairs."""
    (row,) = await client.read(block, [(Storage.WEIGHTS, [mechanism_index(netuid, mechanism), uid])])
    return tuple((int(target), int(value)) for target, value in row)


WeightsOnChain = tuple[tuple[int, int], ...]


def _entry(values: Sequence[int], index: int) -> int:
    # Per-subnet vectors may be shorter than the subnet's size right after a registration.
    return values[index] if index < len(values) else 0
