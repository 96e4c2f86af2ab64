"""Whether an extrinsic could be carried by a block that follows these blocks.

Invariants
1. Pure: it reads the state after the newest block and the hashes of the chain, and changes nothing.
2. The order is the runtime's: era, signature (for this chain, era and runtime), nonce, fee, the extension's own checks.
3. A nonce from the future is no fault: such an extrinsic waits.
"""

from __future__ import annotations

from collections.abc import Sequence

from chain.devnet import extension
from chain.devnet.block import Block
from chain.devnet.executive import charge_of
from chain.devnet.extrinsics import Extrinsic, signature_holds
from chain.devnet.faults import Invalidity, InvalidTransactionError
from chain.devnet.pallets import balances, system
from chain.devnet.storage import StorageView


def validate(extrinsic: Extrinsic, state: StorageView, blocks: Sequence[Block]) -> None:
    """Raise `PoolError` (1010) for an extrinsic that the block after `blocks` could not carry, now or later.

    `state` is the one after the last of `blocks`.
    """
    number = len(blocks)
    birth, kept = extrinsic.era.birth(number), int(state.codec.constant("System", "BlockHashCount"))
    if birth >= number or 0 < birth < number - 1 - kept:
        raise InvalidTransactionError(Invalidity.ANCIENT_BIRTH_BLOCK)
    if not signature_holds(extrinsic, blocks[0].hash, blocks[birth].hash, state.codec.spec.version):
        raise InvalidTransactionError(Invalidity.BAD_PROOF)
    if extrinsic.nonce < system.nonce(state, extrinsic.signer):
        raise InvalidTransactionError(Invalidity.STALE)
    if charge_of(extrinsic) > balances.free_balance(state, extrinsic.signer):
        raise InvalidTransactionError(Invalidity.PAYMENT)
    extension.check(state, extrinsic, number)
