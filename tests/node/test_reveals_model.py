"""Whatever happens on the way, what is recorded in the end is what happened on the chain."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, create_engine, insert, select

from chain import patience
from chain.blocks import BlockRef
from chain.reveals import RevealReader, RevealScan
from config.errors import ChainError, NetworkError
from node.services.reveals import _submission
from node.store.schema import chain_binding, events, metadata, submissions
from node.store.submission_rows import Cursor, read_cursor, record_scan
from tests.node.reveal_model import HOTKEYS, NETUID, RING, Fault, ModelChain, ModelClient, Row

_TEXTS = (b"alpha", b"beta", b"gamma", b"{", b"x" * 2000)
_PAYLOADS = st.integers(0, len(_TEXTS) - 1)
_SOME = st.lists(_PAYLOADS, min_size=1, max_size=4)
_FLOOD = st.lists(_PAYLOADS, min_size=RING, max_size=RING + 3)
_REVEALS = st.lists(
    st.tuples(st.integers(0, len(HOTKEYS) - 1), st.one_of(_SOME, _SOME, _SOME, _FLOOD)), min_size=1, max_size=3
)
_BLOCK = st.tuples(st.just("block"), _REVEALS, st.none() | st.integers(-4, 3))
_STEP = st.one_of(
    _BLOCK,
    _BLOCK,
    _BLOCK,
    _BLOCK,
    st.tuples(st.just("finalize"), st.integers(1, 6), st.none()),
    st.tuples(st.just("fork"), st.integers(1, 3), st.none()),
    st.tuples(st.just("finalize"), st.integers(1, 6), st.none()),
    st.tuples(st.just("scan"), st.just("kept"), st.none()),
    st.tuples(st.just("scan"), st.sampled_from(["crash before", "crash after"]), st.none()),
)
_FAULTS: tuple[Fault, ...] = ("lost", "pruned", "missing", "double", "forget", "invent", "lag", "garbled")
_FAULTY_CALLS = 400  # afterwards the chain is well


def faults_of(seed: int, rate: float) -> Iterator[Fault]:
    """Yield what each call of a client meets: a fault at this rate, by the seed."""
    rng = random.Random(seed)
    for _ in range(_FAULTY_CALLS):
        yield rng.choice(_FAULTS) if rng.random() < rate else "none"


class Machine:
    """A chain, a store, and a reader that dies and comes back."""

    def __init__(
        self, connection: Connection, loop: asyncio.Runner, faults: Iterator[Fault], max_blocks: int
    ) -> None:
        self.chain = ModelChain()
        self._loop = loop
        self._connection = connection
        self._faults = faults
        self._max_blocks = max_blocks
        self._reader = self._new_reader()

    def step(self, what: tuple[Any, Any, Any]) -> None:
        """Do one thing of the schedule."""
        match what:
            case ("block", reveals, moved):
                self.chain.build([(who, [_TEXTS[one] for one in texts]) for who, texts in reveals], moved)
            case ("fork", depth, _):
                self.chain.retract(depth)
            case ("finalize", count, _):
                self.chain.finalize(self.chain.final + count)
            case ("scan", how, _):
                self.scan(how)

    def scan(self, how: str) -> RevealScan | None:
        """Make one pass; the process may die before or right after it is recorded."""
        before = read_cursor(self._connection)
        cursor = BlockRef(before.block, before.block_hash) if before else None
        try:
            found = self._loop.run(self._reader.scan(cursor, 1))
        except (NetworkError, ChainError):
            return None
        if how == "crash before":
            self._reader = self._new_reader()
            return None
        if found.cursor is not None and found.cursor != cursor:
            after = Cursor(found.cursor.number, found.cursor.hash)
            with self._connection.begin_nested():
                record_scan(self._connection, before, after, [_submission(one) for one in found.reveals])
        if how == "crash after":
            self._reader = self._new_reader()
        return found

    def finish(self) -> None:
        """Read the rest: all faults strike that are left, then none does."""
        self.chain.build([])
        self.chain.finalize(len(self.chain.blocks))
        for _ in range(1_000):
            found = self.scan("kept")
            if found is not None and found.caught_up and found.head.number == self.chain.final:
                return
        raise AssertionError("the reader does not catch up")

    def _new_reader(self) -> RevealReader:
        client: Any = ModelClient(self.chain, self._faults)
        return RevealReader(client, NETUID, max_blocks=self._max_blocks, dispute_passes=10_000)


def recorded(connection: Connection) -> list[Row]:
    """What the store holds, in the order in which it was recorded."""
    rows = {row.submission_id: row for row in connection.execute(select(submissions))}
    told = select(events.c.subject).where(events.c.kind == "submission.recorded").order_by(events.c.sequence)
    fields = Row.__struct_fields__
    return [Row(*(getattr(rows[one], name) for name in fields)) for one in connection.execute(told).scalars()]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    schedule=st.lists(_STEP, min_size=20, max_size=60), seed=st.integers(0, 2**32), rate=st.floats(0, 0.3),
    max_blocks=st.integers(1, 20),
)
def test_every_schedule_records_what_the_chain_revealed(
    monkeypatch: pytest.MonkeyPatch, schedule: list[Any], seed: int, rate: float, max_blocks: int
) -> None:
    """Forks, outages, restarts, damaged answers: each reveal of a final block once, in order, with its identity."""
    monkeypatch.setattr(patience, "FIRST_PAUSE_SECONDS", 0.0)
    engine = create_engine("sqlite://")
    try:
        with engine.connect() as connection, asyncio.Runner() as loop:
            metadata.create_all(connection)
            connection.execute(insert(chain_binding).values(id=1, genesis_hash="0x", netuid=NETUID))
            machine = Machine(connection, loop, faults_of(seed, rate), max_blocks)
            for what in schedule:
                machine.step(what)
            machine.finish()
            truth = machine.chain.truth()
            event(f"reveals: {min(len(truth) // 10 * 10, 50)}+")
            assert recorded(connection) == truth
            codes = set(connection.execute(select(submissions.c.reason)).scalars())
            assert not codes & {"REVEAL_NOT_STORED", "REVEAL_WITHOUT_EVENT"}
    finally:
        engine.dispose()


def test_the_model_refuses_what_never_happened() -> None:
    """The comparison can fail: a row more or less, or another order, is another result."""
    chain = ModelChain()
    chain.build([(0, [b"alpha"]), (1, [b"beta"])])
    chain.finalize(1)
    first, second = chain.truth()
    assert [first, second] != [second, first]
    assert msgspec.structs.replace(first, registered_block=7) != first
