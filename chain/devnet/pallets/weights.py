"""Plain weights: the checks every weight row passes, and the calls that set one in the clear.

Invariants
1. A stored row holds distinct registered uids with values upscaled so that the largest is 65535.
2. The rate limit is inclusive (blocks since the last update >= limit) and does not bind while `LastUpdate` is 0, as
   at genesis; a later registration sets it to its own block. With commit-reveal on it binds the commit, not the reveal.
3. A version key below the subnet's is refused; the same rule silently drops a revealed commit.
"""

from __future__ import annotations

from chain.devnet.codec import as_account
from chain.devnet.context import Context, call
from chain.devnet.pallets.subtensor import (
    PALLET,
    U16_MAX,
    entry_of,
    fail,
    get,
    put,
    require_mechanism,
    require_uid,
    set_entry,
    size,
    stake_of,
    storage_index,
)
from chain.devnet.scale import Reader
from chain.devnet.storage import StorageView


def rate_limited(state: StorageView, netuid: int, index: int, uid: int, block: int) -> bool:
    """Say whether a neuron set or committed weights too recently to do so in `block`."""
    last = int(entry_of(state, "LastUpdate", index, uid))
    return last != 0 and block - last < int(get(state, "WeightsSetRateLimit", netuid))


def stake_is_low(state: StorageView, netuid: int, hotkey: bytes) -> bool:
    """Say whether a hotkey has too little stake for weights; the subnet owner's hotkey is exempt."""
    threshold = int(get(state, "StakeThreshold"))
    if not threshold or as_account(get(state, "SubnetOwnerHotkey", netuid)) == hotkey:
        return False
    return stake_of(state, netuid, hotkey) < threshold


def set_row(
    context: Context, signer: bytes, netuid: int, mechanism: int, row: list[tuple[int, int]], version_key: int
) -> None:
    """Check and store a weight row; raises `DispatchError` with the runtime's names, in the runtime's order."""
    state = context.state
    require_mechanism(state, netuid, mechanism)
    if len(row) > size(state, netuid):
        raise fail("UidsLengthExceedUidsInSubNet")
    uid = require_uid(state, netuid, signer)
    index = storage_index(netuid, mechanism)
    committed = bool(get(state, "CommitRevealWeightsEnabled", netuid))
    if stake_is_low(state, netuid, signer):
        raise fail("NotEnoughStakeToSetWeights")
    if version_key < int(get(state, "WeightsVersionKey", netuid)):
        raise fail("IncorrectWeightVersionKey")
    if not committed and rate_limited(state, netuid, index, uid, context.block):
        raise fail("SettingWeightsTooFast")
    uids = [target for target, _ in row]
    own_row = uids == [uid]
    if not own_row and not entry_of(state, "ValidatorPermit", netuid, uid, blank=False):
        raise fail("NeuronNoValidatorPermit")
    if len(set(uids)) != len(uids):
        raise fail("DuplicateUids")
    if any(target >= size(state, netuid) for target in uids):
        raise fail("UidVecContainInvalidOne")
    if not own_row:
        _check_shape(state, netuid, [value for _, value in row])
    put(state, "Weights", index, uid, value=upscale(row))
    if not committed:
        set_entry(state, "LastUpdate", index, uid, context.block)
    context.emit(PALLET, "WeightsSet", (index, uid))


def _check_shape(state: StorageView, netuid: int, values: list[int]) -> None:
    if len(values) < min(int(get(state, "MinAllowedWeights", netuid)), size(state, netuid)):
        raise fail("WeightVecLengthIsLow")
    limit = int(get(state, "MaxWeightsLimit", netuid))
    if limit < U16_MAX and max(values, default=0) * U16_MAX > limit * sum(values):
        raise fail("MaxWeightExceeded")


def upscale(row: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Scale values so that the largest becomes 65535, rounding half up; an all-zero row stays as it is."""
    top = max((value for _, value in row), default=0)
    if top == 0:
        return row
    return [(uid, (2 * value * U16_MAX + top) // (2 * top)) for uid, value in row]


def _set_plain(context: Context, signer: bytes, netuid: int, mechanism: int, arguments: Reader) -> None:
    uids, values = arguments.u16_vector(), arguments.u16_vector()
    version_key = arguments.unsigned(8)
    if get(context.state, "CommitRevealWeightsEnabled", netuid):
        raise fail("CommitRevealEnabled")
    if len(uids) != len(values):
        raise fail("WeightVecNotEqualSize")
    set_row(context, signer, netuid, mechanism, list(zip(uids, values, strict=True)), version_key)


@call(PALLET, "set_weights", free=True)
def set_weights(context: Context, signer: bytes, arguments: Reader) -> None:
    """Set the signer's row in the subnet's first mechanism."""
    _set_plain(context, signer, arguments.unsigned(2), 0, arguments)


@call(PALLET, "set_mechanism_weights", free=True)
def set_mechanism_weights(context: Context, signer: bytes, arguments: Reader) -> None:
    """Set the signer's row in one mechanism."""
    _set_plain(context, signer, arguments.unsigned(2), arguments.unsigned(1), arguments)
