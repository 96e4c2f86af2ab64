"""From settings to a chain: a fresh one, or the one in the state file.

Invariants
1. A stored chain keeps its genesis. Settings that name a different genesis document are refused.
2. The genesis block is stored before the node listens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from chain.devnet.block import Block, seal_block
from chain.devnet.chain import Chain, wall_clock_ms
from chain.devnet.codec import codec
from chain.devnet.config import DevnetConfig
from chain.devnet.genesis import write_genesis
from chain.devnet.genesis_document import Genesis
from chain.devnet.history import History
from chain.devnet.journal import Journal
from chain.devnet.storage import Session
from config.errors import ConfigurationError, HostError


@contextmanager
def open_chain(config: DevnetConfig, clock: Callable[[], int] = wall_clock_ms) -> Iterator[Chain]:
    """Yield the chain of these settings; raises `HostError` or `ConfigurationError`.

    `clock` gives milliseconds since the Unix epoch.
    """
    journal = Journal(config.state) if config.state is not None else None
    try:
        history = History(config.keep_state)
        blocks, finalized = _load(journal, history, config.genesis) if journal is not None else ([], 0)
        if not blocks:
            blocks = [_create(journal, history, config.genesis or Genesis(), clock())]
        yield Chain(
            history,
            blocks,
            finalized=finalized,
            finality_lag=config.finality_lag,
            pool_limit=config.pool_limit,
            sink=journal,
            clock=clock,
        )
    finally:
        if journal is not None:
            journal.close()


def _load(journal: Journal, history: History, wanted: Genesis | None) -> tuple[list[Block], int]:
    """Return the stored blocks and the number of the newest final one; the history takes their changes."""
    blocks: list[Block] = []
    finalized = 0
    for block, record in journal.load():
        if block.number == 0 and wanted is not None and record.note != wanted.digest():
            raise HostError(
                "STATE_FOREIGN_GENESIS",
                f"the state file {journal.path} holds a chain with another genesis.",
                hint="start without genesis options to continue that chain, or name another --state file",
            )
        history.commit(block.number, dict(record.diff))
        blocks.append(block)
        finalized = record.finalized
    return blocks, finalized


def _create(journal: Journal | None, history: History, genesis: Genesis, created_ms: int) -> Block:
    state = Session(codec(), history, 0)
    try:
        write_genesis(state, genesis, created_ms)
    except (ValueError, OverflowError) as error:
        raise ConfigurationError(
            "GENESIS_INVALID",
            f"a number of the genesis does not fit the runtime's type: {error}.",
            hint="most hyperparameters are 16-bit; balances and stakes are whole TAO",
        ) from error
    diff = state.diff()
    block = seal_block(None, (), diff, 0)
    if journal is not None:
        journal.append(block, diff, 0, genesis.digest())
    history.commit(0, diff)
    return block
