"""Values that every part of the process reads at each new finalized block, fetched together once.

Invariants
1. State under a block hash never changes, so what was read there once is not asked for again.
2. Only the newest few followed blocks are remembered: long scans of the past do not pass through here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from chain.abi import Storage
from chain.codec import StorageRead

_BLOCKS_KEPT = 8
_ALWAYS: tuple[StorageRead, ...] = (
    (Storage.PARENT_HASH, []), (Storage.EVENTS, []), (Storage.EVENT_COUNT, []), (Storage.TIMESTAMP, []),
)


class PinnedValues:
    """Raw values by block hash and storage key, for followed blocks only; None is a known absence."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[str, dict[bytes, bytes | None]] = OrderedDict()
        self._wanted: dict[str, tuple[StorageRead, ...]] = {}

    def watch(self, name: str, reads: Sequence[StorageRead]) -> None:
        """Have `reads` fetched at every followed block; a second list of the same name replaces the first."""
        self._wanted[name] = tuple(reads)

    def unwatch(self, name: str) -> None:
        """Forget a list."""
        self._wanted.pop(name, None)

    @property
    def reads(self) -> list[StorageRead]:
        """Everything to fetch at a followed block."""
        return [*_ALWAYS, *(read for reads in self._wanted.values() for read in reads)]

    def follow(self, block_hash: str) -> None:
        """Begin to remember values of a block, and forget those of old ones."""
        self._blocks.setdefault(block_hash, {})
        while len(self._blocks) > _BLOCKS_KEPT:
            self._blocks.popitem(last=False)

    def forget(self) -> None:
        """Forget every value: one of them contradicts another, so none is to be believed a second time."""
        for known in self._blocks.values():
            known.clear()

    def of(self, block_hash: str) -> Mapping[bytes, bytes | None]:
        """Return what is known of a block."""
        return self._blocks.get(block_hash, {})

    def keep(self, block_hash: str, values: Mapping[bytes, bytes | None]) -> None:
        """Remember values of a followed block; those of other blocks are not kept."""
        known = self._blocks.get(block_hash)
        if known is not None:
            known.update(values)
