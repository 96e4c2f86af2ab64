"""What events and storage say about the reveals of one hotkey in one block, put together. Pure.

Invariants
1. Storage holds the payloads, events say that there were reveals and where; a payload is believed only if both name it.
2. What the two agree on is one row per reveal, in the order of the payload bytes.
3. A ring that one block filled entirely has lost reveals by its owner's own doing: the events without an entry become
   rows with REVEAL_OVERWRITTEN. That is no disagreement. How many they are rests on the block's own count of its
   events, which the client compares.
4. Everything else that differs is a `Dispute`. It is a reason to read again, not a verdict; a dispute that was settled
   by patience (`disputed_rows`) gives rows that say so and costs nobody else anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from chain.scale import ScaleError, ScaleReader

RING = 10  # reveals that storage keeps per hotkey
NO_EVENT_INDEX = 2**31 - 1  # the place of a reveal that storage has and no event announced: after all others


class StoredReveal(msgspec.Struct, frozen=True):
    """One entry of `Commitments.RevealedCommitments`, as stored."""

    data: bytes
    block: int


class RawReveal(msgspec.Struct, frozen=True):
    """One reveal before its payload is looked at; without `data` there is nothing to read, and `reason` says why."""

    event_index: int
    sub_index: int
    hotkey: str
    data: bytes | None
    reason: str = ""


class Dispute(Exception):  # noqa: N818 - a difference of opinion, not an error yet
    """Storage and events differ about `hotkey` in `block`: so many shown by events, so many stored."""

    def __init__(self, block: int, hotkey: str, shown: int, stored: int) -> None:
        super().__init__(f"block {block} shows {shown} reveals of {hotkey} by events and stores {stored}")
        self.block = block
        self.hotkey = hotkey
        self.shown = shown
        self.stored = stored

    @property
    def key(self) -> tuple[int, str]:
        """What the dispute is about."""
        return (self.block, self.hotkey)


def parse_stored(value: bytes) -> tuple[StoredReveal, ...]:
    """Return the entries of one hotkey's row; raises `ScaleError` for bytes of another shape."""
    reader = ScaleReader(value)
    entries = tuple(StoredReveal(reader.sized_bytes(), reader.unsigned(8)) for _ in range(reader.compact()))
    reader.done()
    return entries


def readable(value: bytes | None) -> tuple[StoredReveal, ...] | None:
    """Return the entries of a row, none for a missing row, and None for a row of unknown shape."""
    try:
        return parse_stored(value) if value is not None else ()
    except ScaleError:
        return None


def rows_of(block: int, hotkey: str, indices: Sequence[int], row: bytes | None) -> list[RawReveal]:
    """Return the reveals of `hotkey` in `block`, which `indices` of events announce and `row` stores.

    Raises `Dispute`.
    """
    entries = readable(row)
    first, shown = indices[0], len(indices)
    if entries is None:
        return _rows(first, hotkey, [], shown, "REVEAL_UNREADABLE")
    found = data_of(entries, block)
    overwritten = len(found) == len(entries) >= RING
    if len(found) == shown or (len(found) < shown and overwritten):
        return _rows(first, hotkey, found, shown, "REVEAL_OVERWRITTEN")
    raise Dispute(block, hotkey, shown, len(found))


def disputed_rows(block: int, hotkey: str, indices: Sequence[int], row: bytes | None) -> list[RawReveal]:
    """Return what is recorded of a dispute that reading again did not end.

    Stored payloads beside an event are believed, even when they are more than the events; an event without a payload
    is a row with REVEAL_NOT_STORED.
    """
    found = data_of(readable(row) or (), block)
    return _rows(indices[0], hotkey, found, len(indices), "REVEAL_NOT_STORED")


def silent_rows(hotkey: str, payloads: Iterable[bytes]) -> list[RawReveal]:
    """Return what is recorded of `payloads` that storage has and no event announced: rows with REVEAL_WITHOUT_EVENT."""
    return [
        RawReveal(NO_EVENT_INDEX, place, hotkey, data, "REVEAL_WITHOUT_EVENT")
        for place, data in enumerate(sorted(payloads))
    ]


def silent_dispute(
    entries: Iterable[StoredReveal], hotkey: str, heights: range, shown: dict[tuple[int, str], int]
) -> Dispute | None:
    """Return the earliest dispute about entries of blocks in `heights` of which events `shown` too few."""
    counts: dict[int, int] = {}
    for entry in entries:
        if entry.block in heights:
            counts[entry.block] = counts.get(entry.block, 0) + 1
    for block in sorted(counts):
        if counts[block] > shown.get((block, hotkey), 0):
            return Dispute(block, hotkey, shown.get((block, hotkey), 0), counts[block])
    return None


def data_of(entries: Iterable[StoredReveal], block: int) -> list[bytes]:
    """Return the payloads revealed in `block`, in the order of their bytes."""
    return sorted(entry.data for entry in entries if entry.block == block)


def _rows(first: int, hotkey: str, found: Sequence[bytes], shown: int, reason: str) -> list[RawReveal]:
    rows = [RawReveal(first, place, hotkey, data) for place, data in enumerate(found)]
    return rows + [RawReveal(first, place, hotkey, None, reason) for place in range(len(found), shown)]
