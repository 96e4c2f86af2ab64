"""`qualify.sandbox.huge_pages`: fewer pages, the same memory."""

from __future__ import annotations

import mmap
import os

from qualify.sandbox import huge_pages

MIB = 1 << 20


def test_memory_keeps_its_contents_and_stays_private() -> None:
    """After collapsing, contents are the same, and a forked child's writes stay its own."""
    with mmap.mmap(-1, 16 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as area:
        area[:] = bytes(range(256)) * (16 * MIB // 256)
        assert huge_pages.collapse_own_memory() >= 0
        child = os.fork()
        if child == 0:
            same = area[5 * MIB : 5 * MIB + 256] == bytes(range(256))
            area[5 * MIB] = 77
            os._exit(0 if same else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert area[:] == bytes(range(256)) * (16 * MIB // 256)


def test_only_whole_huge_pages_of_private_memory_are_chosen() -> None:
    """Every chosen area is aligned and not empty."""
    for start, end in huge_pages._private_areas():
        assert start < end
        assert start % (2 * MIB) == end % (2 * MIB) == 0
