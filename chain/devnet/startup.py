"""From settings to a chain: a fresh one, or the one in the state file.

Invariants
1. A stored chain keeps its genesis. Settings that name a different genesis document are refused.
2. The genesis block is stored before the node listens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from chain.devnet.block import seal_block
from chain.devnet.block_tree import BlockTree
from chain.devnet.chain import Chain, wall_clock_ms
from chain.devnet.codec import codec
from chain.devnet.config import DevnetConfig
from chain.devnet.genesis import write_genesis
from chain.devnet.genesis_document import Genesis
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
        tree = BlockTree(config.keep_state)
        if journal is not None:
            _load(journal, tree, config.genesis)
        if not tree.blocks:
            _create(journal, tree, config.genesis or Genesis(), clock())
        yield Chain(
            tree,
            finality_lag=config.finality_lag,
            pool_limit=config.pool_limit,
            ban_seconds=config.ban_seconds,
            sink=journal,
            clock=clock,
        )
    finally:
        if journal is not None:
            journal.close()


def _load(journal: Journal, tree: BlockTree, wanted: Genesis | None) -> None:
    """Put the stored blocks and the forks between them into the tree."""
    for entry in journal.load():
        if entry.base < 0 and wanted is not None and entry.blocks[0][1].note != wanted.digest():
            raise HostError(
                "STATE_FOREIGN_GENESIS",
                f"the state file {journal.path} holds a chain with another genesis.",
                hint="start without genesis options to continue that chain, or name another --state file",
            )
        if entry.base < len(tree.blocks) - 1:
            tree.retract(entry.base)
        for block, record in entry.blocks:
            tree.append(block, dict(record.diff))
        tree.finalize(record.finalized)


def _create(journal: Journal | None, tree: BlockTree, genesis: Genesis, created_ms: int) -> None:
    state = Session(codec(), tree.history, 0)
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
    tree.append(block, diff)
