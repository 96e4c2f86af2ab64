"""How long a soak is and what it goes through.

Everything is drawn from `seed`; the order in which the node's requests arrive is not, so two runs differ in which
request meets which fault, and must not differ in their result.
"""

from __future__ import annotations

import msgspec


class SoakPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One soak. Blocks count blocks of the chain; `*_every` are mean distances in blocks, 0 = never."""

    blocks: int = 10_000
    reveals: int = 2_000
    surplus: float = 1.06  # commitments per reveal wanted: some are lost with a pool, or replaced
    tempo: int = 49
    commit_reveal: bool = True
    fault_rate: float = 0.01  # of all requests, and of the occasions of every fault that needs a special one
    finality_lag: int = 3
    keep_state: int = 0
    miners: int = 16
    node_kills: int = 30
    chain_restarts: int = 10
    fork_every: int = 60
    odd_rate: float = 0.12  # of all payloads
    request_seconds: float = 1.0  # the node's deadline of one request
    block_seconds: float = 1.0  # how long a block waits for a node that is up but has not seen the last one
    stride: int = 4  # every so many blocks wait for the node
    down_blocks: int = 25  # longest time a killed node stays down
    seed: int = 1

    @property
    def epochs(self) -> int:
        """How many epochs the blocks hold."""
        return self.blocks // self.tempo


FULL = SoakPlan()
SHORT = SoakPlan(
    blocks=90, reveals=25, tempo=20, miners=8, node_kills=1, chain_restarts=1, fork_every=20, down_blocks=6,
    request_seconds=2.0, surplus=1.6,
)
