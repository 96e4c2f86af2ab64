"""Versioned storage against a plain model."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chain.devnet.block import seal_block
from chain.devnet.block_tree import BlockTree
from chain.devnet.codec import codec
from chain.devnet.history import History, StateDiscardedError
from chain.devnet.storage import Session

keys = st.sampled_from([b"a", b"ab", b"abc", b"b", b"ba", b""])
diffs = st.lists(st.dictionaries(keys, st.none() | st.binary(max_size=3), max_size=4), min_size=1, max_size=12)


def play(history: History, changes: list[dict[bytes, bytes | None]]) -> list[dict[bytes, bytes]]:
    """Commit every diff and return the whole state after each block."""
    states: list[dict[bytes, bytes]] = []
    state: dict[bytes, bytes] = {}
    for block, diff in enumerate(changes):
        history.commit(block, diff)
        merged = {**state, **diff}
        state = {key: value for key, value in merged.items() if value is not None}
        states.append(state)
    return states


@settings(deadline=None)
@given(diffs, keys, st.integers(0, 3))
def test_every_block_reads_as_a_full_copy_would(
    changes: list[dict[bytes, bytes | None]], after: bytes, limit: int
) -> None:
    """Values and key pages at any block equal those of a full copy of the state."""
    history = History()
    states = play(history, changes)
    for block, state in enumerate(states):
        for key in (b"a", b"ab", b"abc", b"b", b"ba", b""):
            assert history.get(key, block) == state.get(key)
        for prefix in (b"", b"a", b"ab", b"z"):
            expected = sorted(key for key in state if key.startswith(prefix))
            assert history.keys(prefix, block) == expected
            rest = [key for key in expected if key > after] if after > prefix else expected
            assert history.keys(prefix, block, after=after, limit=limit) == rest[:limit]


@settings(deadline=None)
@given(diffs, st.integers(1, 5))
def test_pruning_changes_no_kept_block(changes: list[dict[bytes, bytes | None]], keep: int) -> None:
    """With pruning the newest blocks read the same and older ones say that they are gone."""
    history = History(keep)
    states = play(history, changes)
    for block, state in enumerate(states):
        if block < len(states) - keep:
            with pytest.raises(StateDiscardedError):
                history.get(b"a", block)
        else:
            assert {key: history.get(key, block) for key in state} == state
            assert history.keys(b"", block) == sorted(state)


def test_pruning_bounds_memory() -> None:
    """A key that changes in every block holds no more versions than are kept."""
    history = History(3)
    for block in range(100):
        history.commit(block, {b"hot": b"%d" % block, b"once%d" % block: b"x", b"once%d" % (block - 1): None})
    assert len(history) <= 5


@pytest.mark.parametrize("keep", [0, 3])
def test_bookkeeping_ends_with_finality(keep: int) -> None:
    """What is remembered to take blocks back, and of retracted blocks, is bounded by the finality lag."""
    tree = BlockTree(keep)
    for serial in range(200):
        if serial % 10 == 9:
            tree.retract(tree.head.number - 2)
        block = seal_block(tree.head if tree.blocks else None, (), {}, serial)
        tree.append(block, {b"hot": b"%d" % serial})
        tree.finalize(tree.head.number - 4)
    assert len(tree.history._changed) <= max(keep, 4) + 2
    assert len(tree._overlays) <= 4


def test_keys_stay_sorted_however_many_are_new() -> None:
    """Few new keys and many new keys end up in the same order, also when listed in between."""
    history = History()
    expected: set[bytes] = set()
    for block, count in enumerate([1, 300, 2, 64, 65, 1]):
        new = [b"%d/%d" % (number, block) for number in range(count)]
        history.commit(block, dict.fromkeys(new, b"x"))
        expected.update(new)
        if block % 2:
            assert history.keys(b"", block) == sorted(expected)
    assert history.keys(b"", history.head) == sorted(expected)


def test_blocks_come_in_order() -> None:
    """A gap is a programming error."""
    history = History()
    with pytest.raises(ValueError, match="does not follow"):
        history.commit(1, {})


def test_transaction_keeps_all_or_nothing() -> None:
    """Writes of a failed body vanish, also when nested; the diff holds only real changes, in key order."""
    history = History()
    history.commit(0, {b"same": b"1", b"gone": b"2"})
    session = Session(codec(), history, 1)
    session.put_raw(b"same", b"1")

    def fail_late() -> None:
        with session.transaction():
            session.put_raw(b"z", b"inner")
            with session.transaction():
                session.put_raw(b"y", b"inner")
            raise KeyError

    with pytest.raises(KeyError):
        fail_late()
    with session.transaction():
        session.put_raw(b"new", b"3")
        session.put_raw(b"gone", None)
        assert session.raw_keys(b"") == [b"new", b"same"]
    assert list(session.diff().items()) == [(b"gone", None), (b"new", b"3")]
