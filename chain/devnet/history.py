"""Every value every storage key ever had, by block.

Invariants
1. Only changes are kept: a key holds an ascending list of block numbers and the value written in each.
2. Reads name a block; a read below the pruning floor raises `StateDiscardedError`, never answers wrongly.
3. Blocks are committed in order without gaps. A key's versions belong to the one chain there is; a fork would keep
   its own diffs on top of a `History` until it becomes that chain.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Mapping

Diff = Mapping[bytes, bytes | None]


class StateDiscardedError(LookupError):
    """The state of that block was pruned."""


class History:
    """Versioned storage; `keep` is the number of newest blocks whose state stays readable (0 = all)."""

    def __init__(self, keep: int = 0) -> None:
        self._keep = keep
        self._versions: dict[bytes, tuple[list[int], list[bytes | None]]] = {}
        self._order: list[bytes] = []
        self._unsorted: list[bytes] = []
        self._changed: deque[tuple[int, tuple[bytes, ...]]] = deque()
        self.head = -1
        self.floor = 0

    def commit(self, block: int, diff: Diff) -> None:
        """Add the changes of `block`, which must follow the head."""
        if block != self.head + 1:
            raise ValueError(f"block {block} does not follow {self.head}")
        for key, value in diff.items():
            versions = self._versions.get(key)
            if versions is None:
                versions = self._versions[key] = ([], [])
                self._unsorted.append(key)
            versions[0].append(block)
            versions[1].append(value)
        self.head = block
        if self._keep:
            self._changed.append((block, tuple(diff)))
            self._prune()

    def latest(self, key: bytes) -> bytes | None:
        """Return the newest value of a key."""
        versions = self._versions.get(key)
        return versions[1][-1] if versions is not None else None

    def get(self, key: bytes, block: int) -> bytes | None:
        """Return the value of a key as it stood after `block`."""
        if block < self.floor:
            raise StateDiscardedError(block)
        versions = self._versions.get(key)
        if versions is None:
            return None
        index = bisect_right(versions[0], block)
        return versions[1][index - 1] if index else None

    def keys(self, prefix: bytes, block: int, *, after: bytes = b"", limit: int | None = None) -> list[bytes]:
        """Return the keys with that prefix which exist after `block`, in byte order, strictly after `after`."""
        if block < self.floor:
            raise StateDiscardedError(block)
        order = self._sorted()
        index = bisect_right(order, after) if after > prefix else bisect_left(order, prefix)
        found: list[bytes] = []
        while index < len(order) and order[index].startswith(prefix) and (limit is None or len(found) < limit):
            if self.get(order[index], block) is not None:
                found.append(order[index])
            index += 1
        return found

    def __len__(self) -> int:
        return len(self._versions)

    def _sorted(self) -> list[bytes]:
        if self._unsorted:
            self._order.extend(self._unsorted)
            self._order.sort()
            self._unsorted = []
        return self._order

    def _prune(self) -> None:
        floor = self.head - self._keep + 1
        if floor <= self.floor:
            return
        self.floor = floor
        while self._changed and self._changed[0][0] <= floor:
            _, keys = self._changed.popleft()
            for key in keys:
                self._trim(key)

    def _trim(self, key: bytes) -> None:
        versions = self._versions.get(key)
        if versions is None:
            return
        blocks, values = versions
        spare = bisect_right(blocks, self.floor) - 1
        if spare > 0:
            del blocks[:spare]
            del values[:spare]
        if len(values) == 1 and values[0] is None:
            self._forget(key)

    def _forget(self, key: bytes) -> None:
        del self._versions[key]
        order = self._sorted()
        index = bisect_left(order, key)
        del order[index]
