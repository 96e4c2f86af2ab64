"""Every value every storage key ever had on the one chain there is, by block.

Invariants
1. Only changes are kept: a key holds an ascending list of block numbers and the value written in each.
2. Reads name a block; a read below the pruning floor raises `StateDiscardedError`, never answers wrongly.
3. Blocks are committed in order without gaps. Those above the newest final one can be taken back, newest first.
4. The state of the newest final block is never pruned: it is the base of any fork. Nor is what is pinned.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Mapping
from typing import Protocol

_SORT_ABOVE = 64  # new keys; few are put into their places, many are sorted in

Diff = Mapping[bytes, bytes | None]


class StateDiscardedError(LookupError):
    """The state of that block was pruned."""


class StateSource(Protocol):
    """Where the storage after a block is read."""

    def get(self, key: bytes, block: int) -> bytes | None:
        """Return the value of a key as it stood after `block`."""

    def keys(self, prefix: bytes, block: int, *, after: bytes = b"", limit: int | None = None) -> list[bytes]:
        """Return the keys with that prefix which exist after `block`, in byte order, strictly after `after`."""


class History:
    """Versioned storage; `keep` is the number of newest blocks whose state stays readable (0 = all)."""

    def __init__(self, keep: int = 0) -> None:
        self._keep = keep
        self._versions: dict[bytes, tuple[list[int], list[bytes | None]]] = {}
        self._order: list[bytes] = []
        self._unsorted: list[bytes] = []
        self._changed: deque[tuple[int, tuple[bytes, ...]]] = deque()
        self._final = -1
        self._pinned: int | None = None
        self.head = -1
        self.floor = 0

    def commit(self, block: int, diff: Diff, final: int | None = None) -> None:
        """Add the changes of `block`, which must follow the head; `final` is the newest final block (default: it)."""
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
        self._changed.append((block, tuple(diff)))
        self._final = max(self._final, block if final is None else final)
        self._prune()

    def finalize(self, block: int, pinned: int | None = None) -> None:
        """Hear that `block` cannot be taken back any more; the state at `pinned` and after is spared from pruning."""
        self._final = max(self._final, block)
        self._pinned = pinned
        self._prune()

    def rewind(self, block: int) -> list[Diff]:
        """Take back everything after `block` and return the diffs taken back, oldest first."""
        if not self._final <= block <= self.head:
            raise ValueError(f"block {block} is not between the final {self._final} and the head {self.head}")
        taken: list[Diff] = []
        while self.head > block:
            _, keys = self._changed.pop()
            diff: dict[bytes, bytes | None] = {}
            for key in keys:
                blocks, values = self._versions[key]
                blocks.pop()
                diff[key] = values.pop()
                if not blocks:
                    self._forget(key)
            taken.append(diff)
            self.head -= 1
        return taken[::-1]

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
        if len(self._unsorted) > _SORT_ABOVE:
            self._order.extend(self._unsorted)
            self._order.sort()
        else:
            for key in self._unsorted:
                insort(self._order, key)
        self._unsorted.clear()
        return self._order

    def _prune(self) -> None:
        if self._keep:
            needed = self._final if self._pinned is None else min(self._final, self._pinned)
            self.floor = max(self.floor, min(self.head - self._keep + 1, needed))
        settled = self.floor if self._keep else self._final
        while self._changed and self._changed[0][0] <= settled:
            _, keys = self._changed.popleft()
            for key in keys if self._keep else ():
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
