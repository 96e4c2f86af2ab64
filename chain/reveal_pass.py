"""What one pass over a stretch of blocks has found so far, and how far of it holds.

Invariants
1. Blocks are added whole, in order; `cut` takes back whole blocks from the end.
2. Storage read later in the pass must not know reveals of its blocks that no event announced. The rows read on the way
   are looked at, too: a reveal can have left the ring before the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from chain.blocks import BlockRef
from chain.reveal import Reveal, RevealFailure
from chain.reveal_rows import Dispute, StoredReveal, data_of, silent_dispute

HotkeyRow: TypeAlias = tuple[str, tuple[StoredReveal, ...]]


class RevealPass:
    """The finished blocks of a pass, what they hold, and the storage rows seen at them."""

    def __init__(self) -> None:
        self.blocks: list[BlockRef] = []
        self._reveals: list[Reveal] = []
        self._failures: list[RevealFailure] = []
        self._shown: dict[tuple[int, str], int] = {}  # (block, hotkey) -> reveal events
        self._rows: dict[tuple[int, str], tuple[StoredReveal, ...]] = {}  # as read at that block
        self._silent: set[tuple[int, str]] = set()  # recorded without an event

    @property
    def reveals(self) -> tuple[Reveal, ...]:
        """All reveals so far, in their one order."""
        return tuple(sorted(self._reveals, key=lambda reveal: reveal.order_key))

    @property
    def failures(self) -> tuple[RevealFailure, ...]:
        """All commitments that did not open."""
        return tuple(self._failures)

    def add(
        self,
        block: BlockRef,
        reveals: Iterable[Reveal],
        failures: Iterable[RevealFailure],
        shown: dict[str, int],
        rows: Iterable[HotkeyRow],
    ) -> None:
        """Add one block: its reveals and failures, how many events it `shown` per hotkey, and the rows read at it."""
        self.blocks.append(block)
        self._reveals += reveals
        self._failures += failures
        self._shown |= {(block.number, hotkey): count for hotkey, count in shown.items()}
        self._rows |= {(block.number, hotkey): entries for hotkey, entries in rows}

    def add_silent(self, dispute: Dispute, reveals: Iterable[Reveal]) -> None:
        """Add reveals that no event announced; their dispute is over."""
        self._silent.add(dispute.key)
        self._reveals += reveals

    def cut(self, height: int) -> None:
        """Take back everything of block `height` and above."""
        self.blocks = [block for block in self.blocks if block.number < height]
        self._reveals = [reveal for reveal in self._reveals if reveal.block < height]
        self._failures = [failure for failure in self._failures if failure.block < height]
        self._rows = {key: entries for key, entries in self._rows.items() if key[0] < height}

    def silent_disputes(self, stored: Sequence[HotkeyRow]) -> list[Dispute]:
        """Return the disputes of the first block of which `stored`, read at the end, or a row on the way knows more."""
        first = self.blocks[0].number
        found: dict[tuple[int, str], Dispute] = {}
        seen_at = [(self.blocks[-1].number + 1, row) for row in stored]
        seen_at += [(block, (hotkey, entries)) for (block, hotkey), entries in self._rows.items()]
        for end, (hotkey, entries) in seen_at:
            open_entries = [entry for entry in entries if (entry.block, hotkey) not in self._silent]
            dispute = silent_dispute(open_entries, hotkey, range(first, end), self._shown)
            if dispute is not None:
                found[dispute.key] = dispute
        earliest = min((dispute.block for dispute in found.values()), default=0)
        return [dispute for dispute in found.values() if dispute.block == earliest]

    def unannounced(self, dispute: Dispute, stored: Sequence[HotkeyRow]) -> list[bytes]:
        """Return the payloads of the dispute's hotkey and block that are in no row read at that block."""
        rows = [entries for hotkey, entries in stored if hotkey == dispute.hotkey]
        rows += [entries for (_, hotkey), entries in self._rows.items() if hotkey == dispute.hotkey]
        most = max((data_of(entries, dispute.block) for entries in rows), key=len)
        known = data_of(self._rows.get(dispute.key, ()), dispute.block)
        return sorted((Counter(most) - Counter(known)).elements())
