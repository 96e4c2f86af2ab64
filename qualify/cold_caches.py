"""Emptying the caches of the core that an arm runs on, before each call.

Invariants
1. Reading is done on that core itself: its private caches are reached from no other core, and the last-level cache from
   those of the same complex only. What an arm touched in the untimed part of a call is not found there in the call.
2. The memory that is read has pages of its own: pages that were never written are all one page.
3. One thread reads, and it is back on the cores it came from afterwards, whatever happens.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import numpy as np

_MIB = 1 << 20
_LEAST, _MOST = 64 * _MIB, 512 * _MIB
_UNKNOWN = 32 * _MIB  # taken for the size of a last-level cache that the machine does not tell


class ColdCaches:
    """Memory to read, twice as much as a last-level cache holds."""

    def __init__(self) -> None:
        self._memory = np.ones(eviction_bytes() // 8, dtype=np.int64)

    def empty(self, core: int) -> None:
        """Leave nothing of an earlier call in the caches of `core`; of wherever we are, if we may not go there."""
        home = os.sched_getaffinity(0)
        with contextlib.suppress(OSError):  # an arm that is bound to no core may be said to be on one we do not have
            os.sched_setaffinity(0, {core})
        try:
            self._memory.sum()
        finally:
            os.sched_setaffinity(0, home)


def eviction_bytes() -> int:
    """Return how many bytes are read: twice the size of the last-level cache, within reason."""
    try:
        text = Path("/sys/devices/system/cpu/cpu0/cache/index3/size").read_text(encoding="ascii").strip()
        size = int(text.removesuffix("K")) * 1024 if text.endswith("K") else int(text.removesuffix("M")) * _MIB
    except (OSError, ValueError):
        size = _UNKNOWN
    return min(max(2 * size, _LEAST), _MOST)
