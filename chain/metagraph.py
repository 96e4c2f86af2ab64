"""Who is registered on a subnet, at one block.

Invariants
1. Everything is read from raw storage at the same block hash; a runtime API whose result type changes between runtime
   versions is not involved.
2. A neuron is identified by its hotkey and the block of its registration. A UID is only a place that others inherit.
"""

from __future__ import annotations

from functools import cached_property

import msgspec

from chain.abi import Storage, mechanism_index
from chain.blocks import BlockRef
from chain.client import ChainClient
from chain.codec import EMPTY_ADDRESS, StorageRead


class Neuron(msgspec.Struct, frozen=True):
    """One registered hotkey; blocks are heights."""

    uid: int
    hotkey: str
    coldkey: str
    validator_permit: bool
    registered_block: int
    last_update: int  # block at which its weights were last set or committed, 0 = never


class Metagraph(msgspec.Struct, frozen=True, dict=True):
    """A subnet's neurons in UID order; owner addresses are "" when the subnet has none."""

    netuid: int
    block: BlockRef
    neurons: tuple[Neuron, ...]
    owner_hotkey: str
    owner_coldkey: str

    @cached_property
    def _by_hotkey(self) -> dict[str, Neuron]:
        return {neuron.hotkey: neuron for neuron in self.neurons}

    @property
    def hotkeys(self) -> frozenset[str]:
        """All registered hotkeys."""
        return frozenset(self._by_hotkey)

    def by_hotkey(self, hotkey: str) -> Neuron | None:
        """Return the neuron of `hotkey`, or None when it is not registered."""
        return self._by_hotkey.get(hotkey)


async def read_metagraph(client: ChainClient, netuid: int, block: BlockRef, mechanism: int = 0) -> Metagraph:
    """Return the metagraph of `netuid` at `block`.

    Raises `ChainError` (SUBNET_NOT_FOUND) and what `ChainClient.read` raises.
    """
    exists, size, permits, updates, owner_hotkey, owner_coldkey = await client.read(
        block,
        [
            (Storage.NETWORKS_ADDED, [netuid]),
            (Storage.SUBNETWORK_SIZE, [netuid]),
            (Storage.VALIDATOR_PERMIT, [netuid]),
            (Storage.LAST_UPDATE, [mechanism_index(netuid, mechanism)]),
            (Storage.SUBNET_OWNER_HOTKEY, [netuid]),
            (Storage.SUBNET_OWNER, [netuid]),
        ],
    )
    if not exists:
        await client.require_subnet(netuid, block)
    uids = range(int(size))
    per_uid: list[StorageRead] = [(item, [netuid, uid]) for uid in uids for item in _PER_UID]
    values = await client.read(block, per_uid)
    hotkeys, registered = values[0::2], values[1::2]
    coldkeys = await client.read(block, [(Storage.OWNER, [hotkey]) for hotkey in hotkeys])
    neurons = tuple(
        Neuron(
            uid=uid,
            hotkey=str(hotkeys[uid]),
            coldkey=str(coldkeys[uid]),
            validator_permit=bool(_at(permits, uid, False)),
            registered_block=int(registered[uid]),
            last_update=int(_at(updates, uid, 0)),
        )
        for uid in uids
        if hotkeys[uid] != EMPTY_ADDRESS
    )
    return Metagraph(netuid, block, neurons, _owner(owner_hotkey), _owner(owner_coldkey))


_PER_UID = (Storage.KEYS, Storage.REGISTERED_BLOCK)


def _at(values: list[object], index: int, default: int) -> int:
    # The per-subnet vectors may lag behind the subnet's size by a block right after a registration.
    value = values[index] if index < len(values) else default
    return value if isinstance(value, int) else default


def _owner(address: object) -> str:
    return "" if address in (None, EMPTY_ADDRESS) else str(address)
