"""Events and storage put together: what agrees, what was overwritten, what is disputed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chain.reveal_rows import (
    RING,
    Dispute,
    StoredReveal,
    disputed_rows,
    parse_stored,
    rows_of,
    silent_dispute,
    silent_rows,
)
from chain.scale import compact


def stored(*entries: tuple[bytes, int]) -> bytes:
    """The bytes of one row."""
    body = b"".join(compact(len(data)) + data + block.to_bytes(8, "little") for data, block in entries)
    return compact(len(entries)) + body


def test_a_flooded_ring_gives_rows_for_everything_that_was_announced() -> None:
    """Thirteen reveals in one block leave ten payloads and three rows that say what happened to the rest."""
    row = stored(*((b"%02d" % number, 7) for number in range(3, 13)))
    rows = rows_of(7, "5A", list(range(20, 33)), row)
    assert [one.data for one in rows[:10]] == [b"%02d" % number for number in range(3, 13)]
    assert [(one.data, one.reason) for one in rows[10:]] == [(None, "REVEAL_OVERWRITTEN")] * 3
    assert [one.sub_index for one in rows] == list(range(13))
    assert {one.event_index for one in rows} == {20}


def test_a_full_ring_with_an_older_entry_lost_nothing_of_this_block() -> None:
    """When an older reveal is still kept, no newer one can have left: a missing one is a dispute."""
    row = stored((b"old", 6), *((b"%02d" % number, 7) for number in range(RING - 1)))
    assert len(rows_of(7, "5A", list(range(RING - 1)), row)) == RING - 1
    with pytest.raises(Dispute) as caught:
        rows_of(7, "5A", list(range(RING)), row)
    assert (caught.value.shown, caught.value.stored) == (RING, RING - 1)


@pytest.mark.parametrize("row", [None, stored(), stored((b"x", 6)), stored((b"x", 7), (b"y", 7))])
def test_another_number_than_the_events_say_is_a_dispute(row: bytes | None) -> None:
    """Fewer and more alike."""
    with pytest.raises(Dispute) as caught:
        rows_of(7, "5A", [3], row)
    assert caught.value.key == (7, "5A")


def test_a_row_of_unknown_shape_is_as_many_rows_as_events() -> None:
    """Nobody can say what was revealed, only that something was."""
    assert [one.reason for one in rows_of(7, "5A", [3, 4], b"\xff\xff")] == ["REVEAL_UNREADABLE"] * 2


def test_stored_payloads_beside_an_event_are_believed_in_the_end() -> None:
    """More payloads than events are all used; an event without a payload is a row without one."""
    more = disputed_rows(7, "5A", [3], stored((b"b", 7), (b"a", 7)))
    assert [(one.data, one.reason, one.event_index) for one in more] == [(b"a", "", 3), (b"b", "", 3)]
    fewer = disputed_rows(7, "5A", [3, 4], stored((b"a", 7)))
    assert [(one.data, one.reason) for one in fewer] == [(b"a", ""), (None, "REVEAL_NOT_STORED")]


def test_silent_reveals_come_last() -> None:
    """Without an event there is no place in the block but the last."""
    rows = silent_rows("5A", [b"b", b"a"])
    assert [(one.data, one.sub_index, one.reason) for one in rows] == [
        (b"a", 0, "REVEAL_WITHOUT_EVENT"),
        (b"b", 1, "REVEAL_WITHOUT_EVENT"),
    ]
    assert all(one.event_index > 10**9 for one in rows)


def test_only_blocks_of_the_pass_are_compared() -> None:
    """Entries of earlier passes and of blocks beyond are none of its business; the earliest dispute is named."""
    entries = [StoredReveal(b"x", block) for block in (4, 5, 6, 6, 8, 9)]
    dispute = silent_dispute(entries, "5A", range(5, 9), {(5, "5A"): 1, (6, "5A"): 1, (8, "5B"): 1})
    assert dispute is not None
    assert (dispute.block, dispute.shown, dispute.stored) == (6, 1, 2)
    assert silent_dispute(entries, "5A", range(5, 6), {(5, "5A"): 1}) is None


@given(st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 2**64 - 1)), max_size=12))
def test_a_row_is_read_as_it_was_written(entries: list[tuple[bytes, int]]) -> None:
    """Whatever bytes a payload has, they come back."""
    assert [(one.data, one.block) for one in parse_stored(stored(*entries))] == entries


@given(st.binary(max_size=200))
def test_any_bytes_give_rows_or_a_dispute(row: bytes) -> None:
    """Nothing else can come out of a damaged row."""
    try:
        rows = rows_of(7, "5A", [1, 2], row)
    except Dispute:
        return
    assert len(rows) == 2
