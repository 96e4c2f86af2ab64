"""What the runtime's own transaction extension refuses before a call is ever included.

Invariants
1. Refusals carry the number of the runtime's `CustomTransactionError`; a client sees JSON-RPC error 1010 with the data
   `Custom error: N` and no block, no nonce and no fee is spent.
2. Only the outermost call is looked at. Inside a batch the same conditions are dispatch errors.
3. Weights are free of charge, so what the chain would refuse anyway (stake, rate limit, a reveal round of the past)
   must not reach a block.
"""

from __future__ import annotations

from enum import IntEnum

from chain.devnet.extrinsics import Extrinsic
from chain.devnet.faults import POOL_INVALID, PoolError
from chain.devnet.pallets.subtensor import PALLET, get, storage_index, uid_of
from chain.devnet.pallets.weights import rate_limited, stake_is_low
from chain.devnet.scale import Reader
from chain.devnet.storage import StorageView


class CustomError(IntEnum):
    """The numbers of `CustomTransactionError` this node uses."""

    STAKE_TOO_LOW = 1
    RATE_LIMIT_EXCEEDED = 6
    INVALID_REVEAL_ROUND = 15


class CustomInvalidityError(PoolError):
    """A transaction the extension refuses."""

    def __init__(self, number: CustomError) -> None:
        super().__init__(POOL_INVALID, "Invalid Transaction", f"Custom error: {number.value}")
        self.number = number


_MECHANISM_CALLS = frozenset({"set_mechanism_weights", "commit_timelocked_mechanism_weights"})
_COMMITS = frozenset({"commit_timelocked_weights", "commit_timelocked_mechanism_weights"})
_PLAIN = frozenset({"set_weights", "set_mechanism_weights"})


def check(state: StorageView, extrinsic: Extrinsic, block: int) -> None:
    """Raise `CustomInvalidityError` if the extension would not let `extrinsic` into `block`."""
    if extrinsic.pallet != PALLET or extrinsic.function not in _COMMITS | _PLAIN:
        return
    arguments = Reader(extrinsic.call, 2)
    netuid = arguments.unsigned(2)
    mechanism = arguments.unsigned(1) if extrinsic.function in _MECHANISM_CALLS else 0
    commits = extrinsic.function in _COMMITS
    if stake_is_low(state, netuid, extrinsic.signer):
        raise CustomInvalidityError(CustomError.STAKE_TOO_LOW)
    if bool(get(state, "CommitRevealWeightsEnabled", netuid)) != commits:
        return  # the call itself says which of the two is needed
    uid = uid_of(state, netuid, extrinsic.signer)
    if uid is not None and rate_limited(state, netuid, storage_index(netuid, mechanism), uid, block):
        raise CustomInvalidityError(CustomError.RATE_LIMIT_EXCEEDED)
    if commits:
        arguments.sized_bytes()
        if arguments.unsigned(8) < int(state.get("Drand", "LastStoredRound")):
            raise CustomInvalidityError(CustomError.INVALID_REVEAL_ROUND)
