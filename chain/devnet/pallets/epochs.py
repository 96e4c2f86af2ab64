"""Epochs: the stateful schedule of every subnet, and what happens when one runs.

Invariants
1. An epoch runs at the start of block `n` when `n >= LastEpochBlock + Tempo`, or when a pending epoch is due; a
   subnet with tempo 0 never runs one.
2. Running one counts the epoch, opens the commits that are due, and recomputes incentives from the weights.
3. Incentives are the stake-weighted mean of permitted validators' rows. There is no clipping, no bonds and no
   emission, unlike the public chain's consensus.
"""

from __future__ import annotations

from chain.devnet.codec import as_account
from chain.devnet.context import Context, call
from chain.devnet.pallets.commit_reveal import reveal_epoch
from chain.devnet.pallets.subtensor import (
    PALLET,
    U16_MAX,
    fail,
    get,
    hotkey_of,
    mechanisms,
    netuids,
    put,
    size,
    stake_of,
    storage_index,
    subnet_exists,
)
from chain.devnet.scale import Reader
from chain.devnet.storage import StorageView


def next_epoch_block(state: StorageView, netuid: int) -> int | None:
    """Return the block at whose start the next epoch is due, or None for tempo 0."""
    tempo = int(get(state, "Tempo", netuid))
    if not tempo:
        return None
    due = int(get(state, "LastEpochBlock", netuid)) + tempo
    pending = int(get(state, "PendingEpochAt", netuid))
    return min(due, pending) if pending else due


def start_block(context: Context) -> None:
    """Run the epochs that are due and count the blocks of the others."""
    state = context.state
    for netuid in netuids(state):
        due = next_epoch_block(state, netuid)
        if due is not None and context.block >= due:
            run_epoch(context, netuid)
        elif due is not None:
            put(state, "BlocksSinceLastStep", netuid, value=int(get(state, "BlocksSinceLastStep", netuid)) + 1)


def run_epoch(context: Context, netuid: int) -> None:
    """Enter a subnet's next epoch."""
    state = context.state
    epoch = int(get(state, "SubnetEpochIndex", netuid)) + 1
    put(state, "SubnetEpochIndex", netuid, value=epoch)
    put(state, "LastEpochBlock", netuid, value=context.block)
    put(state, "LastMechansimStepBlock", netuid, value=context.block)
    put(state, "BlocksSinceLastStep", netuid, value=0)
    if int(get(state, "PendingEpochAt", netuid)):
        state.delete(PALLET, "PendingEpochAt", netuid)
    reveal_epoch(context, netuid, epoch)
    for mechanism in mechanisms(state, netuid):
        scores = incentives(state, netuid, mechanism)
        put(state, "Incentive", storage_index(netuid, mechanism), value=scores)
        if mechanism == 0:
            put(state, "Consensus", netuid, value=scores)


def incentives(state: StorageView, netuid: int, mechanism: int) -> list[int]:
    """Return each uid's share, as u16 fractions of 65535, of the stake-weighted weights."""
    count = size(state, netuid)
    permits = get(state, "ValidatorPermit", netuid)
    totals = [0] * count
    index = storage_index(netuid, mechanism)
    for uid in range(count):
        row = get(state, "Weights", index, uid)
        mass = sum(value for _, value in row)
        if not mass or uid >= len(permits) or not permits[uid]:
            continue
        # A validator without stake still counts a little, so that a devnet needs no stake to show incentives.
        stake = max(stake_of(state, netuid, hotkey_of(state, netuid, uid)), 1)
        for target, value in row:
            if target < count:
                totals[target] += stake * value * U16_MAX // mass
    whole = sum(totals)
    return [total * U16_MAX // whole if whole else 0 for total in totals]


@call(PALLET, "trigger_epoch", free=True)
def trigger_epoch(context: Context, signer: bytes, arguments: Reader) -> None:
    """Let the subnet's owner pull the next epoch forward, to the end of the admin freeze window."""
    netuid = arguments.unsigned(2)
    state = context.state
    if not subnet_exists(state, netuid):
        raise fail("SubnetNotExists")
    if as_account(get(state, "SubnetOwner", netuid)) != signer:
        raise fail("NotSubnetOwner")
    if int(get(state, "PendingEpochAt", netuid)):
        raise fail("EpochTriggerAlreadyPending")
    fires_at = context.block + max(int(get(state, "AdminFreezeWindow")), 1)
    put(state, "PendingEpochAt", netuid, value=fires_at)
    context.emit(PALLET, "EpochTriggered", {"netuid": netuid, "by": signer, "fires_at": fires_at})
